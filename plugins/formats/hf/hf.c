/*
 * hf.c - Hugging Face model directories: config.json, model.safetensors (or the shards that
 * model.safetensors.index.json lists), and the files that are copied with a model. Weights are
 * memory-mapped.
 */
#include "hf.h"
#include "base/json.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_INDEX_BYTES = 64 << 20, MAX_SHARDS = 10000 };

/* ---- opening ---- */

static bool hf_has(const char *dir, const char *name)
{
    char path[4096];
    int n = snprintf(path, sizeof path, "%s/%s", dir, name);
    return n > 0 && (size_t)n < sizeof path && !access(path, F_OK);
}

/* Also claims paths that do not exist: most models have this form, so the errors here explain them best. */
static int32_t hf_probe(const char *path, const nrl_format_host *host)
{
    (void)host;
    if (!hf_is_directory(path)) return hf_is_hub_name(path) && access(path, F_OK) ? NRL_PROBE_NAME : NRL_PROBE_EXPLAINS;
    if (!hf_has(path, "config.json")) return NRL_PROBE_EXPLAINS;
    bool weights = hf_has(path, "model.safetensors") || hf_has(path, "model.safetensors.index.json");
    return weights ? NRL_PROBE_YES : NRL_PROBE_PERHAPS;
}

static void hf_close(void *reader)
{
    hf *h = reader;
    for (int32_t i = 0; i < h->n_files; i++)
        safetensors_close(&h->files[i]);
    free(h->config);
    arena_free(&h->memory);
    free(h);
}

static nrl_status hf_open(const char *path, uint32_t flags, const nrl_format_host *host, void **reader)
{
    hf *h = mem_alloc(sizeof *h);
    nrl_status st = NRL_OK;
    h->is_file = flags & NRL_OPEN_CONFIG;
    if (h->is_file)
        h->path = arena_strdup(&h->memory, path);
    else
        st = hf_locate(path, host, &h->memory, &h->path);
    if (st == NRL_OK) st = hf_read_config(h);
    if (st == NRL_OK)
        *reader = h;
    else
        hf_close(h);
    return st;
}

static void hf_info(const void *reader, nrl_format_info *info)
{
    const hf *h = reader;
    info->path = h->path;
    info->config = h->config;
    info->config_size = h->config_size;
    info->config_path = h->config_path;
    info->companions = h->is_file ? NULL : h->path;
}

/* ---- the list of tensors ---- */

static nrl_status add_file(hf *h, const char *name)
{
    const char *path = arena_printf(&h->memory, "%s/%s", h->path, name);
    if (access(path, F_OK)) return nrl_fail(NRL_ERR_DATA, "%s: the index lists this file, but it is absent", path);
    return safetensors_open(&h->memory, path, &h->files[h->n_files++]);
}

/* A file name in the index must stay inside the directory. */
static nrl_status check_file_name(const nrl_node *node, const char *index)
{
    const char *name = nrl_node_string(node, "");
    if (!*name || strchr(name, '/') || !strcmp(name, "..") || strlen(name) > 255)
        return nrl_fail(NRL_ERR_DATA, "%s: weight_map names '%.255s'; expected a file in the same directory", index,
                        name);
    return NRL_OK;
}

static int by_text(const void *x, const void *y)
{
    return strcmp(*(const char *const *)x, *(const char *const *)y);
}

static int by_name(const void *x, const void *y)
{
    return strcmp((*(const safetensor *const *)x)->name, (*(const safetensor *const *)y)->name);
}

static nrl_status list_tensors(hf *h)
{
    int64_t n = 0;
    for (int32_t i = 0; i < h->n_files; i++)
        n += h->files[i].n;
    h->tensors = arena_alloc(&h->memory, (size_t)(n + 1) * sizeof *h->tensors);
    for (int32_t i = 0; i < h->n_files; i++)
        for (int64_t k = 0; k < h->files[i].n; k++)
            h->tensors[h->n_tensors++] = &h->files[i].tensors[k];
    qsort(h->tensors, (size_t)n, sizeof *h->tensors, by_name);
    return hf_list_entries(h);
}

const safetensor *hf_find(const hf *h, const char *name)
{
    const safetensor key = {.name = name}, *at = &key;
    const safetensor **found = bsearch(&at, h->tensors, (size_t)h->n_tensors, sizeof *h->tensors, by_name);
    return found ? *found : NULL;
}

