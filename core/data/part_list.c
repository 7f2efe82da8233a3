/*
 * part_list.c - data.train as a list of parts: a path, {path, weight, reader}, or a list of these.
 */
#include "base/arena.h"
#include "base/node.h"
#include "data/part.h"
#include <stdlib.h>
#include <string.h>

static const char *role(const dataset_options *o)
{
    return o->role ? o->role : "train";
}

static nrl_status fail_entry(const dataset_options *o, const nrl_node *node, const char *what)
{
    return nrl_fail(NRL_ERR_CONFIG, "%s: data.%s: %s", nrl_node_place(node), role(o), what);
}

static char *join(const char *folder, const char *path)
{
    if (!folder || !*folder || path[0] == '/') return mem_strdup(path);
    return mem_printf("%s/%s", folder, path);
}

static nrl_status check_entry(const dataset_options *o, const nrl_node *node)
{
    for (size_t i = 0; i < nrl_node_size(node); i++) {
        const char *key = nrl_node_key(node, i);
        if (strcmp(key, "path") && strcmp(key, "weight") && strcmp(key, "reader"))
            return nrl_fail(NRL_ERR_CONFIG, "%s: data.%s: unknown key '%s', expected path, weight and reader",
                            nrl_node_place(node), role(o), key);
    }
    return NRL_OK;
}

static nrl_status add(const dataset_options *o, const nrl_node *node, data_part *out)
{
    bool map = nrl_node_kind(node) == NRL_NODE_MAP;
    const char *path = nrl_node_string(map ? nrl_node_find(node, "path") : node, NULL);
    const nrl_node *weight = map ? nrl_node_find(node, "weight") : NULL;
    if (map) NRL_TRY(check_entry(o, node));
    if (!path || !*path) return fail_entry(o, node, "expected a path, or {path, weight, reader}");
    out->weight = weight ? nrl_node_f64(weight, -1) : 1;
    if (!(out->weight > 0 && out->weight <= 1e6))
        return fail_entry(o, weight, "weight must be a number above 0 and at most 1e6");
    out->path = join(o->base_dir, path);
    if (!map) return NRL_OK;
    config_problems problems = {0};
    char *section = mem_printf("data.%s: reader", role(o));
    component_read(&out->choice.memory, &problems, section, nrl_node_find(node, "reader"), NULL,
                   &out->choice.component);
    free(section);
    return problems_report(&problems);
}

nrl_status data_parts_list(const dataset_options *o, data_parts *out)
{
    const nrl_node *source = o->source;
    bool list = nrl_node_kind(source) == NRL_NODE_LIST;
    size_t n = list ? nrl_node_size(source) : 1;
    if (!n) return fail_entry(o, source, "the list is empty, expected at least one file");
    *out = (data_parts){mem_alloc(n * sizeof *out->items), (int64_t)n};
    for (size_t i = 0; i < n; i++) {
        nrl_status st = add(o, list ? nrl_node_at(source, i) : source, &out->items[i]);
        if (st == NRL_OK) continue;
        data_parts_free(out);
        return st;
    }
    return NRL_OK;
}

void data_parts_free(data_parts *p)
{
    for (int64_t i = 0; i < p->n; i++) {
        data_cache_close(&p->items[i].cache);
        data_reader_close(p->items[i].reader);
        arena_free(&p->items[i].choice.memory);
        free(p->items[i].plugin_name);
        free(p->items[i].cache_path);
        free(p->items[i].path);
    }
    free(p->items);
    *p = (data_parts){0};
}
