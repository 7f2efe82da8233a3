/*
 * node.c - the tree behind nrl/node.h and lib/base/node.h.
 * Children are an array. A map with more than SMALL_MAP children also has an open-addressing hash table of child
 * numbers (plus one; 0 is empty), at most half full. Outgrown arrays stay in the arena; because sizes double, they take
 * at most as much memory as the current array.
 */
#include "base/node.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { FIRST_CHILDREN = 4, SMALL_MAP = 8, PLACES = 4, PLACE_SIZE = 1024 };

struct node_children {
    nrl_node **items;
    size_t capacity;
    uint32_t *slots; /* NULL for lists and small maps */
    size_t n_slots;  /* a power of two */
};

/* ---- building ---- */

/* The arrays of room_for_one double, so they add up to at most 32 bytes a child, and so do those of slots_add. */
size_t node_room(size_t n_children, size_t text_size)
{
    enum { ROUNDING = 3 * 16 }; /* of string, text as written and key */
    return sizeof(nrl_node) + ROUNDING + text_size + (n_children ? 128 + 64 * n_children : 0);
}

nrl_node *node_new(arena *a, nrl_node_type kind)
{
    nrl_node *n = arena_alloc(a, sizeof *n);
    n->kind = kind;
    return n;
}

nrl_node *node_bool(arena *a, bool value)
{
    nrl_node *n = node_new(a, NRL_NODE_BOOL);
    n->as.boolean = value;
    return n;
}

nrl_node *node_int(arena *a, int64_t value)
{
    nrl_node *n = node_new(a, NRL_NODE_INT);
    n->as.integer = value;
    return n;
}

nrl_node *node_f64(arena *a, double value)
{
    nrl_node *n = node_new(a, NRL_NODE_FLOAT);
    n->as.real = value;
    return n;
}

nrl_node *node_string(arena *a, const char *text, size_t size)
{
    nrl_node *n = node_new(a, NRL_NODE_STRING);
    n->as.string = arena_strndup(a, text, size);
    n->size = size;
    return n;
}

nrl_node *node_text(arena *a, const char *text)
{
    return node_string(a, text, strlen(text));
}

static bool holds_children(const nrl_node *n)
{
    return n && (n->kind == NRL_NODE_LIST || n->kind == NRL_NODE_MAP);
}

/* FNV-1a, then a mix so that the low bits depend on every byte. */
static size_t node_hash(const char *key)
{
    uint64_t h = 14695981039346656037u;
    for (; *key; key++)
        h = (h ^ (unsigned char)*key) * 1099511628211u;
    h ^= h >> 29;
    return (size_t)(h * 0x9E3779B97F4A7C15u >> 17);
}

static void slot_put(node_children *c, const char *key, size_t number)
{
    size_t mask = c->n_slots - 1, i = node_hash(key) & mask;
    while (c->slots[i])
        i = (i + 1) & mask;
    c->slots[i] = (uint32_t)number + 1;
}

/* Keeps the table at most half full. */
static void slots_add(arena *a, nrl_node *map)
{
    node_children *c = map->as.children;
    if (map->size <= SMALL_MAP) return;
    if (map->size * 2 <= c->n_slots) {
        slot_put(c, c->items[map->size - 1]->key, map->size - 1);
        return;
    }
    c->n_slots = c->n_slots ? c->n_slots * 2 : 4 * SMALL_MAP;
    c->slots = arena_alloc(a, c->n_slots * sizeof *c->slots);
    for (size_t i = 0; i < map->size; i++)
        slot_put(c, c->items[i]->key, i);
}

static node_children *room_for_one(arena *a, nrl_node *parent)
{
    node_children *c = parent->as.children;
    if (!c) c = parent->as.children = arena_alloc(a, sizeof *c);
    if (parent->size < c->capacity) return c;
    c->capacity = c->capacity ? c->capacity * 2 : FIRST_CHILDREN;
    nrl_node **items = arena_alloc(a, c->capacity * sizeof *items);
    if (parent->size) memcpy(items, c->items, parent->size * sizeof *items);
    c->items = items;
    return c;
}

void node_append(arena *a, nrl_node *parent, const char *key, nrl_node *child)
{
    NRL_ASSERT(holds_children(parent), ==, true);
    NRL_ASSERT((parent->kind == NRL_NODE_MAP), ==, (key != NULL));
    NRL_ASSERT(parent->size, <, UINT32_MAX - 1);
    room_for_one(a, parent)->items[parent->size++] = child;
    child->key = key ? arena_strdup(a, key) : NULL;
    if (key) slots_add(a, parent);
}

/* Returns the number of the child with this key, or map->size if there is no such child. */
static size_t node_index(const nrl_node *map, const char *key)
{
    const node_children *c = map->as.children;
    size_t i;
    if (map->size <= SMALL_MAP) {
        for (i = 0; i < map->size; i++)
            if (!strcmp(c->items[i]->key, key)) break;
        return i;
    }
    for (i = node_hash(key) & (c->n_slots - 1); c->slots[i]; i = (i + 1) & (c->n_slots - 1))
        if (!strcmp(c->items[c->slots[i] - 1]->key, key)) return c->slots[i] - 1;
    return map->size;
}

void node_append_int(arena *a, nrl_node *map, const char *key, int64_t value)
{
    node_append(a, map, key, node_int(a, value));
}

void node_append_text(arena *a, nrl_node *map, const char *key, const char *text)
{
    if (text) node_append(a, map, key, node_text(a, text));
}

void node_copy_place(nrl_node *node, const nrl_node *from)
{
    node->source = from->source;
    node->line = from->line;
    node->column = from->column;
}

