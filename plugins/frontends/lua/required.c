/*
 * required.c - the files that a script has required so far, which must be the same on all ranks.
 * Modules that are required later, and files that a script reads itself, are not included.
 */
#include "base/buffer.h"
#include "base/hash.h"
#include "host.h"
#include <lauxlib.h>
#include <stdlib.h>
#include <string.h>

static int by_text(const void *x, const void *y)
{
    return strcmp(*(const char *const *)x, *(const char *const *)y);
}

/* Names in package.loaded, which keeps them alive, in an order that is the same on all ranks. */
static const char **loaded_names(lua_State *L, int loaded, arena *a, size_t *n)
{
    const char **names = NULL;
    size_t room = 0;
    *n = 0;
    for (lua_pushnil(L); lua_next(L, loaded); lua_pop(L, 1))
        room++;
    names = arena_alloc(a, (room + 1) * sizeof *names);
    for (lua_pushnil(L); lua_next(L, loaded); lua_pop(L, 1))
        if (lua_type(L, -2) == LUA_TSTRING) names[(*n)++] = lua_tostring(L, -2);
    qsort(names, *n, sizeof *names, by_text);
    return names;
}

/* Pushes the file that `require NAME` finds, or nil: built-in modules have none. */
static void push_file(lua_State *L, int package, const char *name)
{
    lua_getfield(L, package, "searchpath");
    lua_pushstring(L, name);
    lua_getfield(L, package, "path");
    if (lua_pcall(L, 2, 1, 0) == LUA_OK) return;
    lua_pop(L, 1);
    lua_pushnil(L);
}

const char *script_required(lua_State *L, arena *a)
{
    int top = lua_gettop(L);
    size_t n = 0;
    buffer lines = {0};
    char hash[HASH_TEXT];
    luaL_getsubtable(L, LUA_REGISTRYINDEX, LUA_LOADED_TABLE);
    const char **names = loaded_names(L, top + 1, a, &n);
    lua_getfield(L, top + 1, LUA_LOADLIBNAME);
    for (size_t i = 0; i < n && lua_istable(L, top + 2); i++, lua_settop(L, top + 2)) {
        push_file(L, top + 2, names[i]);
        const char *file = lua_tostring(L, -1);
        if (file && hash_file(file, hash) == NRL_OK)
            buffer_print(&lines, "module %s of the script: %s\n", names[i], hash);
    }
    lua_settop(L, top);
    const char *text = arena_strdup(a, lines.text ? lines.text : "");
    buffer_free(&lines);
    return text;
}
