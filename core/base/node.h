/*
 * node.h - building the tree of nrl/node.h. Trees live in an arena and die whole.
 * Used by config (YAML), script (Lua tables) and by the JSON reader below.
 */
#ifndef BASE_NODE_H
#define BASE_NODE_H
#include "base/arena.h"
#include <nrl/node.h>

struct nrl_node {
    nrl_node_type kind;
    uint32_t line, column;  /* from 1; 0 = unknown */
    const char *source;     /* file name, "command line", "script.lua" */
    const char *key;        /* inside a map */
    nrl_node *first, *last; /* children of a list or map, in order */
    nrl_node *next;
    size_t size;            /* children, or bytes of the string */
    union {
        bool boolean;
        int64_t integer;
        double real;
        const char *string;
    } as;
    const char *place;      /* made on first use */
    nrl_node **index;       /* children by number, made when the tree is complete */
    bool plain;             /* a YAML scalar without quotes: its text may be read as another type */
    const char *text;       /* the scalar as written, NULL for lists and maps */
};

nrl_node *node_new(arena *a, nrl_node_type kind);
nrl_node *node_string(arena *a, const char *text, size_t size);
void node_append(arena *a, nrl_node *parent, const char *key, nrl_node *child); /* key NULL in lists */
nrl_node *node_set(arena *a, nrl_node *map, const char *key, nrl_node *child);  /* replaces or appends */
nrl_node *node_copy(arena *a, const nrl_node *node);                           /* deep */

#endif
