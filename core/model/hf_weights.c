/*
 * hf_weights.c - opens the weight files of a directory: model.safetensors, or the shards that
 * model.safetensors.index.json lists.
 */
#include "base/json.h"
#include "model/weights.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_INDEX_BYTES = 64 << 20, MAX_SHARDS = 10000 };

/* ---- finding ---- */

const safetensor *weights_find(const hf_weights *w, const char *name)
{
    int64_t low = 0, high = w->n;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        int order = strcmp(name, w->sorted[middle]->name);
        if (!order) return w->sorted[middle];
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

static const safetensor *find_spelled(const hf_weights *w, const model *m, const char *name)
{
    const safetensor *t = weights_find(w, name);
    size_t n = m->optional_prefix ? strlen(m->optional_prefix) : 0;
    if (!t && n && !strncmp(name, m->optional_prefix, n)) t = weights_find(w, name + n);
    return t;
}

const char *weights_tied_name(const model *m)
{
    static const char name[] = "lm_head.weight";
    return strcmp(m->head.weight->name, name) ? name : "";
}

const safetensor *weights_part(const hf_weights *w, const model *m, const nrl_part *part)
{
    const safetensor *t = find_spelled(w, m, part->name);
    if (!t && part == m->head.weight->parts) t = weights_find(w, weights_tied_name(m));
    return t;
}

void weights_file_dims(const nrl_part *part, int64_t dims[NRL_MAX_DIMS])
{
    for (int i = 0; i < part->n_dims; i++)
        dims[i] = part->dims[part->transposed ? part->n_dims - 1 - i : i];
}

/* ---- opening ---- */

static int by_name(const void *x, const void *y)
{
    return strcmp((*(const safetensor *const *)x)->name, (*(const safetensor *const *)y)->name);
}

static nrl_status sort_tensors(hf_weights *w)
{
    int64_t n = 0;
    for (int32_t i = 0; i < w->n_files; i++)
        n += w->files[i].n;
    w->sorted = arena_alloc(&w->memory, (size_t)n * sizeof *w->sorted);
    for (int32_t i = 0; i < w->n_files; i++)
        for (int64_t k = 0; k < w->files[i].n; k++)
            w->sorted[w->n++] = &w->files[i].tensors[k];
    qsort(w->sorted, (size_t)n, sizeof *w->sorted, by_name);
    for (int64_t i = 1; i < n; i++)
        if (!strcmp(w->sorted[i - 1]->name, w->sorted[i]->name))
            return nrl_fail(NRL_ERR_DATA, "tensor '%s' is both in %s and in %s", w->sorted[i]->name,
                            w->sorted[i - 1]->path, w->sorted[i]->path);
    return NRL_OK;
}

static nrl_status add_file(hf_weights *w, const char *name)
{
    const char *path = arena_printf(&w->memory, "%s/%s", w->dir, name);
    if (access(path, F_OK))
        return nrl_fail(NRL_ERR_DATA, "%s: the index lists this file, but it is absent", path);
    return safetensors_open(&w->memory, path, &w->files[w->n_files++]);
}

/* A file name of the index must stay inside the directory. */
static nrl_status check_file_name(const nrl_node *node, const char *index)
{
    const char *name = nrl_node_string(node, "");
    if (!*name || strchr(name, '/') || !strcmp(name, "..") || strlen(name) > 255)
        return nrl_fail(NRL_ERR_DATA, "%s: weight_map names '%.255s', expected a file beside it",
                        index, name);
    return NRL_OK;
}

static int by_text(const void *x, const void *y)
{
    return strcmp(*(const char *const *)x, *(const char *const *)y);
}

/* Every tensor of the map must be in the file that the map says. */
static nrl_status check_map(const hf_weights *w, const nrl_node *map, const char *index)
{
    for (size_t i = 0; i < nrl_node_size(map); i++) {
        const char *file = nrl_node_string(nrl_node_at(map, i), "");
        const safetensor *t = weights_find(w, nrl_node_key(map, i));
        const char *slash = t ? strrchr(t->path, '/') : NULL;
        if (!slash || strcmp(slash + 1, file))
            return nrl_fail(NRL_ERR_DATA, "%s: tensor '%.200s' is not in %s", index,
                            nrl_node_key(map, i), file);
    }
    return NRL_OK;
}

static nrl_status open_shards(hf_weights *w, const char *index)
{
    nrl_node *root;
    NRL_TRY(json_read_file(&w->memory, index, MAX_INDEX_BYTES, &root));
    const nrl_node *map = nrl_node_find(root, "weight_map");
    size_t n = nrl_node_kind(map) == NRL_NODE_MAP ? nrl_node_size(map) : 0, n_files = 0;
    if (!n) return nrl_fail(NRL_ERR_DATA, "%s: no 'weight_map'", index);
    const char **names = arena_alloc(&w->memory, n * sizeof *names);
    for (size_t i = 0; i < n; i++) {
        NRL_TRY(check_file_name(nrl_node_at(map, i), index));
        names[i] = nrl_node_string(nrl_node_at(map, i), "");
    }
    qsort(names, n, sizeof *names, by_text);
    for (size_t i = 0; i < n; i++)
        if (!i || strcmp(names[i - 1], names[i])) names[n_files++] = names[i];
    if (n_files > MAX_SHARDS)
        return nrl_fail(NRL_ERR_DATA, "%s: %zu files, expected at most %d", index, n_files,
                        (int)MAX_SHARDS);
    w->files = arena_alloc(&w->memory, n_files * sizeof *w->files);
    for (size_t i = 0; i < n_files; i++)
        NRL_TRY(add_file(w, names[i]));
    NRL_TRY(sort_tensors(w));
    return check_map(w, map, index);
}

static nrl_status no_weights(const char *dir)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/pytorch_model.bin", dir);
    bool torch = !access(path, F_OK);
    snprintf(path, sizeof path, "%s/pytorch_model.bin.index.json", dir);
    torch = torch || !access(path, F_OK);
    return nrl_fail(NRL_ERR_DATA, "%s: no model.safetensors and no model.safetensors.index.json%s",
                    dir,
                    torch ? "\npytorch_model.bin is a pickle and is not read; save it again with "
                            "safetensors"
                          : "");
}

static nrl_status open_files(hf_weights *w)
{
    const char *single = arena_printf(&w->memory, "%s/model.safetensors", w->dir);
    const char *index = arena_printf(&w->memory, "%s/model.safetensors.index.json", w->dir);
    if (access(single, F_OK) && access(index, F_OK)) return no_weights(w->dir);
    if (access(single, F_OK)) return open_shards(w, index);
    w->files = arena_alloc(&w->memory, sizeof *w->files);
    NRL_TRY(add_file(w, "model.safetensors"));
    return sort_tensors(w);
}

nrl_status hf_weights_open(const char *dir, hf_weights **out)
{
    hf_weights *w = mem_alloc(sizeof *w);
    w->dir = arena_strdup(&w->memory, dir);
    nrl_status st = open_files(w);
    if (st != NRL_OK) {
        hf_weights_close(w);
        return st;
    }
    *out = w;
    return NRL_OK;
}

void hf_weights_close(hf_weights *w)
{
    if (!w) return;
    for (int32_t i = 0; i < w->n_files; i++)
        safetensors_close(&w->files[i]);
    arena_free(&w->memory);
    free(w);
}
