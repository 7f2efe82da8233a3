/*
 * evaluate.c - the loss over data.eval: the same batches, sums and weights as training, no gradients.
 * eval_loss is weighted like the training loss (tokens, for a plain loss). Also decides what a new best is and
 * when to stop early.
 */
#include "run/step/ranks.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

static nrl_status evaluate_batches(run *r, double *sums, double *weights, double *tokens)
{
    nrl_tensor *totals[NRL_MAX_TERMS] = {0};
    nrl_status st = NRL_OK;
    int64_t steps = data_plan_steps_per_epoch(r->eval_plan);
    for (int64_t s = 0; s < steps && st == NRL_OK; s++) {
        data_step data;
        st = data_loader_step(r->eval_loader, s, &data);
        for (int64_t m = 0; st == NRL_OK && m < data.n_micro_batches; m++) {
            double w[NRL_MAX_TERMS] = {0};
            if (!data.micro_batch[m]->is_tail) {
                r->algorithm->weight(r->algorithm_self, data.micro_batch[m], w);
                *tokens += (double)data.micro_batch[m]->n_tokens;
            }
            for (uint32_t k = 0; k < r->algorithm->n_terms; k++)
                weights[k] += w[k];
            st = work_evaluate(&r->work, data.micro_batch[m], totals);
        }
    }
    for (uint32_t k = 0; k < r->algorithm->n_terms; k++) {
        if (st == NRL_OK && totals[k]) st = nrl_tensor_fetch(r->ctx, totals[k], &sums[k], 1);
        tensor_release(r->ctx, totals[k]);
    }
    return st;
}

static nrl_status evaluate(run *r, const nrl_value **values, size_t *n_values)
{
    double sums[NRL_MAX_TERMS] = {0}, weights[NRL_MAX_TERMS] = {0}, tokens = 0, loss = 0;
    double start = now_seconds();
    size_t n = 0;
    if (!r->eval_data) return nrl_fail(NRL_ERR_CONFIG, "nothing to evaluate on: data.eval is not set");
    metrics_reset(r);
    nrl_status st = strategy_average_begin(&r->strategy, r->ctx);
    run_inside was = run_enter(r, INSIDE_LOSS);
    if (st == NRL_OK) st = evaluate_batches(r, sums, weights, &tokens);
    run_enter(r, was);
    st = strategy_average_end(&r->strategy, r->ctx, st);
    if (st == NRL_OK) st = metrics_collect(r);
    if (st == NRL_OK) st = ranks_end_evaluation(r, sums, weights, &tokens);
    if (st != NRL_OK) {
        nrl_add_context("evaluation after step %lld", (long long)r->progress.step);
        return st;
    }
    for (uint32_t k = 0; k < r->algorithm->n_terms; k++)
        if (weights[k] > 0) loss += sums[k] / weights[k];
    value_append(r, r->eval_values, &n, "eval_loss", "nats", loss);
    metrics_append(r, "eval_", r->eval_values, &n, &r->memory);
    value_append(r, r->eval_values, &n, "eval_tokens", "tokens", tokens);
    value_append(r, r->eval_values, &n, "eval_seconds", "s", now_seconds() - start);
    r->n_eval_values = n;
    *values = r->eval_values;
    *n_values = n;
    return NRL_OK;
}

/* The file takes the place of data.eval for this one time. */
static nrl_status evaluate_file(run *r, const char *file, const nrl_value **values, size_t *n_values)
{
    dataset *data = r->eval_data;
    data_plan *plan = r->eval_plan;
    data_loader *loader = r->eval_loader;
    if (r->reference && r->reference_options.reference == REFERENCE_CACHED)
        return nrl_fail(NRL_ERR_CONFIG,
                        "cannot evaluate '%s': algorithm.reference: cached knows data.train and data.eval "
                        "alone\nhint: algorithm.reference: online computes any file's",
                        file);
    r->eval_data = NULL;
    r->eval_plan = NULL;
    r->eval_loader = NULL;
    nrl_status st = open_eval_file(r, file);
    if (st == NRL_OK) st = evaluate(r, values, n_values);
    close_eval(r);
    r->eval_data = data;
    r->eval_plan = plan;
    r->eval_loader = loader;
    return st;
}

