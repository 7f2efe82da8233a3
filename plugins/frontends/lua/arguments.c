/*
 * arguments.c - reads f{key = value}: every key must be known and every type right; errors name the
 * function and the key.
 */
#include "base/buffer.h"
#include "base/suggest.h"
#include "host.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool is_key(const char *name, const char *const *keys, suggestion *near)
{
    for (; *keys; keys++) {
        if (!strcmp(name, *keys)) return true;
        suggest_offer(near, *keys);
    }
    return false;
}

void script_check_keys(lua_State *L, int idx, const char *function, const char *const *keys)
{
    idx = lua_absindex(L, idx);
    if (!lua_istable(L, idx))
        script_fail(L, "%s: expected a table of arguments, found %s", function, luaL_typename(L, idx));
    for (lua_pushnil(L); lua_next(L, idx); lua_pop(L, 1)) {
        if (lua_type(L, -2) != LUA_TSTRING)
            script_fail(L, "%s: expected named arguments: use %s{%s = ...}", function, function, keys[0]);
        suggestion near = {.word = lua_tostring(L, -2)};
        if (is_key(near.word, keys, &near)) continue;
        if (near.best)
            script_fail(L, "%s: unknown argument '%s'\nhint: did you mean '%s'?", function, near.word, near.best);
        script_fail(L, "%s: unknown argument '%s'", function, near.word);
    }
}

static void expected(lua_State *L, const char *function, const char *key, const char *what)
{
    script_fail(L, "%s: %s: expected %s, found %s", function, key, what, luaL_typename(L, -1));
}

int64_t script_int(lua_State *L, int idx, const char *function, const char *key, int64_t or_value)
{
    int is_int;
    int type = lua_getfield(L, idx, key);
    int64_t value = lua_tointegerx(L, -1, &is_int);
    if (type == LUA_TNIL)
        value = or_value;
    else if (type != LUA_TNUMBER || !is_int)
        expected(L, function, key, "a whole number");
    lua_pop(L, 1);
    return value;
}

double script_f64(lua_State *L, int idx, const char *function, const char *key, double or_value)
{
    int type = lua_getfield(L, idx, key);
    double value = type == LUA_TNIL ? or_value : lua_tonumber(L, -1);
    if (type != LUA_TNIL && (type != LUA_TNUMBER || isnan(value))) expected(L, function, key, "a number");
    lua_pop(L, 1);
    return value;
}

bool script_bool(lua_State *L, int idx, const char *function, const char *key, bool or_value)
{
    int type = lua_getfield(L, idx, key);
    bool value = type == LUA_TNIL ? or_value : lua_toboolean(L, -1);
    if (type != LUA_TNIL && type != LUA_TBOOLEAN) expected(L, function, key, "true or false");
    lua_pop(L, 1);
    return value;
}

const char *script_text(lua_State *L, int idx, const char *function, const char *key)
{
    int type = lua_getfield(L, idx, key);
    if (type != LUA_TNIL && type != LUA_TSTRING) expected(L, function, key, "text");
    return lua_tostring(L, -1);
}

/* Pushes an array of n pointers that the collector frees. */
static const char **push_array(lua_State *L, size_t n)
{
    return lua_newuserdatauv(L, (n ? n : 1) * sizeof(char *), 0);
}

const char **script_texts(lua_State *L, int idx, const char *function, const char *key, size_t *n)
{
    int type = lua_getfield(L, idx, key), field = lua_gettop(L);
    *n = 0;
    if (type == LUA_TNIL) return NULL;
    if (type == LUA_TSTRING) {
        const char **one = push_array(L, 1);
        one[0] = lua_tostring(L, field);
        *n = 1;
        return one;
    }
    if (type != LUA_TTABLE) expected(L, function, key, "a list of texts");
    *n = lua_rawlen(L, field);
    const char **texts = push_array(L, *n);
    for (size_t i = 0; i < *n; i++) {
        if (lua_rawgeti(L, field, (lua_Integer)i + 1) != LUA_TSTRING)
            script_fail(L, "%s: %s[%d]: expected text, found %s", function, key, (int)i + 1, luaL_typename(L, -1));
        texts[i] = lua_tostring(L, -1); /* the list keeps the text alive */
        lua_pop(L, 1);
    }
    return texts;
}
