/*
 * evaluate.c - the loss over data.eval: the same batches, sums and weights as training, no gradients.
 * eval_loss is weighted like the training loss (tokens for SFT). Also decides what a new best is and
 * when to stop early.
 */
#include "run/ranks.h"
#include <math.h>
#include <string.h>

static nrl_status evaluate_batches(run *r, double *sums, double *weights, double *tokens)
{
    nrl_tensor *totals[NRL_MAX_TERMS] = {0};
    nrl_status st = NRL_OK;
    int64_t steps = data_plan_steps_per_epoch(r->eval_plan);
    for (int64_t s = 0; s < steps && st == NRL_OK; s++) {
        data_step data;
        st = data_loader_step(r->eval_loader, s, &data);
        for (int64_t m = 0; st == NRL_OK && m < data.n_micro; m++) {
            double w[NRL_MAX_TERMS] = {0};
            if (!data.micro[m]->is_tail) {
                r->algorithm->weight(r->algorithm_self, data.micro[m], w);
                *tokens += (double)data.micro[m]->n_tokens;
            }
            for (uint32_t k = 0; k < r->algorithm->n_terms; k++) weights[k] += w[k];
            st = work_evaluate(&r->work, data.micro[m], totals);
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
    if (!r->eval_data)
        return nrl_fail(NRL_ERR_CONFIG, "nothing to evaluate on: data.eval is not set");
    metrics_reset(r);
    nrl_status st = evaluate_batches(r, sums, weights, &tokens);
    if (st == NRL_OK) st = metrics_collect(r);
    if (st == NRL_OK) st = ranks_end_evaluation(r, sums, weights, &tokens);
    if (st != NRL_OK) {
        nrl_note("evaluation after step %lld", (long long)r->progress.step);
        return st;
    }
    for (uint32_t k = 0; k < r->algorithm->n_terms; k++)
        if (weights[k] > 0) loss += sums[k] / weights[k];
    value_append(r->eval_values, &n, "eval_loss", "nats", loss);
    metrics_append(r, "eval_", r->eval_values, &n, &r->memory);
    value_append(r->eval_values, &n, "eval_tokens", "tokens", tokens);
    value_append(r->eval_values, &n, "eval_seconds", "s", now_seconds() - start);
    r->n_eval_values = n;
    *values = r->eval_values;
    *n_values = n;
    return NRL_OK;
}

nrl_status run_evaluate(run *r, const nrl_value **values, size_t *n_values)
{
    nrl_status st = ranks_agree(r, "evaluate", (uint64_t)r->progress.step);
    if (st == NRL_OK) st = evaluate(r, values, n_values);
    return run_end_call(r, st);
}

static const nrl_value *find(const run *r, const char *name)
{
    for (size_t i = 0; i < r->n_eval_values; i++)
        if (!strcmp(r->eval_values[i].name, name)) return &r->eval_values[i];
    return NULL;
}

/* Smaller is better, except where the name says otherwise. */
bool metric_is_larger_better(const char *name)
{
    return strstr(name, "accurac") || strstr(name, "margin");
}

static bool is_better(const char *metric, double a, double b)
{
    if (isnan(a)) return false;
    return metric_is_larger_better(metric) ? a > b : a < b;
}

/* Remembers a new best; ends the run after early_stop evaluations without one. */
static nrl_status judge(run *r)
{
    const char *metric = r->config.checkpoint.metric;
    const nrl_value *v = find(r, metric);
    if (!v)
        return nrl_fail(NRL_ERR_CONFIG, "checkpoint.metric: '%s' is not a value of the evaluation; "
                                        "it has eval_loss and the algorithm's metrics as eval_NAME",
                        metric);
    run_progress *p = &r->progress;
    if ((!p->best_step && !isnan(v->value)) || is_better(metric, v->value, p->best)) {
        p->best = v->value;
        p->best_step = p->step;
        p->evals_without_best = 0;
        return NRL_OK;
    }
    p->evals_without_best++;
    if (r->config.eval.early_stop && p->evals_without_best >= r->config.eval.early_stop)
        run_stop(r, "no better evaluation (eval.early_stop)");
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
    loggers_write(r, NRL_RECORD_EVAL, values, n, -1);
    NRL_TRY(judge(r));
    if (!r->hooks.eval) return NRL_OK;
    run_event e = {.step = step, .loss = values[0].value, .values = values, .n_values = n};
    return r->hooks.eval(r->hooks.user, r, &e);
}
