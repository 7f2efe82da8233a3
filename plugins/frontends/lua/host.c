/*
 * host.c - one Lua state per script: its memory, its libraries, and running the file. failure.c
 * converts errors.
 */
#include "host.h"
#include "base/file.h"
#include "base/hash.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_SCRIPT_BYTES = 1 << 24 };

#define MAX_LUA_BYTES ((size_t)4 << 30)

script_host *script_of(lua_State *L)
{
    return *(script_host **)lua_getextraspace(L);
}

/* ---- memory ---- */

static int free_arena(lua_State *L)
{
    arena_free(lua_touserdata(L, 1));
    return 0;
}

arena *script_arena(lua_State *L)
{
    arena *a = lua_newuserdatauv(L, sizeof *a, 0);
    *a = (arena){0};
    if (luaL_newmetatable(L, "nrl.arena")) {
        lua_pushcfunction(L, free_arena);
        lua_setfield(L, -2, "__gc");
    }
    lua_setmetatable(L, -2);
    return a;
}

/* ---- opening ---- */

/* Runs every so many instructions. A signal ends a script between runs (an open run saves its state
 * first); a loss has limits. */
static void look_up(lua_State *L, lua_Debug *unused)
{
    script_host *h = script_of(L);
    (void)unused;
    if (h->call.open) script_limits_check(L);
    if (!h->run.signal || !*h->run.signal || h->n_training) return;
    script_raise(L, nrl_fail(NRL_ERR_STOPPED, "stopped by signal %d", *h->run.signal));
}

void script_watch(lua_State *L, int period)
{
    lua_sethook(L, look_up, LUA_MASKCOUNT, period);
}

/* os.exit would skip the cleanup of open runs, so it unwinds the script instead. */
static int exit_script(lua_State *L)
{
    if (lua_isnoneornil(L, 1) || lua_isboolean(L, 1))
        return script_exit(L, lua_isboolean(L, 1) && !lua_toboolean(L, 1));
    lua_Integer code = luaL_checkinteger(L, 1);
    luaL_argcheck(L, code >= 0 && code < 256, 1, "expected 0 to 255");
    return script_exit(L, (int)code);
}

/* Modules in the script's folder come first. */
static void set_package_path(lua_State *L, const char *script)
{
    const char *slash = strrchr(script, '/');
    lua_getglobal(L, "package");
    lua_pushlstring(L, slash ? script : ".", slash ? (size_t)(slash - script) : 1);
    lua_pushliteral(L, "/?.lua;");
    lua_getfield(L, -3, "path");
    lua_concat(L, 3);
    lua_setfield(L, -2, "path");
    lua_pop(L, 1);
}

/* Fills `arg` as the lua program does, without the assignments. */
static void set_arg(lua_State *L, const script_host *h)
{
    lua_Integer n = 0;
    lua_newtable(L);
    lua_pushstring(L, h->path);
    lua_rawseti(L, -2, 0);
    for (size_t i = 0; i < h->job->n_words; i++) {
        if (strchr(h->job->words[i], '=')) continue;
        lua_pushstring(L, h->job->words[i]);
        lua_rawseti(L, -2, ++n);
    }
    lua_setglobal(L, "arg");
}

static int print_nothing(lua_State *L)
{
    (void)L;
    return 0;
}

static void open_libraries(lua_State *L, const script_host *h)
{
    lua_pushboolean(L, true);
    lua_setfield(L, LUA_REGISTRYINDEX, "LUA_NOENV"); /* LUA_PATH cannot change an experiment */
    luaL_openlibs(L);
    lua_getglobal(L, "os");
    lua_pushcfunction(L, exit_script);
    lua_setfield(L, -2, "exit");
    lua_pushnil(L); /* it changes how the whole process reads and writes numbers */
    lua_setfield(L, -2, "setlocale");
    lua_getglobal(L, "math"); /* the same random numbers in every run and on every rank, unless the script seeds them */
    lua_getfield(L, -1, "randomseed");
    lua_pushinteger(L, 0);
    lua_call(L, 1, 0);
    lua_pop(L, 2);
    if (h->run.ranks && h->run.ranks->rank > 0) { /* every rank runs the script, but only rank 0 prints */
        lua_pushcfunction(L, print_nothing);
        lua_setglobal(L, "print");
    }
    set_package_path(L, h->path);
    set_arg(L, h);
    luaL_getsubtable(L, LUA_REGISTRYINDEX, LUA_PRELOAD_TABLE);
    lua_pushcfunction(L, script_open_module);
    lua_setfield(L, -2, "nrl");
    lua_pop(L, 1);
}

