/*
 * failure.c - conversion between the core's statuses and Lua's errors.
 *
 * A Lua error is a text, so that scripts can pcall and print it. Its status is stored with the text:
 * an error that reaches the top and still contains that text has that status.
 */
#include "host.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { FAIL_SIZE = 1024 };

static const char failure_key; /* registry: text of the latest failure */
static const char exit_key;    /* its address is the error value of os.exit */

/* Raises the text on top of the stack. */
static int raise_text(lua_State *L, nrl_status st)
{
    script_of(L)->status = st;
    lua_pushvalue(L, -1);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &failure_key);
    return lua_error(L);
}

int script_raise(lua_State *L, nrl_status st)
{
    script_host *h = script_of(L);
    if (h->exiting) return script_exit(L, h->exit_code);
    const char *text = nrl_error_text();
    luaL_where(L, h->from_callback ? 0 : 1); /* level 0 is C: no position */
    h->from_callback = false;
    const char *place = lua_tostring(L, -1); /* "FILE:LINE: " or "" */
    size_t file = strcspn(place, ":");
    bool repeats = file && !strncmp(text, place, file) && !strncmp(text + file, ": ", 2);
    lua_pushstring(L, repeats ? text + file + 2 : text); /* a node of a script has the script as its source */
    lua_concat(L, 2);
    return raise_text(L, st);
}

/* Raises `place` and the text. */
static int fail(lua_State *L, const char *place, const char *fmt, va_list a)
{
    char text[FAIL_SIZE];
    vsnprintf(text, sizeof text, fmt, a);
    lua_pushfstring(L, "%s%s", place, text);
    return raise_text(L, NRL_ERR_CONFIG);
}

int script_fail(lua_State *L, const char *fmt, ...)
{
    va_list a;
    luaL_where(L, 1);
    va_start(a, fmt);
    fail(L, lua_tostring(L, -1), fmt, a);
    va_end(a);
    return 0;
}

int script_fail_at(lua_State *L, const char *place, const char *fmt, ...)
{
    va_list a;
    va_start(a, fmt);
    fail(L, place, fmt, a);
    va_end(a);
    return 0;
}

int script_exit(lua_State *L, int code)
{
    script_host *h = script_of(L);
    h->exiting = true;
    h->exit_code = code;
    lua_pushlightuserdata(L, (void *)&exit_key);
    return lua_error(L);
}

static bool is_known_failure(lua_State *L, const char *text)
{
    lua_rawgetp(L, LUA_REGISTRYINDEX, &failure_key);
    const char *known = lua_tostring(L, -1);
    bool found = known && strstr(text, known);
    lua_pop(L, 1);
    return found;
}

/* Message handler: errors of the script get a traceback; errors of nrl are complete. */
static int describe(lua_State *L)
{
    if (lua_touserdata(L, 1) == &exit_key) return 1;
    const char *text = lua_tostring(L, 1);
    if (!text && luaL_callmeta(L, 1, "__tostring")) text = lua_tostring(L, -1);
    if (!text) text = lua_pushfstring(L, "(error object is a %s value)", luaL_typename(L, 1));
    if (!is_known_failure(L, text))
        luaL_traceback(L, L, text, 1);
    else
        lua_pushstring(L, text);
    return 1;
}

nrl_status script_call(lua_State *L, int n_arguments, int n_results)
{
    script_host *h = script_of(L);
    int handler = lua_gettop(L) - n_arguments;
    lua_pushcfunction(L, describe); /* neither this line nor the next can fail */
    lua_insert(L, handler);
    int rc = lua_pcall(L, n_arguments, n_results, handler);
    lua_remove(L, handler);
    if (rc == LUA_OK) return NRL_OK;
    nrl_status st = NRL_ERR_STOPPED;
    const char *text = lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : "os.exit";
    if (rc == LUA_ERRMEM)
        st = NRL_ERR_MEMORY;
    else if (!h->exiting)
        st = is_known_failure(L, text) ? h->status : NRL_ERR_CONFIG;
    nrl_fail(st, "%s", text);
    lua_pop(L, 1);
    return st;
}
