/*
 * evaluator.c - the loss over data.eval: the same batches, sums and weights as training, no gradients.
 * eval_loss is weighted like the training loss (tokens, for a plain loss).
 */
#include "run/step/evaluator.h"
#include "base/clock.h"
#include "checkpoint/checkpoint.h"
#include "run/step/ranks.h"
#include <math.h>
#include <nrl/region.h>
#include <stdlib.h>
#include <string.h>

void evaluator_open(evaluator *ev, const evaluator_parts *parts, size_t n_values)
{
    ev->parts = *parts;
    metrics_open(&ev->metrics, parts->metrics, parts->shards->n, &ev->memory);
    values_open(&ev->values, n_values, &ev->memory);
}

void evaluator_close(evaluator *ev)
{
    arena_free(&ev->names);
    arena_free(&ev->memory);
}

void evaluator_clear(evaluator *ev)
{
    ev->values.n = 0;
    arena_free(&ev->names);
}

/* Adds the values of the micro-batches since the last call to a shard. */
static nrl_status take_sums(evaluator *ev, nrl_tensor **totals, int32_t shard, ranks_evaluation *result)
{
    const work *w = ev->parts.work;
    double value, terms[NRL_MAX_MODEL_TERMS] = {0};
    ev->metrics.shard = shard;
    nrl_status st = metrics_collect(&ev->metrics, w->ctx, false);
    for (uint32_t k = 0; k < w->algorithm->n_terms; k++) {
        if (st == NRL_OK && totals[k]) st = nrl_tensor_fetch(w->ctx, totals[k], &value, 1);
        if (st == NRL_OK && totals[k]) result->sums[k] += value;
        tensor_release(w->ctx, totals[k]);
        totals[k] = NULL;
    }
    nrl_status taken = model_take_terms(w->policy, w->ctx, st == NRL_OK ? terms : NULL);
    for (int32_t k = 0; k < w->policy->n_terms; k++)
        result->sums[NRL_MAX_TERMS + k] += terms[k];
    return st == NRL_OK ? taken : st;
}

/* Sums are taken once, or, so that they are the same on any number of ranks, after each shard of each step. */
static nrl_status evaluate_batches(evaluator *ev, const evaluator_set *set, ranks_evaluation *results)
{
    work *w = ev->parts.work;
    const nrl_algorithm *a = w->algorithm;
    const data_shards *shards = ev->parts.shards;
    nrl_tensor *totals[NRL_MAX_TERMS] = {0};
    nrl_status st = NRL_OK;
    for (int64_t s = 0; s < set->n_steps && st == NRL_OK; s++) {
        const data_step *data;
        st = set->begin(set->user, s, &data);
        for (int64_t m = 0; st == NRL_OK && m < data->n_micro_batches; m++) {
            nrl_batch *batch = data->micro_batch[m];
            const int64_t n = data->n_micro_batches / shards->n, shard = m / n;
            ranks_evaluation *of = &results[shard];
            double counts[NRL_MAX_TERMS] = {0};
            if (!batch->is_tail) {
                a->weight(w->algorithm_self, batch, counts);
                terms_weigh(w->policy, batch, of->weights);
                of->tokens += (double)batch->n_tokens;
            }
            for (uint32_t k = 0; k < a->n_terms; k++)
                of->weights[k] += counts[k];
            st = work_evaluate(w, set->data_set, batch, totals);
            if (st == NRL_OK && shards->fixed && m % n == n - 1) st = take_sums(ev, totals, (int32_t)shard, of);
        }
        set->end(set->user);
    }
    nrl_status taken = take_sums(ev, totals, 0, results);
    return st == NRL_OK ? taken : st;
}