/* Every tensor of the map must be in the file that the map names. */
static nrl_status check_map(const hf *h, const nrl_node *map, const char *index)
{
    for (size_t i = 0; i < nrl_node_size(map); i++) {
        const char *file = nrl_node_string(nrl_node_at(map, i), "");
        const safetensor *t = hf_find(h, nrl_node_key(map, i));
        const char *slash = t ? strrchr(t->path, '/') : NULL;
        if (!slash || strcmp(slash + 1, file))
            return nrl_fail(NRL_ERR_DATA, "%s: tensor '%.200s' is not in %s", index, nrl_node_key(map, i), file);
    }
    return NRL_OK;
}

static nrl_status open_shards(hf *h, const char *index)
{
    nrl_node *root;
    NRL_TRY(json_read_file(&h->memory, index, MAX_INDEX_BYTES, &root));
    const nrl_node *map = nrl_node_find(root, "weight_map");
    size_t n = nrl_node_kind(map) == NRL_NODE_MAP ? nrl_node_size(map) : 0, n_files = 0;
    if (!n) return nrl_fail(NRL_ERR_DATA, "%s: no 'weight_map'", index);
    const char **names = arena_alloc(&h->memory, n * sizeof *names);
    for (size_t i = 0; i < n; i++) {
        NRL_TRY(check_file_name(nrl_node_at(map, i), index));
        names[i] = nrl_node_string(nrl_node_at(map, i), "");
    }
    qsort(names, n, sizeof *names, by_text);
    for (size_t i = 0; i < n; i++)
        if (!i || strcmp(names[i - 1], names[i])) names[n_files++] = names[i];
    if (n_files > MAX_SHARDS)
        return nrl_fail(NRL_ERR_DATA, "%s: %zu files; expected at most %d", index, n_files, (int)MAX_SHARDS);
    h->files = arena_alloc(&h->memory, n_files * sizeof *h->files);
    for (size_t i = 0; i < n_files; i++)
        NRL_TRY(add_file(h, names[i]));
    NRL_TRY(list_tensors(h));
    return check_map(h, map, index);
}

static nrl_status no_weights(const char *dir)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/pytorch_model.bin", dir);
    bool torch = !access(path, F_OK);
    snprintf(path, sizeof path, "%s/pytorch_model.bin.index.json", dir);
    torch = torch || !access(path, F_OK);
    return nrl_fail(NRL_ERR_DATA, "%s: no model.safetensors and no model.safetensors.index.json%s", dir,
                    torch ? "\nhint: pytorch_model.bin is a pickle, which nrl does not read; save the model again with "
                            "safetensors"
                          : "");
}

static nrl_status hf_load(void *reader)
{
    hf *h = reader;
    bool single = hf_has(h->path, "model.safetensors");
    if (!single && !hf_has(h->path, "model.safetensors.index.json")) return no_weights(h->path);
    if (!single) return open_shards(h, arena_printf(&h->memory, "%s/model.safetensors.index.json", h->path));
    h->files = arena_alloc(&h->memory, sizeof *h->files);
    NRL_TRY(add_file(h, "model.safetensors"));
    return list_tensors(h);
}

static int64_t hf_n_tensors(const void *reader)
{
    return ((const hf *)reader)->n;
}

static void hf_tensor(const void *reader, int64_t i, nrl_format_tensor *tensor)
{
    hf_describe(&((const hf *)reader)->list[i], tensor);
}

/* ---- values ---- */

static nrl_status hf_read(const void *reader, int64_t i, int64_t begin, int64_t n, float *out)
{
    hf_entry_read(&((const hf *)reader)->list[i], begin, n, out);
    return NRL_OK;
}

static const void *hf_bytes(const void *reader, int64_t i, size_t *size)
{
    return hf_entry_bytes(&((const hf *)reader)->list[i], size);
}

static const nrl_format table = {
    NRL_PLUGIN_PLAIN(NRL_KIND_FORMAT, nrl_format, "hf", "0.1", "Hugging Face model directories of safetensors"),
    .plugin.priority = 100,
    .holds = NRL_HOLDS_MODEL,
    .probe = hf_probe,
    .open = hf_open,
    .close = hf_close,
    .info = hf_info,
    .load = hf_load,
    .n_tensors = hf_n_tensors,
    .tensor = hf_tensor,
    .read = hf_read,
    .bytes = hf_bytes,
    .begin = hf_begin,
    .write = hf_write,
    .finish = hf_finish,
    .abandon = hf_abandon,
    .owns = hf_owns,
    .travelling = hf_travelling,
};
NRL_EXPORT(table)
