/*
 * weights.c - opens the weights of a path through their format and finds tensors by name.
 */
#include "model/weights.h"
#include "base/json.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- opening ---- */

static nrl_status weights_open_in(const nrl_format *format, const nrl_format_host *host, const char *path,
                                  uint32_t flags, weight_files **out)
{
    void *reader;
    nrl_status st = format->open(path, flags, host, &reader);
    if (st != NRL_OK) return st;
    weight_files *w = mem_alloc(sizeof *w);
    w->format = format;
    w->reader = reader;
    w->info.size = sizeof w->info;
    format->info(reader, &w->info);
    *out = w;
    return NRL_OK;
}

nrl_status weights_open(const format_scope *scope, uint32_t holds, const char *path, weight_files **out)
{
    const nrl_format *format;
    const nrl_format_host host = format_host(scope);
    NRL_TRY(format_find(scope, holds, path, &format));
    return weights_open_in(format, &host, path, 0, out);
}

nrl_status weights_open_as(const nrl_format *format, const char *path, weight_files **out)
{
    const nrl_format_host host = format_host(NULL);
    return weights_open_in(format, &host, path, 0, out);
}

nrl_status weights_read_config(const format_scope *scope, const char *path, arena *a, const nrl_node **out)
{
    const nrl_format *format;
    const nrl_format_host host = format_host(scope);
    weight_files *w;
    NRL_TRY(format_find(scope, NRL_HOLDS_MODEL, path, &format));
    NRL_TRY(weights_open_in(format, &host, path, NRL_OPEN_CONFIG, &w));
    nrl_status st = weights_config(w, a, out);
    weights_close(w);
    return st;
}

void weights_close(weight_files *w)
{
    if (!w) return;
    w->format->close(w->reader);
    free(w->tensors);
    free(w->index);
    free(w);
}

nrl_status weights_config(const weight_files *w, arena *a, const nrl_node **out)
{
    nrl_node *config;
    const char *text = w->info.config ? w->info.config : "{}", *place = w->info.config_path;
    NRL_TRY(json_parse(a, arena_strdup(a, place ? place : w->info.path), text, w->info.config ? w->info.config_size : 2,
                       &config));
    *out = config;
    return NRL_OK;
}

/* ---- the list ---- */

typedef struct {
    nrl_format_tensor tensor;
    int64_t index;
} weights_entry;

static int weights_by_name(const void *x, const void *y)
{
    return strcmp(((const weights_entry *)x)->tensor.name, ((const weights_entry *)y)->tensor.name);
}

/* Checks what the plugin reports before the core multiplies the shape or compares the name. */
static nrl_status weights_check_tensor(const weight_files *w, const nrl_format_tensor *t)
{
    int64_t n = 1;
    bool wrong = !t->name || !t->type || !t->file || t->n_dims < 0 || t->n_dims > NRL_FORMAT_MAX_DIMS;
    for (int i = 0; !wrong && i < t->n_dims; i++)
        wrong = t->dims[i] < 0 || __builtin_mul_overflow(n, t->dims[i], &n);
    if (!wrong) return NRL_OK;
    return nrl_fail(NRL_ERR_PLUGIN, "format '%s': tensor '%.200s' of %s lacks a name, a type, a file or a valid shape",
                    w->format->plugin.name, t->name ? t->name : "?", w->info.path);
}

nrl_status weights_load(weight_files *w)
{
    nrl_status st = w->format->load(w->reader);
    if (st != NRL_OK) return st;
    w->n = w->format->n_tensors(w->reader);
    weights_entry *all = mem_try((size_t)(w->n + 1) * sizeof *all, "the list of tensors");
    nrl_format_tensor *tensors = mem_try((size_t)(w->n + 1) * sizeof *tensors, "the list of tensors");
    int64_t *index = mem_try((size_t)(w->n + 1) * sizeof *index, "the list of tensors");
    w->tensors = tensors;
    w->index = index;
    if (!all || !tensors || !index) st = NRL_ERR_MEMORY;
    for (int64_t i = 0; i < w->n && st == NRL_OK; i++) {
        all[i] = (weights_entry){.tensor.size = sizeof all[i].tensor, .index = i};
        w->format->tensor(w->reader, i, &all[i].tensor);
        st = weights_check_tensor(w, &all[i].tensor);
    }
    if (st == NRL_OK) qsort(all, (size_t)w->n, sizeof *all, weights_by_name);
    for (int64_t i = 0; i < w->n && st == NRL_OK; i++) {
        tensors[i] = all[i].tensor;
        index[i] = all[i].index;
        if (i && !strcmp(tensors[i - 1].name, tensors[i].name))
            st = nrl_fail(NRL_ERR_DATA, "tensor '%s' is both in %s and in %s", tensors[i].name, tensors[i - 1].file,
                          tensors[i].file);
    }
    free(all);
    return st;
}

const nrl_format_tensor *weights_find(const weight_files *w, const char *name)
{
    int64_t low = 0, high = w->n;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        int order = strcmp(name, w->tensors[middle].name);
        if (!order) return &w->tensors[middle];
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

static const nrl_format_tensor *weights_find_spelled(const weight_files *w, const model *m, const char *name)
{
    const nrl_format_tensor *t = weights_find(w, name);
    size_t n = m->optional_prefix ? strlen(m->optional_prefix) : 0;
    if (!t && n && !strncmp(name, m->optional_prefix, n)) t = weights_find(w, name + n);
    return t;
}

const char *weights_tied_name(const model *m)
{
    static const char name[] = "lm_head.weight";
    return strcmp(m->head.weight->name, name) ? name : "";
}

const nrl_format_tensor *weights_part(const weight_files *w, const model *m, const nrl_part *part)
{
    const nrl_format_tensor *t = weights_find_spelled(w, m, part->name);
    if (!t && part == m->head.weight->parts) t = weights_find(w, weights_tied_name(m));
    return t;
}

void weights_file_dims(const nrl_part *part, int64_t dims[NRL_MAX_DIMS])
{
    for (int i = 0; i < part->n_dims; i++)
        dims[i] = part->dims[part->transposed ? part->n_dims - 1 - i : i];
}

bool weights_has_first_rows(const weight_files *w, const nrl_part *part, const nrl_format_tensor *t)
{
    bool is = w->rows && t->n_dims == part->n_dims && t->n_dims > 0 && !part->transposed && t->dims[0] == w->rows &&
              part->dims[0] > w->rows;
    for (int i = 1; i < part->n_dims && is; i++)
        is = t->dims[i] == part->dims[i];
    return is;
}

int64_t weights_numel(const nrl_format_tensor *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->n_dims; i++)
        n *= t->dims[i];
    return n;
}

void weights_shape_text(int n_dims, const int64_t *dims, char *text, size_t size)
{
    size_t used = (size_t)snprintf(text, size, "[");
    for (int i = 0; i < n_dims && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, i ? ", %lld" : "%lld", (long long)dims[i]);
    if (used < size) snprintf(text + used, size - used, "]");
}
