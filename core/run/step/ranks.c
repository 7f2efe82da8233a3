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
    memset(c, 0, sizeof *c);
    strncpy(c->call, call, sizeof c->call - 1);
    c->arguments = arguments;
}

static nrl_status check_call(int32_t rank, const rank_call *first, const rank_call *other)
{
    if (!memcmp(first, other, sizeof *first)) return NRL_OK;
    bool same = !strncmp(first->call, other->call, sizeof first->call);
    return nrl_fail(NRL_ERR_CONFIG, "rank 0 called %.23s, rank %d called %.23s%s: every rank must make the same calls",
                    first->call, rank, other->call, same ? " with other arguments" : "");
}

/* The first words of every call, alike in size whatever the call: with them a step begins too. */
typedef struct {
    rank_call call;
    double weights[NRL_MAX_TERMS];
    double lr_override;
    int64_t stop;
} first_words;

/* *all (malloc'd): every rank's words, of one call. */
static nrl_status exchange_first(run *r, const char *call, uint64_t arguments, const double *weights, first_words **all)
{
    int32_t n = nrl_mesh_world(r->mesh);
    first_words own = {.lr_override = r->lr_override, .stop = r->stop_reason != NULL};
    fill_call(&own.call, call, arguments);
    if (weights && mesh_counts(r->mesh)) memcpy(own.weights, weights, sizeof own.weights);
    *all = mem_alloc((size_t)n * sizeof **all);
    nrl_status st = mesh_exchange(r->mesh, call, &own, sizeof own, *all);
    for (int32_t i = 1; i < n && st == NRL_OK; i++)
        st = check_call(i, &(*all)[0].call, &(*all)[i].call);
    return st;
}

nrl_status ranks_agree(run *r, const char *call, uint64_t arguments)
{
    first_words *all;
    if (nrl_mesh_world(r->mesh) == 1) return NRL_OK;
    nrl_status st = exchange_first(r, call, arguments, NULL, &all);
    free(all);
    return st;
}

/* ---- before a step ---- */

/* Rank 0's hooks decide; what another rank's hook wished is undone. */
static void take_decisions(run *r, const first_words *first)
{
    r->lr_override = first->lr_override;
    if (first->stop && !r->stop_reason) r->stop_reason = "rank 0 asked to";
    if (!first->stop) r->stop_reason = NULL;
}

nrl_status ranks_begin_step(run *r, double *weights)
{
    first_words *all;
    int32_t n = nrl_mesh_world(r->mesh);
    if (n == 1) return NRL_OK;
    nrl_status st = exchange_first(r, "step", (uint64_t)r->progress.step, weights, &all);
    memset(weights, 0, NRL_MAX_TERMS * sizeof *weights);
    for (int32_t i = 0; i < n && st == NRL_OK; i++)
        for (int k = 0; k < NRL_MAX_TERMS; k++)
            weights[k] += all[i].weights[k];
    if (st == NRL_OK) take_decisions(r, &all[0]);
    free(all);
    return st;
}

/* ---- after a step or an evaluation ---- */

static void merge_metrics(run *r, const run_metric *theirs)
{
    for (uint32_t i = 0; i < r->n_metrics; i++)
        if (theirs[i].any)
            metric_add(&r->metrics[i], r->algorithm->metrics[i].reduce, theirs[i].value, theirs[i].weight);
}

typedef void (*add_words)(void *total, const void *words);

/* Ranks that share each unit have the same sums and metrics: the first gives them. Of stages the last one alone has
 * any, while all know how many tokens there were. */
static void drop_copies(const run *r, double *sums, double *tokens)
{
    if (mesh_is_copy(r->mesh)) memset(sums, 0, NRL_MAX_TERMS * sizeof *sums);
    if (!mesh_counts(r->mesh)) *tokens = 0;
}

/* Each rank gives `size` bytes of words, zero at the start of the total, and its metrics. */
static nrl_status exchange(run *r, const char *what, void *words, size_t size, add_words add)
{
    int32_t n = nrl_mesh_world(r->mesh);
    size_t metrics = r->n_metrics * sizeof *r->metrics, record = size + metrics;
    char *own = mem_alloc(record * ((size_t)n + 1)), *all = own + record;
    memcpy(own, words, size);
    if (!mesh_is_copy(r->mesh)) memcpy(own + size, r->metrics, metrics);
    nrl_status st = mesh_exchange(r->mesh, what, own, record, all);
    if (st == NRL_OK) {
        memset(words, 0, size);
        metrics_reset(r);
        for (int32_t i = 0; i < n; i++) {
            add(words, all + (size_t)i * record);
            merge_metrics(r, (const run_metric *)(const void *)(all + (size_t)i * record + size));
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
    for (int k = 0; k < NRL_MAX_TERMS; k++)
        t->sums[k] += w->sums[k];
    t->tokens += w->tokens;
    t->flops += w->flops;
    t->square_sum += w->square_sum;
    t->finite += w->finite;
    t->norm = isnan(w->norm) ? w->norm : fmax(t->norm, w->norm);
    t->signal = fmax(t->signal, w->signal);
    t->save_now = fmax(t->save_now, w->save_now);
}

nrl_status ranks_end_step(run *r, ranks_result *result)
{
    if (nrl_mesh_world(r->mesh) == 1) return NRL_OK;
    drop_copies(r, result->sums, &result->tokens);
    NRL_TRY(exchange(r, "results of the step", result, sizeof *result, add_result));
    result->finite = result->finite == nrl_mesh_world(r->mesh);
    return NRL_OK;
}

typedef struct {
    double sums[NRL_MAX_TERMS], weights[NRL_MAX_TERMS], tokens;
} evaluation_words;

static void add_evaluation(void *total, const void *words)
{
    evaluation_words *t = total;
    const evaluation_words *w = words;
    for (int k = 0; k < NRL_MAX_TERMS; k++) {
        t->sums[k] += w->sums[k];
        t->weights[k] += w->weights[k];
    }
    t->tokens += w->tokens;
}

nrl_status ranks_end_evaluation(run *r, double *sums, double *weights, double *tokens)
{
    if (nrl_mesh_world(r->mesh) == 1) return NRL_OK;
    evaluation_words w = {.tokens = *tokens};
    memcpy(w.sums, sums, sizeof w.sums);
    if (mesh_counts(r->mesh)) memcpy(w.weights, weights, sizeof w.weights);
    drop_copies(r, w.sums, &w.tokens);
    NRL_TRY(exchange(r, "results of the evaluation", &w, sizeof w, add_evaluation));
    memcpy(sums, w.sums, sizeof w.sums);
    memcpy(weights, w.weights, sizeof w.weights);
    *tokens = w.tokens;
    return NRL_OK;
}
