/*
 * tree.c - nrl_config of nrl/run.h, with which embedding programs and frontends build a run's config.
 */
#include "config/tree.h"
#include "config/config.h"
#include "base/yaml.h"
#include <nrl/run.h>
#include <stdlib.h>

nrl_config *nrl_config_create(nrl_arena *memory)
{
    nrl_config *c = mem_alloc(sizeof *c);
    c->memory = memory;
    return c;
}

void nrl_config_destroy(nrl_config *c)
{
    if (!c) return;
    problems_report(&c->problems); /* frees the list */
    free(c);
}

nrl_status nrl_config_read(nrl_config *c, const char *path)
{
    return config_read(c->memory, path, &c->root);
}

nrl_status nrl_config_parse(nrl_config *c, const char *source, const char *text, size_t size)
{
    return config_parse(c->memory, arena_strdup(c->memory, source), text, size, &c->root);
}

void nrl_config_mistake(nrl_config *c, const nrl_node *at, const char *text)
{
    problems_add(&c->problems, at, "%s", text);
}

void nrl_config_set_root(nrl_config *c, nrl_node *map)
{
    c->root = map;
}

void nrl_config_override(nrl_config *c, const char *assignment)
{
    if (!c->root) c->root = node_new(c->memory, NRL_NODE_MAP);
    config_override(c->memory, &c->problems, c->root, assignment);
}

static const char *tree_no_variable(const char *name)
{
    (void)name;
    return NULL;
}

void nrl_config_substitute(nrl_config *c, const char *(*lookup)(const char *name))
{
    if (c->root) config_substitute(c->memory, &c->problems, c->root, lookup ? lookup : tree_no_variable);
}

nrl_node *nrl_config_root(nrl_config *c)
{
    return c->root;
}

nrl_status nrl_yaml_value(nrl_arena *memory, const char *source, const char *text, nrl_node **out)
{
    return yaml_parse_value(memory, arena_strdup(memory, source), text, out);
}
