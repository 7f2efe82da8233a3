/*
 * ranks.c - the exchanges of ranks.h.
 */
#include "run/step/ranks.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- agreement on the call ---- */

typedef struct {
    char call[24];
    uint64_t arguments;
} rank_call;

static void fill_call(rank_call *c, const char *call, uint64_t arguments)
{
    *c = (rank_call){.arguments = arguments};
    strncpy(c->call, call, sizeof c->call - 1);
}

static nrl_status check_call(int32_t rank, const rank_call *first, const rank_call *other)
{
    if (!memcmp(first, other, sizeof *first)) return NRL_OK;
    bool same = !strncmp(first->call, other->call, sizeof first->call);
    return nrl_fail(NRL_ERR_CONFIG, "rank 0 called %.23s, rank %d called %.23s%s: every rank must make the same calls",
                    first->call, rank, other->call, same ? " with other arguments" : "");
}

/* The record with which every call begins, also a step; its size is the same for all calls. */
typedef struct {
    rank_call call;
    double weights[STEP_TERMS];
    double lr_override;
    int64_t stop;
} first_words;

/* Gathers the words own[n_own] of one call from every rank; *all is malloc'd. */
static nrl_status exchange_first(nrl_mesh *mesh, const first_words *own, int32_t n_own, first_words **all)
{
    int32_t n = nrl_mesh_world(mesh) * n_own;
    *all = mem_alloc((size_t)n * sizeof **all);
    nrl_status st = mesh_exchange(mesh, own->call.call, own, (size_t)n_own * sizeof *own, *all);
    for (int32_t i = n_own; i < n && st == NRL_OK; i += n_own)
        st = check_call(i / n_own, &(*all)[0].call, &(*all)[i].call);
    return st;
}

/* Returns where the i-th shard is in the records of all ranks, each of which has those of its shards. */
static int32_t nth_shard(const nrl_mesh *mesh, const data_shards *s, int32_t i)
{
    return s->strided ? i % nrl_mesh_world(mesh) * s->n + i / nrl_mesh_world(mesh) : i;
}

nrl_status ranks_agree(nrl_mesh *mesh, const data_shards *shards, const char *call, uint64_t arguments)
{
    first_words *own = mem_alloc((size_t)shards->n * sizeof *own), *all = NULL;
    fill_call(&own->call, call, arguments);
    nrl_status st = exchange_first(mesh, own, shards->n, &all);
    free(own);
    free(all);
    return st;
}

/* ---- before a step ---- */

nrl_status ranks_begin_step(nrl_mesh *mesh, const data_shards *shards, int64_t step, const step_weights *own,
                            double *weights, double *lr_override, const char **stop_reason)
{
    int32_t n = nrl_mesh_world(mesh) * shards->n;
    first_words *words = mem_alloc((size_t)shards->n * sizeof *words), *all = NULL;
    for (int32_t j = 0; j < shards->n; j++) {
        words[j] = (first_words){.lr_override = *lr_override, .stop = *stop_reason != NULL};
        fill_call(&words[j].call, "step", (uint64_t)step);
        if (mesh_counts(mesh)) memcpy(words[j].weights, own[j], sizeof *own);
    }
    nrl_status st = exchange_first(mesh, words, shards->n, &all);
    for (int32_t i = 0; i < n && st == NRL_OK; i++)
        for (int k = 0; k < STEP_TERMS; k++)
            weights[k] += all[nth_shard(mesh, shards, i)].weights[k];
    if (st == NRL_OK) { /* the hooks of rank 0 decide; requests by hooks of other ranks are undone */
        *lr_override = all->lr_override;
        if (all->stop && !*stop_reason) *stop_reason = "rank 0 asked to";
        if (!all->stop) *stop_reason = NULL;
    }
    free(words);
    free(all);
    return st;
}

/* ---- after a step or an evaluation ---- */

typedef void (*add_words)(void *total, const void *words);

/* Ranks that share each unit have the same sums and metrics, and the first of them sends these. Of several stages only
 * the last one has them, but all stages know the number of tokens. */
static void drop_copies(const nrl_mesh *mesh, double *sums, double *tokens)
{
    if (mesh_copies_loss(mesh)) memset(sums, 0, NRL_MAX_TERMS * sizeof *sums);
    if (mesh_copies_terms(mesh)) memset(sums + NRL_MAX_TERMS, 0, NRL_MAX_MODEL_TERMS * sizeof *sums);
    if (!mesh_counts(mesh)) *tokens = 0;
}

