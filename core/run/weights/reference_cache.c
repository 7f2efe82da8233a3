/*
 * reference_cache.c - builds, checks and reads the file of cached reference log-probs.
 */
#include "run/weights/reference_cache.h"
#include "base/float_rows.h"
#include "base/json.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum { CACHE_VERSION = 3 };
static const char magic[8] = "nrl-ref";

struct reference_cache {
    float_rows file; /* a row for each example */
};

static void make_path(const reference_cache_setup *s, char *path, size_t room)
{
    char text[512], shards[16] = "", *config = json_write(s->config, 0);
    uint64_t seed = XXH3_64bits(config, strlen(config));
    free(config);
    if (s->shards.fixed) snprintf(shards, sizeof shards, " %d", s->shards.n * mesh_n_batches(s->mesh));
    int n = snprintf(text, sizeof text, "%d %s %s %s %d%s", CACHE_VERSION, dataset_info(s->data)->hash, s->weights_key,
                     s->rounding, s->prompt_targets, shards);
    snprintf(path, room, "%s/ref-%016llx.bin", s->folder,
             (unsigned long long)XXH3_64bits_withSeed(text, (size_t)n, seed));
}

/* Returns NULL if there is no such file or it is damaged, and warns in the second case. */
static reference_cache *map_file(const char *path, int64_t n_examples)
{
    bool damaged;
    reference_cache *c = mem_alloc(sizeof *c);
    if (float_rows_open(path, magic, n_examples, &c->file, &damaged)) return c;
    if (damaged) nrl_warn("%s is damaged and is computed again", path);
    free(c);
    return NULL;
}

/* ---- building ---- */

typedef struct {
    int64_t n_examples;
    int64_t *offsets;
    float *values;
} contents;

/* Counts the rows of each example, in the order of its sides. */
static nrl_status count_rows(const reference_cache_setup *s, contents *c)
{
    const int32_t *tokens;
    const uint8_t *trained;
    c->n_examples = dataset_info(s->data)->n_examples;
    c->offsets = mem_try((size_t)(c->n_examples + 1) * sizeof *c->offsets, "reference log-probs");
    if (!c->offsets) return NRL_ERR_MEMORY;
    for (int64_t b = 0; b < c->n_examples; b++) {
        c->offsets[b + 1] = c->offsets[b];
        for (int side = 0; side < dataset_info(s->data)->n_sides; side++) {
            int64_t n = dataset_segment(s->data, b, side, &tokens, &trained);
            for (int64_t t = 1; t < n; t++)
                c->offsets[b + 1] += trained[t] || s->prompt_targets;
        }
    }
    c->values = mem_try((size_t)c->offsets[c->n_examples] * sizeof *c->values, "reference log-probs");
    return c->values ? NRL_OK : NRL_ERR_MEMORY;
}

/* Copies the values of a batch's rows from their place in the file to `to` (the batch's rows), or, with `to_file`, from
 * the batch's rows to their place. The sides of an example follow each other in the file. */
static nrl_status copy_rows(const int64_t *offsets, int64_t n_examples, const nrl_batch *b, bool to_file,
                            const float *from, float *to)
{
    int64_t row = 0, at = 0;
    for (int64_t s = 0; s < b->n_segments; s++) {
        int64_t begin = row, example = b->segment_sample[s];
        while (row < b->n_rows && b->row_segment[row] == s)
            row++;
        if (example < 0 || example >= n_examples)
            return nrl_fail(NRL_ERR_BUG, "example %lld is not in the cache", (long long)example);
        if (!s || b->segment_example[s] != b->segment_example[s - 1]) at = offsets[example];
        if (at + row - begin > offsets[example + 1])
            return nrl_fail(NRL_ERR_BUG, "example %lld has more target positions than the cache", (long long)example);
        memcpy(to + (to_file ? at : begin), from + (to_file ? begin : at), (size_t)(row - begin) * sizeof *to);
        at += row - begin;
    }
    return NRL_OK;
}

static nrl_status compute_batch(const reference_cache_setup *s, contents *c, nrl_batch *b)
{
    float *logps = mem_try((size_t)b->n_rows * sizeof *logps, "reference log-probs");
    if (!logps) return NRL_ERR_MEMORY;
    nrl_status st = s->compute(s->user, b, logps);
    bool copy = mesh_is_copy(s->mesh); /* the first rank gives them */
    if (st == NRL_OK && !b->is_tail && !copy) st = copy_rows(c->offsets, c->n_examples, b, true, logps, c->values);
    free(logps);
    return st;
}

