/*
 * value.c - Lua values to nodes and back, for configs, JSON and run.state.
 *
 * Tables of nrl.config are plain tables. A weak table in the registry stores the node that each came
 * from, so that an unchanged value keeps its file:line:col (and relative paths their file) when the
 * table becomes a tree again. The place of values that the script wrote is the script.
 */
#include "host.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 64, MAX_NAME = 256 };

static const char origins_key; /* registry: weak table, table -> lightuserdata nrl_node */
static const char null_key;    /* its address is nrl.null */
static const nrl_node empty_list = {.kind = NRL_NODE_LIST};

/* ---- origins of tables ---- */

static void push_origins(lua_State *L)
{
    if (lua_rawgetp(L, LUA_REGISTRYINDEX, &origins_key) == LUA_TTABLE) return;
    lua_pop(L, 1);
    lua_newtable(L);
    lua_createtable(L, 0, 1);
    lua_pushliteral(L, "k");
    lua_setfield(L, -2, "__mode");
    lua_setmetatable(L, -2);
    lua_pushvalue(L, -1);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &origins_key);
}

static void set_origin(lua_State *L, int idx, const nrl_node *node)
{
    idx = lua_absindex(L, idx);
    push_origins(L);
    lua_pushvalue(L, idx);
    lua_pushlightuserdata(L, (void *)node);
    lua_rawset(L, -3);
    lua_pop(L, 1);
}

static const nrl_node *origin(lua_State *L, int idx)
{
    idx = lua_absindex(L, idx);
    push_origins(L);
    lua_pushvalue(L, idx);
    lua_rawget(L, -2);
    const nrl_node *node = lua_touserdata(L, -1);
    lua_pop(L, 2);
    return node;
}

void script_mark_list(lua_State *L, int idx)
{
    set_origin(L, idx, &empty_list);
}

void script_push_null(lua_State *L)
{
    lua_pushlightuserdata(L, (void *)&null_key);
}

/* ---- nodes to values ---- */

static void push_children(lua_State *L, const nrl_node *node, unsigned flags)
{
    bool map = node->kind == NRL_NODE_MAP;
    size_t n = nrl_node_size(node);
    luaL_checkstack(L, 4, "value too deep");
    lua_createtable(L, map ? 0 : (int)n, map ? (int)n : 0);
    if (flags & VALUE_CONFIG)
        set_origin(L, -1, node);
    else if (!map && !n)
        script_mark_list(L, -1);
    for (size_t i = 0; i < n; i++) {
        const nrl_node *child = nrl_node_at(node, i);
        if (map && (flags & VALUE_CONFIG) && nrl_node_kind(child) == NRL_NODE_NULL) continue;
        script_push_node(L, child, flags);
        if (map)
            lua_setfield(L, -2, nrl_node_key(node, i));
        else
            lua_rawseti(L, -2, (lua_Integer)i + 1);
    }
}

void script_push_node(lua_State *L, const nrl_node *node, unsigned flags)
{
    switch (nrl_node_kind(node)) {
    case NRL_NODE_NONE:
        lua_pushnil(L);
        return;
    case NRL_NODE_NULL:
        script_push_null(L);
        return;
    case NRL_NODE_BOOL:
        lua_pushboolean(L, nrl_node_bool(node, false));
        return;
    case NRL_NODE_INT:
        lua_pushinteger(L, nrl_node_int(node, 0));
        return;
    case NRL_NODE_FLOAT:
        lua_pushnumber(L, nrl_node_f64(node, 0));
        return;
    case NRL_NODE_STRING:
        lua_pushlstring(L, nrl_node_string(node, ""), nrl_node_string_size(node));
        return;
    case NRL_NODE_LIST:
    case NRL_NODE_MAP:
        push_children(L, node, flags);
        return;
    }
}

/* ---- values to nodes ---- */

/* The current value: its path from the root ("data.train[2]") and its depth. */
typedef struct {
    arena *a;
    const char *path;
    const nrl_node *from; /* the node that it was read from, NULL = created by the script */
    int depth;
} place;

static bool is_same(lua_State *L, int idx, const nrl_node *node)
{
    size_t size;
    const char *text;
    switch (nrl_node_kind(node)) {
    case NRL_NODE_BOOL:
        return lua_isboolean(L, idx) && lua_toboolean(L, idx) == nrl_node_bool(node, false);
    case NRL_NODE_INT:
        return lua_isinteger(L, idx) && lua_tointeger(L, idx) == nrl_node_int(node, 0);
    case NRL_NODE_FLOAT:
        return lua_type(L, idx) == LUA_TNUMBER && !lua_isinteger(L, idx) &&
               lua_tonumber(L, idx) == nrl_node_f64(node, 0);
    case NRL_NODE_STRING:
        if (lua_type(L, idx) != LUA_TSTRING) return false;
        text = lua_tolstring(L, idx, &size);
        return size == nrl_node_string_size(node) && !memcmp(text, nrl_node_string(node, ""), size);
    default:
        return false;
    }
}

static nrl_node *refuse(lua_State *L, const place *p, int idx)
{
    script_fail(L, "%s: expected a number, text, true, false or a table, found a %s", p->path, luaL_typename(L, idx));
    return NULL;
}

