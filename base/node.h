/*
 * node.h - building the tree of nrl/node.h. Trees live in an arena and die whole.
 * Used by config (YAML), script (Lua tables) and by the JSON reader below.
 *
 * A map finds its keys through a hash table that appending keeps up to date, so a finished tree is
 * never written again and any thread may read it. Read children with nrl_node_at and nrl_node_find.
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
    size_t size;           /* children, or bytes of the string */
    const char *key;       /* inside a map */
    const char *source;    /* file name, "command line", "script.lua"; NULL = unknown */
    const char *text;      /* a YAML scalar as written, NULL for anything else */
    const char *secret;    /* the text with ${env:...} that this value came from, else NULL */
    uint32_t line, column; /* from 1; 0 = unknown */
    nrl_node_type kind;
    bool plain; /* a YAML scalar without quotes: its text may be read as another type */
};

nrl_node *node_new(arena *a, nrl_node_type kind);
nrl_node *node_bool(arena *a, bool value);
nrl_node *node_int(arena *a, int64_t value);
nrl_node *node_f64(arena *a, double value);
nrl_node *node_string(arena *a, const char *text, size_t size); /* copies text */

/* The child becomes the parent's: one node has one parent. `key` is copied; NULL in lists. The
 * caller makes sure that a map does not hold the key yet; node_set does not mind. */
void node_append(arena *a, nrl_node *parent, const char *key, nrl_node *child);
void node_append_int(arena *a, nrl_node *map, const char *key, int64_t value);
void node_append_text(arena *a, nrl_node *map, const char *key, const char *text);
/* Replaces the child with this key where it stands, or appends; returns child. */
nrl_node *node_set(arena *a, nrl_node *map, const char *key, nrl_node *child);
nrl_node *node_copy(arena *a, const nrl_node *node);                    /* deep */
nrl_node *node_without(arena *a, const nrl_node *map, const char *key); /* a copy that lacks the key */
/* A deep copy for files and messages: a value that came from ${env:NAME} is that text, not what the variable held. */
nrl_node *node_as_written(arena *a, const nrl_node *node);

/* "map", "number", "list": how messages call a kind. */
const char *node_kind_name(nrl_node_type kind);

#endif