/* Each rank gives `size` bytes of words a shard, zero at the start of the total, and its metrics. */
static nrl_status exchange(nrl_mesh *mesh, const data_shards *shards, metric_set *m, const char *what, void *words,
                           size_t size, add_words add)
{
    const size_t n_own = (size_t)shards->n, n_rows = m->rows->n, metrics_size = n_rows * sizeof *m->list;
    const size_t record = size + metrics_size, n = (size_t)nrl_mesh_world(mesh) * n_own;
    char *own = mem_alloc(record * (n + n_own)), *all = own + n_own * record;
    for (size_t j = 0; j < n_own; j++) {
        metric_sum *list = m->list + j * n_rows;
        for (uint32_t k = 0; k < n_rows; k++)
            if (m->rows->list[k].of_batch && mesh_copies_loss(mesh)) list[k] = (metric_sum){0};
        if (size) memcpy(own + j * record, (char *)words + j * size, size);
        memcpy(own + j * record + size, list, metrics_size);
    }
    nrl_status st = mesh_exchange(mesh, what, own, n_own * record, all);
    if (st == NRL_OK) {
        if (size) memset(words, 0, size);
        memset(m->list, 0, metrics_size);
        for (size_t i = 0; i < n; i++) {
            const char *from = all + (size_t)nth_shard(mesh, shards, (int32_t)i) * record;
            if (add) add(words, from);
            const metric_sum *theirs = (const metric_sum *)(const void *)(from + size);
            for (uint32_t k = 0; k < n_rows; k++)
                if (theirs[k].any)
                    metric_add(&m->list[k], m->rows->list[k].row->reduce, theirs[k].value, theirs[k].weight);
        }
    }
    free(own);
    return st;
}

/* `finite` counts the ranks that were, until ranks_end_step compares. */
static void add_result(void *total, const void *words)
{
    ranks_result *t = total;
    const ranks_result *w = words;
    for (int k = 0; k < STEP_TERMS; k++)
        t->sums[k] += w->sums[k];
    t->tokens += w->tokens;
    t->flops += w->flops;
    t->square_sum += w->square_sum;
    exact_merge(&t->squares, &w->squares);
    t->finite += w->finite;
    t->norm = isnan(w->norm) ? w->norm : fmax(t->norm, w->norm);
    t->signal = fmax(t->signal, w->signal);
    t->save_now = fmax(t->save_now, w->save_now);
    t->lacks = fmax(t->lacks, w->lacks);
}

nrl_status ranks_end_step(nrl_mesh *mesh, const data_shards *shards, metric_set *m, ranks_result *result)
{
    for (int32_t j = 0; j < shards->n; j++)
        drop_copies(mesh, result[j].sums, &result[j].tokens);
    NRL_TRY(exchange(mesh, shards, m, "results of the step", result, sizeof *result, add_result));
    result->finite = result->finite == nrl_mesh_world(mesh);
    return NRL_OK;
}

nrl_status ranks_late_metrics(nrl_mesh *mesh, const data_shards *shards, metric_set *m, bool algorithm_reports)
{
    const uint32_t n = m->rows->n;
    if (n == (algorithm_reports ? 0 : m->rows->n_algorithm)) return NRL_OK;
    metric_set late = {.rows = m->rows, .list = mem_alloc((size_t)shards->n * n * sizeof *late.list)};
    metrics_take(m, late.list);
    nrl_status st = exchange(mesh, shards, &late, "late metrics of the step", NULL, 0, NULL);
    for (uint32_t k = 0; k < n && st == NRL_OK; k++)
        if (late.list[k].any)
            metric_add(&m->list[k], m->rows->list[k].row->reduce, late.list[k].value, late.list[k].weight);
    free(late.list);
    return st;
}

static void add_evaluation(void *total, const void *words)
{
    ranks_evaluation *t = total;
    const ranks_evaluation *w = words;
    for (int k = 0; k < STEP_TERMS; k++) {
        t->sums[k] += w->sums[k];
        t->weights[k] += w->weights[k];
    }
    t->tokens += w->tokens;
}

nrl_status ranks_end_evaluation(nrl_mesh *mesh, const data_shards *shards, metric_set *m, ranks_evaluation *result)
{
    for (int32_t j = 0; j < shards->n; j++) {
        if (!mesh_counts(mesh)) memset(result[j].weights, 0, sizeof result[j].weights);
        drop_copies(mesh, result[j].sums, &result[j].tokens);
    }
    return exchange(mesh, shards, m, "results of the evaluation", result, sizeof *result, add_evaluation);
}
