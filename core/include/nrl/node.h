/*
 * node.h - one tree for all configuration: YAML, JSON (config.json, data rows) and Lua tables become the same nodes,
 * each with its position in its source.
 *
 * Ownership: a tree lives in an arena and dies with it; every accessor borrows.
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
    NRL_NODE_NONE = 0, /* the kind of a NULL node */
    NRL_NODE_NULL = 1,
    NRL_NODE_BOOL = 2,
    NRL_NODE_INT = 3,
    NRL_NODE_FLOAT = 4,
    NRL_NODE_STRING = 5,
    NRL_NODE_LIST = 6,
    NRL_NODE_MAP = 7
} nrl_node_type;

NRL_API nrl_node_type nrl_node_kind(const nrl_node *node);
NRL_API const nrl_node *nrl_node_find(const nrl_node *map, const char *key); /* NULL if absent */
NRL_API size_t nrl_node_size(const nrl_node *list_or_map);
NRL_API const nrl_node *nrl_node_at(const nrl_node *list_or_map, size_t index);
NRL_API const char *nrl_node_key(const nrl_node *map, size_t index);

NRL_API int64_t nrl_node_int(const nrl_node *node, int64_t or_value); /* floats with integral value count */
NRL_API double nrl_node_f64(const nrl_node *node, double or_value);   /* ints count */
NRL_API bool nrl_node_bool(const nrl_node *node, bool or_value);
/* NUL-terminated UTF-8. The text may contain NUL bytes; see nrl_node_string_size. */
NRL_API const char *nrl_node_string(const nrl_node *node, const char *or_value);
NRL_API size_t nrl_node_string_size(const nrl_node *node);

/* ---- building a tree: for embedders, frontends and plugins that give rows or info ---- */

/* Allocations that are freed together. An arena belongs to one thread at a time; any thread may read the trees in it.
 * When memory runs out, the process prints a message and exits: use arenas for configs, rows and texts, not for
 * weights. */
typedef struct nrl_arena nrl_arena;
NRL_API nrl_arena *nrl_arena_create(void);
NRL_API void nrl_arena_destroy(nrl_arena *a);             /* a may be NULL */
NRL_API void nrl_arena_reset(nrl_arena *a);               /* frees all allocations; keeps the largest block */
NRL_API void *nrl_arena_alloc(nrl_arena *a, size_t size); /* 16-byte aligned, zeroed */

NRL_API nrl_node *nrl_node_new(nrl_arena *a, nrl_node_type kind); /* NULL, an empty LIST or MAP */
NRL_API nrl_node *nrl_node_new_bool(nrl_arena *a, bool value);
NRL_API nrl_node *nrl_node_new_int(nrl_arena *a, int64_t value);
NRL_API nrl_node *nrl_node_new_f64(nrl_arena *a, double value);
NRL_API nrl_node *nrl_node_new_string(nrl_arena *a, const char *text, size_t size); /* copied */
/* Adds a child, which must not have a parent yet and lives in the same arena. `put` replaces a child with the same key;
 * the key is copied. */
NRL_API void nrl_node_put(nrl_arena *a, nrl_node *map, const char *key, nrl_node *child);
NRL_API void nrl_node_append(nrl_arena *a, nrl_node *list, nrl_node *child);
/* `source` is borrowed as long as the tree; line and column count from 1, 0 = unknown. */
NRL_API void nrl_node_set_place(nrl_node *node, const char *source, uint32_t line, uint32_t column);

/* Strict JSON; NRL_ERR_DATA with source:line:column. [any] */
NRL_API nrl_status nrl_json_parse(nrl_arena *a, const char *source, const char *text, size_t size, nrl_node **out);
/* Compact (indent 0) or indented; doubles round-trip; allocated, for nrl_free. [any] */
NRL_API char *nrl_json_write(const nrl_node *node, int indent);
/* A value as on a command line: 5e-6, true, [a, b], text. NRL_ERR_CONFIG. [any] */
NRL_API nrl_status nrl_yaml_value(nrl_arena *a, const char *source, const char *text, nrl_node **out);

/* "configs/run.yaml:14:3", or "command line", or "script.lua"; borrowed. */
NRL_API const char *nrl_node_place(const nrl_node *node);

#ifdef __cplusplus
}
#endif
#endif
