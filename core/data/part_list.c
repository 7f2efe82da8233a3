/*
 * part_list.c - data.train as a list of parts: a path, {path, weight, reader}, or a list of these. A
 * directory or a pattern is a part for each of its files, unless a dataset plugin reads the directory itself.
 */
#include "base/arena.h"
#include "base/node.h"
#include "base/paths.h"
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

static nrl_status read_entry(const dataset_options *o, const nrl_node *node, data_part *out)
{
    bool map = nrl_node_kind(node) == NRL_NODE_MAP;
    const char *path = nrl_node_string(map ? nrl_node_find(node, "path") : node, NULL);
    const nrl_node *weight = map ? nrl_node_find(node, "weight") : NULL;
    if (map) {
        for (size_t i = 0; i < nrl_node_size(node); i++) {
            const char *key = nrl_node_key(node, i);
            if (strcmp(key, "path") && strcmp(key, "weight") && strcmp(key, "reader"))
                return nrl_fail(NRL_ERR_CONFIG, "%s: data.%s: unknown key '%s', expected path, weight and reader",
                                nrl_node_place(node), role(o), key);
        }
    }
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

static nrl_status add(const dataset_options *o, const nrl_node *node, data_parts *out)
{
    out->items = mem_realloc(out->items, (size_t)(out->n + 1) * sizeof *out->items);
    out->items[out->n] = (data_part){0};
    return read_entry(o, node, &out->items[out->n++]);
}

/* The part that is last in the list becomes a part for each of its files. */
static nrl_status expand(const dataset_options *o, const nrl_node *node, data_parts *out)
{
    paths files;
    data_part *first = &out->items[out->n - 1];
    if (data_reader_reads_folder(o->host, &first->choice, first->path)) return NRL_OK;
    nrl_status st = paths_expand(first->path, &files);
    if (st != NRL_OK) nrl_add_context("data.%s", role(o));
    for (size_t i = 0; st == NRL_OK && i < files.n; i++) {
        if (i) st = add(o, node, out);
        data_part *p = &out->items[out->n - 1];
        free(p->path);
        p->path = files.items[i];
        files.items[i] = NULL;
    }
    paths_free(&files);
    return st;
}

nrl_status data_parts_list(const dataset_options *o, data_parts *out)
{
    const nrl_node *source = o->source;
    bool list = nrl_node_kind(source) == NRL_NODE_LIST;
    size_t n = list ? nrl_node_size(source) : 1;
    *out = (data_parts){0};
    if (!n) return fail_entry(o, source, "the list is empty, expected at least one file");
    nrl_status st = NRL_OK;
    for (size_t i = 0; i < n && st == NRL_OK; i++) {
        const nrl_node *node = list ? nrl_node_at(source, i) : source;
        st = add(o, node, out);
        if (st == NRL_OK) st = expand(o, node, out);
    }
    if (st != NRL_OK) data_parts_free(out);
    return st;
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