nrl_status nrl_run_evaluate(run *r, const char *file, const nrl_value **values, size_t *n_values)
{
    NRL_TRY(run_begin_call(r, "evaluate"));
    telemetry_use(&r->telemetry);
    uint64_t what = (uint64_t)r->progress.step ^ (file ? XXH3_64bits(file, strlen(file)) : 0);
    nrl_status st = ranks_agree(r, "evaluate", what);
    if (st == NRL_OK) st = file ? evaluate_file(r, file, values, n_values) : evaluate(r, values, n_values);
    return run_end_call(r, st);
}

static const nrl_value *find(const run *r, const char *name)
{
    for (size_t i = 0; i < r->n_eval_values; i++)
        if (!strcmp(r->eval_values[i].name, name)) return &r->eval_values[i];
    return NULL;
}

static bool is_better(const run *r, double value)
{
    const run_progress *p = &r->progress;
    if (isnan(value)) return false;
    if (!p->best_step) return true;
    return r->best_is_largest ? value > p->best : value < p->best;
}

/* Remembers a new best; ends the run after early_stop evaluations without one. */
static nrl_status judge(run *r)
{
    const char *metric = r->config.checkpoint.metric;
    const nrl_value *v = find(r, metric);
    if (!v)
        return nrl_fail(NRL_ERR_CONFIG,
                        "checkpoint.metric: '%s' is not a value of the evaluation; "
                        "it has eval_loss and the algorithm's metrics as eval_NAME",
                        metric);
    run_progress *p = &r->progress;
    if (is_better(r, v->value)) {
        p->best = v->value;
        p->best_step = p->step;
        p->evals_without_best = 0;
        return NRL_OK;
    }
    p->evals_without_best++;
    if (r->config.eval.early_stop && p->evals_without_best >= r->config.eval.early_stop)
        nrl_run_stop(r, "no better evaluation (eval.early_stop)");
    return NRL_OK;
}

nrl_status best_resume(run *r)
{
    run_progress *p = &r->progress;
    int64_t step;
    double metric;
    int32_t is_there = 1;
    if (!p->best_step || r->config.checkpoint.export != CONFIG_EXPORT_BEST) return NRL_OK;
    if (run_is_rank0(r)) {
        char *dir = checkpoint_dir_of(r->config.out, p->best_step);
        is_there = checkpoint_look(dir, &step, &metric) == NRL_OK;
        if (!is_there)
            nrl_warn(
                "the best step so far, %lld, has no checkpoint in '%s': the best is looked for among the steps to come "
                "(checkpoint.export: best)",
                (long long)p->best_step, r->config.out);
        free(dir);
    }
    NRL_TRY(mesh_broadcast(r->mesh, "best checkpoint", 0, &is_there, sizeof is_there));
    if (is_there) return NRL_OK;
    p->best_step = 0;
    p->evals_without_best = 0;
    return NRL_OK;
}

nrl_status evaluate_due(run *r)
{
    int64_t every = r->config.eval.every, step = r->progress.step;
    if (!r->eval_data || !every) return NRL_OK;
    if (step % every && step != r->total_steps) return NRL_OK;
    const nrl_value *values;
    size_t n;
    NRL_TRY(evaluate(r, &values, &n));
    telemetry_record(&r->telemetry, NRL_RECORD_EVAL, step, -1, values, n);
    NRL_TRY(judge(r));
    nrl_run_event e = {.kind = NRL_EVENT_EVAL, .step = step, .loss = values[0].value, .values = values, .n_values = n};
    return run_emit(r, INSIDE_EVAL_HOOK, &e);
}