static nrl_node *scalar(lua_State *L, int idx, const place *p)
{
    size_t size;
    const char *text;
    switch (lua_type(L, idx)) {
    case LUA_TBOOLEAN:
        return node_bool(p->a, lua_toboolean(L, idx));
    case LUA_TNUMBER:
        if (lua_isinteger(L, idx)) return node_int(p->a, lua_tointeger(L, idx));
        return node_f64(p->a, lua_tonumber(L, idx));
    case LUA_TSTRING:
        text = lua_tolstring(L, idx, &size);
        return node_string(p->a, text, size);
    case LUA_TLIGHTUSERDATA:
        if (lua_touserdata(L, idx) == &null_key) return node_new(p->a, NRL_NODE_NULL);
        return refuse(L, p, idx);
    default:
        return refuse(L, p, idx);
    }
}

static nrl_node *convert(lua_State *L, int idx, const place *p);

static nrl_node *list(lua_State *L, int idx, const place *p, lua_Integer n)
{
    nrl_node *out = node_new(p->a, NRL_NODE_LIST);
    for (lua_Integer i = 1; i <= n; i++) {
        char name[MAX_NAME];
        snprintf(name, sizeof name, "%s[%lld]", p->path, (long long)i);
        if (lua_rawgeti(L, idx, i) == LUA_TNIL)
            script_fail(L, "%s: a list without item %lld (of %lld)", p->path, (long long)i, (long long)n);
        const place item = {p->a, name, nrl_node_at(p->from, (size_t)i - 1), p->depth + 1};
        node_append(p->a, out, NULL, convert(L, lua_gettop(L), &item));
        lua_pop(L, 1);
    }
    return out;
}

static int compare_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The keys of a table of n texts, sorted; borrowed from the table. */
static const char **sorted_keys(lua_State *L, int idx, const place *p, size_t n)
{
    const char **keys = arena_alloc(p->a, n * sizeof *keys);
    size_t i = 0;
    for (lua_pushnil(L); lua_next(L, idx); lua_pop(L, 1)) {
        if (lua_type(L, -2) != LUA_TSTRING) script_fail(L, "%s: a table with both named and numbered fields", p->path);
        size_t size;
        keys[i] = lua_tolstring(L, -2, &size);
        if (strlen(keys[i]) != size) script_fail(L, "%s: a NUL byte in a key", p->path);
        i++;
    }
    qsort(keys, n, sizeof *keys, compare_text);
    return keys;
}

static nrl_node *map(lua_State *L, int idx, const place *p, size_t n)
{
    nrl_node *out = node_new(p->a, NRL_NODE_MAP);
    const char **keys = sorted_keys(L, idx, p, n);
    for (size_t i = 0; i < n; i++) {
        char name[MAX_NAME];
        snprintf(name, sizeof name, "%s%s%s", p->depth ? p->path : "", p->depth ? "." : "", keys[i]);
        lua_pushstring(L, keys[i]);
        lua_rawget(L, idx);
        const place field = {p->a, name, nrl_node_find(p->from, keys[i]), p->depth + 1};
        node_append(p->a, out, keys[i], convert(L, lua_gettop(L), &field));
        lua_pop(L, 1);
    }
    return out;
}

/* A list has only integer keys, and its largest key is its length. */
static nrl_node *table(lua_State *L, int idx, const place *p, const nrl_node *from)
{
    size_t n = 0, n_numbers = 0;
    lua_Integer last = 0;
    for (lua_pushnil(L); lua_next(L, idx); lua_pop(L, 1), n++) {
        if (!lua_isinteger(L, -2)) continue;
        lua_Integer key = lua_tointeger(L, -2);
        if (key < 1) script_fail(L, "%s: a list must begin at 1, found item %lld", p->path, (long long)key);
        if (key > last) last = key;
        n_numbers++;
    }
    if (p->depth > MAX_DEPTH) script_fail(L, "%s: more than %d nested tables", p->path, MAX_DEPTH);
    luaL_checkstack(L, 6, "value too deep");
    const place inside = {p->a, p->path, from, p->depth};
    if (n_numbers && n_numbers == n) return list(L, idx, &inside, last);
    if (!n && nrl_node_kind(from) == NRL_NODE_LIST) return node_new(p->a, NRL_NODE_LIST);
    return map(L, idx, &inside, n);
}

static nrl_node *convert(lua_State *L, int idx, const place *p)
{
    const nrl_node *from = p->from;
    nrl_node *out;
    if (lua_istable(L, idx)) {
        from = origin(L, idx);
        out = table(L, idx, p, from);
    } else if (is_same(L, idx, from)) {
        return node_copy(p->a, from);
    } else {
        out = scalar(L, idx, p);
        from = NULL;
    }
    out->source = from && from->source ? from->source : script_of(L)->path;
    out->line = from ? from->line : 0;
    out->column = from ? from->column : 0;
    return out;
}

nrl_node *script_to_node(lua_State *L, int idx, arena *a, const char *what)
{
    return convert(L, lua_absindex(L, idx), &(place){.a = a, .path = what});
}
