/*
 * part_list.c - data.train as a list of parts: a path, {path, weight, rows, ...}, or a list of these. A
 * directory or a pattern is a part for each of its files, unless a dataset plugin reads the directory itself.
 */
#include "base/arena.h"
#include "base/node.h"
#include "base/paths.h"
#include "data/part.h"
#include <ctype.h>
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

/* "0:1000", "-100:", ":5" */
static bool read_rows(const char *text, int64_t *from, int64_t *to)
{
    char *end;
    *from = *text == ':' ? 0 : strtoll(text, &end, 10);
    const char *colon = *text == ':' ? text : end;
    *to = colon[0] == ':' && !colon[1] ? INT64_MAX : strtoll(colon + (*colon == ':'), &end, 10);
    return *colon == ':' && (!colon[1] || (!*end && end != colon + 1)) && !strpbrk(text, " +\t") &&
           !(*from >= *to && (*from < 0) == (*to < 0));
}

static const char *const overlong_words[] = {"error", "drop", "truncate", "split"}; /* data_overlong */

static nrl_status read_entry(const dataset_options *o, const nrl_node *node, data_part *out)
{
    bool map = nrl_node_kind(node) == NRL_NODE_MAP;
    const char *path = nrl_node_string(map ? nrl_node_find(node, "path") : node, NULL);
    const nrl_node *weight = map ? nrl_node_find(node, "weight") : NULL;
    const nrl_node *rows = map ? nrl_node_find(node, "rows") : NULL;
    out->to = INT64_MAX;
    out->overlong = o->overlong;
    if (!path || !*path) return fail_entry(o, node, "expected a path, or {path, weight, rows, ...}");
    if (rows && !read_rows(nrl_node_string(rows, "?"), &out->from, &out->to))
        return fail_entry(o, rows, "rows: expected FIRST:END, such as 0:1000, 1000:, or \"-100:\" (the last 100)");
    out->weight = weight && !(o->held_out > 0 && o->is_held_out) ? nrl_node_f64(weight, -1) : 1;
    if (!(out->weight > 0 && out->weight <= 1e6))
        return fail_entry(o, weight, "weight must be a number above 0 and at most 1e6");
    out->path = join(o->base_dir, path);
    if (!map) return NRL_OK;
    out->limit = nrl_node_int(nrl_node_find(node, "limit"), 0);
    out->columns = nrl_node_find(node, "columns");
    const char *overlong = nrl_node_string(nrl_node_find(node, "overlong"), "");
    for (int i = 0; i < 4; i++)
        if (!strcmp(overlong, overlong_words[i])) out->overlong = (data_overlong)i;
    if (out->overlong == DATA_OVERLONG_SPLIT && (o->pairs || o->labels))
        return fail_entry(o, node,
                          "overlong: split is not supported by this algorithm, which compares whole answers; "
                          "expected drop or truncate");
    config_problems problems = {0};
    arena *a = &out->choice.memory;
    char *section = mem_printf("data.%s: reader", role(o));
    component_read(a, &problems, section, nrl_node_find(node, "reader"), NULL, &out->choice.component);
    choice_read(a, &problems, "data.template", nrl_node_find(node, "template"), false, &out->template_choice,
                node_new(a, NRL_NODE_MAP), "template");
    free(section);
    return problems_report(&problems);
}

static nrl_status add(const dataset_options *o, const nrl_node *node, size_t entry, data_parts *out)
{
    out->items = mem_realloc(out->items, (size_t)(out->n + 1) * sizeof *out->items);
    out->items[out->n] = (data_part){.entry = entry};
    return read_entry(o, node, &out->items[out->n++]);
}

/* The first file of a directory that belongs to one of these splits according to its name (train-00000-of-00002) or to
 * the name of its subdirectory (train/0); NULL = none. */
static const char *file_of_split(const paths *files, const char *folder, const char *const *splits)
{
    for (size_t i = 0; i < files->n; i++)
        for (const char *at = files->items[i] + strlen(folder); at; at = strchr(at, '/')) {
            at += *at == '/';
            for (size_t k = 0; splits[k]; k++)
                if (!strncmp(at, splits[k], strlen(splits[k])) && !isalpha((unsigned char)at[strlen(splits[k])]))
                    return files->items[i];
        }
    return NULL;
}

static void warn_of_splits(const paths *files, const char *folder)
{
    static const char *const train[] = {"train", NULL};
    static const char *const other[] = {"test", "validation", "valid", "val", "dev", "eval", NULL};
    const char *trains = file_of_split(files, folder, train), *others = file_of_split(files, folder, other);
    if (trains && others)
        nrl_warn("data.train: reads all files of '%s', those of the training split (%s) and of other splits (%s); a "
                 "pattern such as '%s/train*' selects files",
                 folder, trains + strlen(folder), others + strlen(folder), folder);
}

/* The part that is last in the list becomes a part for each of its files. */
static nrl_status expand(const dataset_options *o, const nrl_node *node, data_parts *out)
{
    paths files;
    data_part *first = &out->items[out->n - 1];
    const size_t entry = first->entry;
    if (data_reader_reads_folder(o->host, &first->choice, first->path)) return NRL_OK;
    nrl_status st = paths_expand(first->path, &files);
    if (st != NRL_OK) nrl_add_context("data.%s", role(o));
    if (st == NRL_OK && !o->quiet && !strcmp(role(o), "train") && !paths_is_pattern(first->path))
        warn_of_splits(&files, first->path);
    for (size_t i = 0; st == NRL_OK && i < files.n; i++) {
        if (i) st = add(o, node, entry, out);
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
        st = add(o, node, i, out);
        if (st == NRL_OK) st = expand(o, node, out);
    }
    if (st != NRL_OK) data_parts_free(out);
    return st;
}

void data_part_close(data_part *p)
{
    data_cache_close(&p->cache);
    data_reader_close(p->reader);
    chat_template_close(p->template);
    arena_free(&p->choice.memory);
    for (size_t i = 0; i < p->n_files; i++)
        free(p->files[i].path);
    free(p->files);
    free(p->plugin_name);
    free(p->cache_path);
    free(p->path);
}

void data_parts_free(data_parts *p)
{
    for (int64_t i = 0; i < p->n; i++)
        data_part_close(&p->items[i]);
    free(p->items);
    *p = (data_parts){0};
}