/* Adds the values of a set, and its sums to those of all. */
static nrl_status evaluate_set(evaluator *ev, const evaluator_set *set, double *all_sums, double *all_weights,
                               double *all_tokens)
{
    const evaluator_parts *parts = &ev->parts;
    const work *w = parts->work;
    double loss = 0;
    ranks_evaluation *results = mem_alloc((size_t)parts->shards->n * sizeof *results);
    metrics_begin(&ev->metrics);
    metrics_listen(&ev->metrics); /* values that plugins report here belong to no step */
    run_inside was = hooks_enter(parts->hooks, INSIDE_LOSS);
    nrl_status st = evaluate_batches(ev, set, results);
    hooks_enter(parts->hooks, was);
    metrics_close(&ev->metrics);
    if (st == NRL_OK) st = ranks_end_evaluation(parts->mesh, parts->shards, &ev->metrics, results);
    if (st == NRL_OK) st = ranks_late_metrics(parts->mesh, parts->shards, &ev->metrics, true);
    const ranks_evaluation all = *results;
    const double *sums = all.sums, *weights = all.weights, tokens = all.tokens;
    free(results);
    if (st != NRL_OK) return st;
    for (uint32_t k = 0; k < w->algorithm->n_terms; k++)
        if (weights[k] > 0) loss += sums[k] / weights[k];
    loss += terms_loss(w->policy, sums, weights);
    for (uint32_t k = 0; k < STEP_TERMS; k++) {
        all_sums[k] += sums[k];
        all_weights[k] += weights[k];
    }
    *all_tokens += tokens;
    if (!*set->name) {
        terms_record(w->policy, sums, weights, "eval_", &ev->values, &ev->names);
        values_add_metrics(&ev->values, &ev->metrics, "eval_", &ev->names);
        return NRL_OK;
    }
    const char *prefix = arena_printf(&ev->names, "eval_%s_", set->name);
    values_add(&ev->values, arena_printf(&ev->names, "%sloss", prefix), "nats", loss);
    terms_record(w->policy, sums, weights, prefix, &ev->values, &ev->names);
    values_add_metrics(&ev->values, &ev->metrics, prefix, &ev->names);
    values_add(&ev->values, arena_printf(&ev->names, "%stokens", prefix), "tokens", tokens);
    return NRL_OK;
}

nrl_status evaluator_run(evaluator *ev, const evaluator_set *sets, size_t n_sets, int64_t step)
{
    work *w = ev->parts.work;
    double sums[STEP_TERMS] = {0}, weights[STEP_TERMS] = {0}, tokens = 0, loss = 0;
    double start = clock_seconds();
    if (!n_sets) return nrl_fail(NRL_ERR_CONFIG, "cannot evaluate: data.eval is not set");
    evaluator_clear(ev);
    values_add(&ev->values, "eval_loss", "nats", 0);
    nrl_status st = strategy_begin(w->strategy, STRATEGY_AVERAGE, w->ctx);
    for (size_t i = 0; i < n_sets && st == NRL_OK; i++)
        st = evaluate_set(ev, &sets[i], sums, weights, &tokens);
    st = strategy_end(w->strategy, STRATEGY_AVERAGE, w->ctx, st);
    if (st != NRL_OK) {
        nrl_add_context("evaluation after step %lld", (long long)step);
        return st;
    }
    for (uint32_t k = 0; k < w->algorithm->n_terms; k++)
        if (weights[k] > 0) loss += sums[k] / weights[k];
    loss += terms_loss(w->policy, sums, weights);
    ev->values.list[0].value = loss;
    values_add(&ev->values, "eval_tokens", "tokens", tokens);
    double end = clock_seconds();
    values_add(&ev->values, "eval_seconds", "s", end - start);
    nrl_region_span("steps", "evaluation", start, end);
    return NRL_OK;
}

nrl_status best_judge(run_progress *p, const value_list *values, const char *metric, bool is_largest)
{
    const nrl_value *v = NULL;
    for (size_t i = 0; i < values->n && !v; i++)
        if (!strcmp(values->list[i].name, metric)) v = &values->list[i];
    if (!v)
        return nrl_fail(
            NRL_ERR_CONFIG,
            "checkpoint.metric: '%s' was not reported by the evaluation; expected a metric that has a value "
            "in each evaluation",
            metric);
    bool is_better = !p->best_step || (is_largest ? v->value > p->best : v->value < p->best);
    p->judged = is_largest ? -v->value : v->value;
    p->judged_step = p->step;
    p->evals_without_best++;
    if (!is_better || isnan(v->value)) return NRL_OK;
    p->best = v->value;
    p->best_step = p->step;
    p->evals_without_best = 0;
    return NRL_OK;
}

nrl_status best_resume(run_progress *p, nrl_mesh *mesh, const char *out)
{
    int64_t step;
    double metric;
    int32_t is_there = 1;
    if (!p->best_step) return NRL_OK;
    if (nrl_mesh_rank(mesh) == 0) {
        char *dir = checkpoint_dir_of(out, p->best_step);
        is_there = checkpoint_look(dir, &step, &metric) == NRL_OK;
        if (!is_there)
            nrl_warn("the best step so far, %lld, has no checkpoint in '%s': only later steps are considered "
                     "(checkpoint.export: best)",
                     (long long)p->best_step, out);
        free(dir);
    }
    NRL_TRY(mesh_broadcast(mesh, "best checkpoint", 0, &is_there, sizeof is_there));
    if (is_there) return NRL_OK;
    p->best_step = p->judged_step = 0;
    p->evals_without_best = 0;
    return NRL_OK;
}
