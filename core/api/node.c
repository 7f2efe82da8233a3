/*
 * node.c - the public functions of nrl/node.h, wrappers of lib/base/arena.h, lib/base/node.h, lib/base/json.h and
 * lib/base/plan_text.h.
 */
#include "base/json.h"
#include "base/plan_text.h"
#include <nrl/run.h>
#include <stdlib.h>
#include <string.h>

nrl_arena *nrl_arena_create(void)
{
    return mem_alloc(sizeof(nrl_arena));
}

void nrl_arena_destroy(nrl_arena *a)
{
    if (!a) return;
    arena_free(a);
    free(a);
}

void nrl_arena_reset(nrl_arena *a)
{
    arena_reset(a);
}

void *nrl_arena_alloc(nrl_arena *a, size_t size)
{
    return arena_alloc(a, size);
}

nrl_node *nrl_node_new(nrl_arena *a, nrl_node_type kind)
{
    return node_new(a, kind);
}

nrl_node *nrl_node_new_bool(nrl_arena *a, bool value)
{
    return node_bool(a, value);
}

nrl_node *nrl_node_new_int(nrl_arena *a, int64_t value)
{
    return node_int(a, value);
}

nrl_node *nrl_node_new_f64(nrl_arena *a, double value)
{
    return node_f64(a, value);
}

nrl_node *nrl_node_new_string(nrl_arena *a, const char *text, size_t size)
{
    return node_string(a, text, size);
}

void nrl_node_put(nrl_arena *a, nrl_node *map, const char *key, nrl_node *child)
{
    node_set(a, map, key, child);
}

void nrl_node_append(nrl_arena *a, nrl_node *list, nrl_node *child)
{
    node_append(a, list, NULL, child);
}

void nrl_node_set_place(nrl_node *node, const char *source, uint32_t line, uint32_t column)
{
    node->source = source;
    node->line = line;
    node->column = column;
}

nrl_status nrl_json_parse(nrl_arena *a, const char *source, const char *text, size_t size, nrl_node **out)
{
    return json_parse(a, arena_strdup(a, source), text, size, out);
}

char *nrl_json_write(const nrl_node *node, int indent)
{
    return json_write(node, indent);
}

char *nrl_plan_text(const nrl_node *plan)
{
    return plan_text(plan);
}

const char *nrl_version(void)
{
    return NRL_VERSION;
}

void nrl_free(void *allocated)
{
    free(allocated);
}