/* Protected: everything until the end of the script. The argument is the script's text. */
static int run_script(lua_State *L)
{
    script_host *h = script_of(L);
    size_t size;
    const char *text = lua_tolstring(L, 1, &size);
    open_libraries(L, h);
    if (*text == '#') { /* a line for the shell; its newline stays, so that line numbers are right */
        const char *end = memchr(text, '\n', size);
        size -= end ? (size_t)(end - text) : size;
        text = end ? end : "";
    }
    const char *name = lua_pushfstring(L, "@%s", h->path);
    if (luaL_loadbufferx(L, text, size, name, "t") != LUA_OK) return script_fail_at(L, "", "%s", lua_tostring(L, -1));
    lua_call(L, 0, 0);
    return 0;
}

static int push_script(lua_State *L)
{
    lua_pushlstring(L, lua_touserdata(L, 1), (size_t)lua_tointeger(L, 2));
    return 1;
}

static nrl_status call_script(lua_State *L, char *text, size_t size)
{
    lua_pushcfunction(L, push_script);
    lua_pushlightuserdata(L, text);
    lua_pushinteger(L, (lua_Integer)size);
    NRL_TRY(script_call(L, 2, 1));
    lua_pushcfunction(L, run_script);
    lua_insert(L, -2);
    return script_call(L, 1, 0);
}

/* Never called: all entries into Lua are protected. */
static int broken(lua_State *L)
{
    nrl_assert_failed(__FILE__, __LINE__, "unprotected Lua error", lua_gettop(L), 0);
}

/* Lua's allocator: beyond MAX_LUA_BYTES it fails, and the script gets "not enough memory". */
static void *allocate(void *user, void *old, size_t old_size, size_t size)
{
    script_host *h = user;
    size_t held = h->lua_bytes - (old ? old_size : 0);
    if (size > MAX_LUA_BYTES || held > MAX_LUA_BYTES - size) return NULL;
    if (h->call.open && size > (old ? old_size : 0) && !script_limits_allow(h, held, size, !old)) return NULL;
    void *new = size ? realloc(old, size) : NULL;
    if (!size) free(old);
    if (size && !new) return NULL;
    h->lua_bytes = held + size;
    return new;
}

static nrl_status run_text(script_host *h, char *text, size_t size)
{
    lua_State *L = lua_newstate(allocate, h);
    if (!L) return nrl_fail(NRL_ERR_MEMORY, "no memory for a Lua state");
    lua_atpanic(L, broken);
    h->L = L;
    *(script_host **)lua_getextraspace(L) = h;
    script_watch(L, SCRIPT_PERIOD);
    nrl_status st = call_script(L, text, size);
    if (h->exiting) st = NRL_OK;
    h->failure = st;
    lua_close(L); /* closes open runs */
    nrl_session_end(h->ranks, st != NRL_OK);
    arena_free(&h->memory);
    return st;
}

nrl_status script_run(const nrl_frontend_job *job, int *exit_code)
{
    const char *path = job->script;
    char digits[HASH_TEXT], *text;
    size_t size;
    script_host h = {.job = job, .run = *job->environment, .path = path, .exit_code = -1};
    h.rules = script_rules_of(NULL);
    if (file_read(path, MAX_SCRIPT_BYTES, &text, &size) != NRL_OK) return NRL_ERR_CONFIG;
    hash_bytes(text, size, digits);
    h.ranks = nrl_session_create();
    h.run.session = h.ranks;
    h.run.script = path;
    h.run.script_hash = digits;
    nrl_status st = run_text(&h, text, size);
    free(text);
    *exit_code = h.exit_code;
    return st;
}
