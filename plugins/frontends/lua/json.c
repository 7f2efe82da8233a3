/*
 * json.c - nrl.json.encode/decode, nrl.read_jsonl and nrl.write_jsonl: data that scripts write or
 * read.
 */
#include "base/json.h"
#include "folder.h"
#include "host.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* nrl.json.encode(value [, indent]) -> text */
static int encode(lua_State *L)
{
    lua_Integer indent = luaL_optinteger(L, 2, 0);
    luaL_argcheck(L, indent >= 0 && indent <= 8, 2, "expected an indent of 0 to 8");
    luaL_checkany(L, 1);
    arena *a = script_arena(L);
    char *text = json_write(script_to_node(L, 1, a, "value"), (int)indent);
    lua_pushstring(L, text);
    free(text);
    return 1;
}

/* nrl.json.decode(text) -> value */
static int decode(lua_State *L)
{
    size_t size;
    const char *text = luaL_checklstring(L, 1, &size);
    nrl_node *node;
    arena *a = script_arena(L);
    nrl_status st = json_parse(a, "text", text, size, &node);
    if (st != NRL_OK) return script_raise(L, st);
    script_push_node(L, node, 0);
    return 1;
}

/* ---- files ---- */

static int close_file(lua_State *L)
{
    luaL_Stream *s = lua_touserdata(L, 1);
    if (s->f) fclose(s->f);
    s->f = NULL;
    return 0;
}

/* A file that the collector closes, also if an error leaves the function. */
static luaL_Stream *push_file(lua_State *L, const char *path, const char *mode)
{
    luaL_Stream *s = lua_newuserdatauv(L, sizeof *s, 0);
    *s = (luaL_Stream){NULL, NULL};
    if (luaL_newmetatable(L, "nrl.file")) {
        lua_pushcfunction(L, close_file);
        lua_setfield(L, -2, "__gc");
    }
    lua_setmetatable(L, -2);
    s->f = fopen(path, mode);
    if (!s->f) script_raise(L, nrl_fail(NRL_ERR_IO, "cannot open %s: %s", path, strerror(errno)));
    return s;
}

static int write_failed(lua_State *L, const char *path)
{
    bool is_full = errno == ENOSPC || errno == EDQUOT || errno == EFBIG;
    return script_raise(L, nrl_fail(is_full ? NRL_ERR_FULL : NRL_ERR_IO, "cannot write %s: %s", path, strerror(errno)));
}

static bool write_row(lua_State *L, FILE *f, int row, const char *name)
{
    arena *a = script_arena(L);
    char *text = json_write(script_to_node(L, row, a, name), 0);
    bool ok = fputs(text, f) >= 0 && putc('\n', f) != EOF;
    free(text);
    arena_free(a);
    lua_pop(L, 1);
    return ok;
}

/* nrl.write_jsonl(path, rows): one row per line; creates the folders of the path. */
static int write_jsonl(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1);
    luaL_checktype(L, 2, LUA_TTABLE);
    nrl_status st = folder_make_parents(path);
    if (st != NRL_OK) return script_raise(L, st);
    luaL_Stream *s = push_file(L, path, "wb");
    lua_Integer n = (lua_Integer)lua_rawlen(L, 2);
    for (lua_Integer i = 1; i <= n; i++) {
        char name[32];
        snprintf(name, sizeof name, "row %lld", (long long)i);
        lua_rawgeti(L, 2, i);
        if (!write_row(L, s->f, lua_gettop(L), name)) return write_failed(L, path);
        lua_pop(L, 1);
    }
    FILE *f = s->f;
    s->f = NULL;
    if (fclose(f)) return write_failed(L, path);
    return 0;
}

/* Pushes the row on this line; false for an empty line. */
static bool push_row(lua_State *L, const char *path, lua_Integer line, const char *text, size_t size)
{
    if (strspn(text, " \t\r\n") == size) return false;
    arena *a = script_arena(L);
    const char *source = arena_printf(a, "%s:%lld", path, (long long)line);
    nrl_node *node;
    nrl_status st = json_parse(a, source, text, size, &node);
    if (st != NRL_OK) script_raise(L, st);
    script_push_node(L, node, 0);
    lua_remove(L, -2);
    arena_free(a);
    return true;
}

/* Pushes the next line with its newline; false at the end of the file. */
static bool push_line(lua_State *L, luaL_Stream *s)
{
    char *line = NULL;
    size_t room = 0;
    const ssize_t n = getline(&line, &room, s->f); /* a line may contain NUL */
    lua_pushlstring(L, n > 0 ? line : "", n > 0 ? (size_t)n : 0);
    free(line);
    return n > 0;
}

/* nrl.read_jsonl(path) -> list of rows */
static int read_jsonl(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1);
    luaL_Stream *s = push_file(L, path, "rb");
    lua_Integer n = 0, line = 1;
    lua_newtable(L);
    for (; push_line(L, s); line++) {
        size_t size;
        const char *text = lua_tolstring(L, -1, &size);
        if (push_row(L, path, line, text, size)) lua_rawseti(L, -3, ++n);
        lua_pop(L, 1);
    }
    lua_pop(L, 1);
    if (!n) script_mark_list(L, -1);
    if (!feof(s->f)) return script_raise(L, nrl_fail(NRL_ERR_IO, "cannot read %s: %s", path, strerror(errno)));
    return 1;
}

/* nrl.list(t): returns t, marked so that an empty t is an empty list instead of an empty map. */
static int mark_list(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TTABLE);
    lua_settop(L, 1);
    script_mark_list(L, 1);
    return 1;
}

void script_open_json(lua_State *L)
{
    static const luaL_Reg json[] = {{"encode", encode}, {"decode", decode}, {NULL, NULL}};
    static const luaL_Reg files[] = {
        {"read_jsonl", read_jsonl}, {"write_jsonl", write_jsonl}, {"list", mark_list}, {NULL, NULL}};
    luaL_setfuncs(L, files, 0);
    luaL_newlib(L, json);
    lua_setfield(L, -2, "json");
    script_push_null(L);
    lua_setfield(L, -2, "null");
}
