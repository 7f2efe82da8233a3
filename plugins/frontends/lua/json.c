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

/* The number of rows of the list at idx. */
static lua_Integer count_rows(lua_State *L, int idx)
{
    const lua_Integer n = (lua_Integer)lua_rawlen(L, idx);
    for (lua_pushnil(L); lua_next(L, idx); lua_pop(L, 1)) {
        const lua_Integer key = lua_isinteger(L, -2) ? lua_tointeger(L, -2) : 0;
        if (key < 1 || key > n)
            script_fail(L, "nrl.write_jsonl: expected a list of rows without gaps, found a table with the field '%s'",
                        luaL_tolstring(L, -2, NULL));
    }
    return n;
}

/* Row i of the table at index 2, as text in `a`. */
static const char *row_text(lua_State *L, arena *a, lua_Integer i)
{
    char name[32];
    snprintf(name, sizeof name, "row %lld", (long long)i);
    lua_rawgeti(L, 2, i);
    const int row = lua_gettop(L);
    arena *own = script_arena(L);
    char *text = json_write(script_to_node(L, row, own, name), 0);
    const char *kept = arena_strdup(a, text);
    free(text);
    arena_free(own);
    lua_pop(L, 2);
    return kept;
}

/* nrl.write_jsonl(path, rows): one row per line; creates the folders of the path. The file is not touched before all
 * rows are known to be writable. */
static int write_jsonl(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1);
    luaL_checktype(L, 2, LUA_TTABLE);
    const lua_Integer n = count_rows(L, 2);
    arena *a = script_arena(L);
    const char **texts = arena_alloc(a, ((size_t)n + 1) * sizeof *texts);
    for (lua_Integer i = 0; i < n; i++)
        texts[i] = row_text(L, a, i + 1);
    nrl_status st = folder_make_parents(path);
    if (st != NRL_OK) return script_raise(L, st);
    luaL_Stream *s = push_file(L, path, "wb");
    for (lua_Integer i = 0; i < n; i++)
        if (fputs(texts[i], s->f) < 0 || putc('\n', s->f) == EOF) return write_failed(L, path);
    FILE *f = s->f;
    s->f = NULL;
    if (fclose(f)) return write_failed(L, path);
    arena_free(a);
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