/* Each value was computed on one rank and is zero on the others: sums are exact. */
static nrl_status join_values(const reference_cache_setup *s, contents *c)
{
    enum { CHUNK = 1 << 16 };
    int32_t ranks = s->mesh ? nrl_mesh_world(s->mesh) : 1;
    int64_t total = c->offsets[c->n_examples];
    if (ranks == 1) return NRL_OK;
    float *all = mem_try((size_t)ranks * CHUNK * sizeof *all, "reference log-probs");
    nrl_status st = all ? NRL_OK : NRL_ERR_MEMORY;
    for (int64_t at = 0; at < total && st == NRL_OK; at += CHUNK) {
        size_t n = (size_t)(total - at < CHUNK ? total - at : CHUNK);
        st = mesh_exchange(s->mesh, "reference log-probs", c->values + at, n * sizeof *all, all);
        for (size_t i = 0; i < n && st == NRL_OK; i++) {
            c->values[at + (int64_t)i] = 0;
            for (int32_t r = 0; r < ranks; r++)
                c->values[at + (int64_t)i] += all[(size_t)r * n + i];
        }
    }
    free(all);
    return st;
}

/* Each example once, in micro-batches that hold the longest one, which training without packing allows too. */
static nrl_status compute_all(const reference_cache_setup *s, contents *c)
{
    data_plan *plan = NULL;
    data_loader *loader = NULL;
    int64_t longest = 0;
    for (int64_t i = 0; i < c->n_examples; i++)
        longest = dataset_example_tokens(s->data, i) > longest ? dataset_example_tokens(s->data, i) : longest;
    data_plan_options o = {.global_batch = 64,
                           .whole = true,
                           .micro_batch_tokens = longest > s->micro_batch_tokens ? longest : s->micro_batch_tokens,
                           .ranks = mesh_n_batches(s->mesh),
                           .rank = mesh_batch(s->mesh),
                           .shards = s->shards};
    nrl_status st = data_plan_create(s->data, &o, &plan);
    if (st == NRL_OK) st = data_loader_create(s->data, plan, 1, s->prompt_targets, &loader);
    int64_t steps = st == NRL_OK ? data_plan_steps_per_epoch(plan) : 0;
    for (int64_t i = 0; i < steps && st == NRL_OK; i++) {
        data_step step;
        if (s->signal && *s->signal)
            st = nrl_fail(NRL_ERR_STOPPED, "stopped by signal %d (%s) while reference log-probs were computed",
                          *s->signal, strsignal(*s->signal));
        if (st == NRL_OK) st = data_loader_step(loader, i, &step);
        for (int64_t m = 0; st == NRL_OK && m < step.n_micro_batches; m++)
            st = compute_batch(s, c, step.micro_batch[m]);
    }
    if (st == NRL_OK) st = join_values(s, c);
    if (loader) data_loader_destroy(loader);
    if (plan) data_plan_destroy(plan);
    return st;
}

nrl_status reference_cache_open(const reference_cache_setup *s, reference_cache **out)
{
    char path[4096];
    contents c = {0};
    int64_t n = dataset_info(s->data)->n_examples;
    int32_t ranks = s->mesh ? nrl_mesh_world(s->mesh) : 1;
    bool *has = mem_alloc((size_t)ranks), everywhere = true;
    nrl_status st = NRL_OK;
    make_path(s, path, sizeof path);
    *out = map_file(path, n);
    has[0] = *out != NULL;
    if (ranks > 1) st = mesh_exchange(s->mesh, "reference file", &(bool){*out != NULL}, sizeof *has, has);
    for (int32_t r = 0; r < ranks; r++)
        everywhere = everywhere && has[r];
    free(has);
    if (st == NRL_OK && everywhere) return NRL_OK;
    reference_cache_close(*out);
    *out = NULL;
    if (st == NRL_OK) st = count_rows(s, &c);
    if (st == NRL_OK) st = compute_all(s, &c);
    if (st == NRL_OK && (!s->mesh || mesh_where(s->mesh)->local_rank == 0))
        st = float_rows_write(path, magic, c.n_examples, c.offsets, c.values); /* one process of each node */
    if (st == NRL_OK && s->mesh) st = mesh_barrier(s->mesh, "reference file");
    free(c.offsets);
    free(c.values);
    NRL_TRY(st);
    *out = map_file(path, n);
    return *out ? NRL_OK : nrl_fail(NRL_ERR_CORRUPT, "'%s' cannot be read back", path);
}

void reference_cache_close(reference_cache *c)
{
    if (!c) return;
    float_rows_close(&c->file);
    free(c);
}

nrl_status reference_cache_fill(const reference_cache *c, const nrl_batch *batch, float *values)
{
    return copy_rows(c->file.offsets, c->file.n_rows, batch, false, c->file.values, values);
}
