/*
 * node.h - building the trees of nrl/node.h. A tree lives in an arena and is freed with it.
 * Used by config (YAML), script (Lua tables) and the JSON reader.
 *
 * node_append keeps a map's hash table of keys up to date, so reading never writes to a tree and any thread may read a
 * finished one. Read children with nrl_node_at and nrl_node_find.
 */
#ifndef BASE_NODE_H
#define BASE_NODE_H
#include "base/arena.h"
#include <nrl/node.h>

typedef struct node_children node_children;

struct nrl_node {
    union {
        bool boolean;
        int64_t integer;
        double real;
        const char *string;      /* NUL-ended; node.size bytes */
        node_children *children; /* of a list or map, NULL while it has none */
    } as;
    size_t size;           /* number of children, or of bytes in the string */
    const char *key;       /* inside a map */
    const char *source;    /* file name, "command line", "script.lua"; NULL = unknown */
    const char *text;      /* a YAML scalar as written; NULL for other nodes */
    const char *secret;    /* the text with ${env:...} before its expansion; NULL if there was none */
    uint32_t line, column; /* from 1; 0 = unknown */
    nrl_node_type kind;
    bool plain; /* an unquoted YAML scalar: its text may be converted to another type */
};

/* For arena_reserve: the bytes that a node takes in an arena, at most; `text_size` of its string and its key. */
size_t node_room(size_t n_children, size_t text_size);

nrl_node *node_new(arena *a, nrl_node_type kind);
nrl_node *node_bool(arena *a, bool value);
nrl_node *node_int(arena *a, int64_t value);
nrl_node *node_f64(arena *a, double value);
nrl_node *node_string(arena *a, const char *text, size_t size); /* copies text */
nrl_node *node_text(arena *a, const char *text);                /* the same of NUL-ended text */
void node_copy_place(nrl_node *node, const nrl_node *from);     /* source, line and column */

/* Appends a child, which must not have a parent yet. `key` is copied; NULL in lists. A map must not have the key yet;
 * node_set replaces an existing key. */
void node_append(arena *a, nrl_node *parent, const char *key, nrl_node *child);
void node_append_int(arena *a, nrl_node *map, const char *key, int64_t value);
void node_append_text(arena *a, nrl_node *map, const char *key, const char *text); /* NULL: nothing */
/* Replaces the child with this key, at its position, or appends the child; returns child. */
nrl_node *node_set(arena *a, nrl_node *map, const char *key, nrl_node *child);
nrl_node *node_copy(arena *a, const nrl_node *node);                       /* deep */
nrl_node *node_try_copy(arena *a, const nrl_node *node, const char *what); /* the same; NULL: NRL_ERR_MEMORY */
nrl_node *node_without(arena *a, const nrl_node *map, const char *key);    /* a deep copy without the key */
/* A deep copy for files and messages: a value from ${env:NAME} is copied as that text, not as the variable's value. */
nrl_node *node_as_written(arena *a, const nrl_node *node);

/* A path written at node `at`, resolved relative to the node's file, or to the working directory if it has none. */
const char *node_path(arena *a, const nrl_node *at, const char *path);

/* The name of a kind in messages: "map", "number", "list". */
const char *node_kind_name(nrl_node_type kind);

#endif