nrl_node *node_set(arena *a, nrl_node *map, const char *key, nrl_node *child)
{
    size_t i = node_index(map, key);
    if (i < map->size) {
        child->key = map->as.children->items[i]->key;
        map->as.children->items[i] = child;
    } else {
        node_append(a, map, key, child);
    }
    return child;
}

/* A deep copy without the child whose key is `except` (NULL: with all children). */
static nrl_node *copy_but(arena *a, const nrl_node *node, const char *except)
{
    nrl_node *n = node_new(a, node->kind);
    *n = *node;
    if (node->text) n->text = arena_strdup(a, node->text);
    if (node->kind == NRL_NODE_STRING) n->as.string = arena_strndup(a, node->as.string, node->size);
    if (!holds_children(node)) return n;
    n->as.children = NULL;
    n->size = 0;
    for (size_t i = 0; i < node->size; i++) {
        const nrl_node *child = node->as.children->items[i];
        if (!except || strcmp(child->key, except)) node_append(a, n, child->key, copy_but(a, child, NULL));
    }
    return n;
}

nrl_node *node_copy(arena *a, const nrl_node *node)
{
    return copy_but(a, node, NULL);
}

static size_t tree_room(const nrl_node *node)
{
    size_t text = nrl_node_string_size(node) + (node->text ? strlen(node->text) : 0);
    size_t size = node_room(nrl_node_size(node), text + (node->key ? strlen(node->key) : 0));
    for (size_t i = 0; i < nrl_node_size(node); i++)
        size += tree_room(nrl_node_at(node, i));
    return size;
}

nrl_node *node_try_copy(arena *a, const nrl_node *node, const char *what)
{
    return arena_reserve(a, tree_room(node), what) == NRL_OK ? node_copy(a, node) : NULL;
}

nrl_node *node_without(arena *a, const nrl_node *map, const char *key)
{
    NRL_ASSERT(map->kind, ==, NRL_NODE_MAP);
    return copy_but(a, map, key);
}

nrl_node *node_as_written(arena *a, const nrl_node *node)
{
    if (node->secret) return node_text(a, node->secret);
    if (node->kind != NRL_NODE_MAP && node->kind != NRL_NODE_LIST) return node_copy(a, node);
    nrl_node *to = node_new(a, node->kind);
    for (size_t i = 0; i < nrl_node_size(node); i++)
        node_append(a, to, nrl_node_key(node, i), node_as_written(a, nrl_node_at(node, i)));
    return to;
}

const char *node_path(arena *a, const nrl_node *at, const char *path)
{
    const char *slash = at && at->line ? strrchr(at->source, '/') : NULL;
    if (*path == '/' || !*path || !slash) return path;
    return arena_printf(a, "%.*s/%s", (int)(slash - at->source), at->source, path);
}

const char *node_kind_name(nrl_node_type kind)
{
    static const char *const names[] = {"nothing", "null", "true/false", "whole number",
                                        "number",  "text", "list",       "map"};
    return (size_t)kind < sizeof names / sizeof *names ? names[kind] : "?";
}

/* ---- reading ---- */

nrl_node_type nrl_node_kind(const nrl_node *node)
{
    return node ? node->kind : NRL_NODE_NONE;
}

const nrl_node *nrl_node_find(const nrl_node *map, const char *key)
{
    if (nrl_node_kind(map) != NRL_NODE_MAP || !key) return NULL;
    size_t i = node_index(map, key);
    return i < map->size ? map->as.children->items[i] : NULL;
}

size_t nrl_node_size(const nrl_node *list_or_map)
{
    return holds_children(list_or_map) ? list_or_map->size : 0;
}

const nrl_node *nrl_node_at(const nrl_node *list_or_map, size_t index)
{
    return index < nrl_node_size(list_or_map) ? list_or_map->as.children->items[index] : NULL;
}

const char *nrl_node_key(const nrl_node *map, size_t index)
{
    const nrl_node *child = nrl_node_at(map, index);
    return child ? child->key : NULL;
}

int64_t nrl_node_int(const nrl_node *node, int64_t or_value)
{
    if (nrl_node_kind(node) == NRL_NODE_INT) return node->as.integer;
    if (nrl_node_kind(node) != NRL_NODE_FLOAT) return or_value;
    double v = node->as.real; /* -2^63 is a double, 2^63 is the first one too large */
    return v >= -0x1p63 && v < 0x1p63 && v == floor(v) ? (int64_t)v : or_value;
}

double nrl_node_f64(const nrl_node *node, double or_value)
{
    if (nrl_node_kind(node) == NRL_NODE_FLOAT) return node->as.real;
    return nrl_node_kind(node) == NRL_NODE_INT ? (double)node->as.integer : or_value;
}

bool nrl_node_bool(const nrl_node *node, bool or_value)
{
    return nrl_node_kind(node) == NRL_NODE_BOOL ? node->as.boolean : or_value;
}

const char *nrl_node_string(const nrl_node *node, const char *or_value)
{
    return nrl_node_kind(node) == NRL_NODE_STRING ? node->as.string : or_value;
}

size_t nrl_node_string_size(const nrl_node *node)
{
    return nrl_node_kind(node) == NRL_NODE_STRING ? node->size : 0;
}

/* Formatted on demand into a per-thread ring of buffers: trees are large, and errors name few of their nodes. */
const char *nrl_node_place(const nrl_node *node)
{
    static _Thread_local char ring[PLACES][PLACE_SIZE];
    static _Thread_local unsigned next;
    if (!node || !node->source) return "?";
    if (!node->line) return node->source;
    char *out = ring[next++ % PLACES];
    snprintf(out, PLACE_SIZE, "%s:%" PRIu32 ":%" PRIu32, node->source, node->line, node->column);
    return out;
}
