/*
 * node.h - one tree for everything that is configured: YAML, JSON (config.json, data rows) and Lua
 * tables become the same nodes, each with the place it came from. Plugins only read.
 *
 * Ownership: a tree belongs to who parsed it and dies whole; every accessor borrows.
 * Threads: reading is safe from any thread. Errors: getters never fail; `or` is what they return
 * when the node is absent, null or of another type. Use nrl_node_kind where the difference matters.
 */
#ifndef NRL_NODE_H
#define NRL_NODE_H
#include <nrl/status.h>
#include <stdbool.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef struct nrl_node nrl_node;

typedef enum {
    NRL_NODE_NONE = 0, /* what the kind of a NULL node is */
    NRL_NODE_NULL,
    NRL_NODE_BOOL,
    NRL_NODE_INT,
    NRL_NODE_FLOAT,
    NRL_NODE_STRING,
    NRL_NODE_LIST,
    NRL_NODE_MAP
} nrl_node_type;

NRL_API nrl_node_type nrl_node_kind(const nrl_node *node);
NRL_API const nrl_node *nrl_node_find(const nrl_node *map, const char *key); /* NULL if absent */
NRL_API size_t nrl_node_size(const nrl_node *list_or_map);
NRL_API const nrl_node *nrl_node_at(const nrl_node *list_or_map, size_t index);
NRL_API const char *nrl_node_key(const nrl_node *map, size_t index);

NRL_API int64_t nrl_node_int(const nrl_node *node, int64_t or_value); /* floats with integral value count */
NRL_API double nrl_node_f64(const nrl_node *node, double or_value);   /* ints count */
NRL_API bool nrl_node_bool(const nrl_node *node, bool or_value);
/* NUL-ended UTF-8; may hold NUL bytes itself: nrl_node_string_size tells. */
NRL_API const char *nrl_node_string(const nrl_node *node, const char *or_value);
NRL_API size_t nrl_node_string_size(const nrl_node *node);

/* "configs/sft.yaml:14:3", or "command line", or "script.lua"; borrowed. */
NRL_API const char *nrl_node_place(const nrl_node *node);

#ifdef __cplusplus
}
#endif
#endif
