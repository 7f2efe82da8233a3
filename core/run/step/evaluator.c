/*
 * evaluator.c - the loss over data.eval: the same batches, sums and weights as training, no gradients.
 * eval_loss is weighted like the training loss (tokens, for a plain loss).
 */
#include "run/step/evaluator.h"
#include "base/clock.h"
#include "checkpoint/checkpoint.h"
#include "run/step/ranks.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

void evaluator_open(evaluator *ev, trainer *tr)
{
    session *se = tr->session;
    *ev = (evaluator){.session = se, .trainer = tr};
}

static nrl_status evaluate_batches(session *se, const session_data *set, double *sums, double *weights, double *tokens)
{
    const nrl_algorithm *a = se->algorithm;
    nrl_tensor *totals[NRL_MAX_TERMS] = {0};
    nrl_status st = NRL_OK;
    int64_t steps = data_plan_steps_per_epoch(set->plan);
    for (int64_t s = 0; s < steps && st == NRL_OK; s++) {
        data_step data;
        st = data_loader_step(set->loader, s, &data);
        for (int64_t m = 0; st == NRL_OK && m < data.n_micro_batches; m++) {
            double w[NRL_MAX_TERMS] = {0};
            if (!data.micro_batch[m]->is_tail) {
                a->weight(se->algorithm_self, data.micro_batch[m], w);
                terms_weigh(se->model, data.micro_batch[m], weights);
                *tokens += (double)data.micro_batch[m]->n_tokens;
            }
            for (uint32_t k = 0; k < a->n_terms; k++)
                weights[k] += w[k];
            st = work_evaluate(&se->work, data.micro_batch[m], totals);
        }
    }
    for (uint32_t k = 0; k < a->n_terms; k++) {
        if (st == NRL_OK && totals[k]) st = nrl_tensor_fetch(se->ctx, totals[k], &sums[k], 1);
        tensor_release(se->ctx, totals[k]);
    }
    nrl_status taken = model_take_terms(se->model, se->ctx, st == NRL_OK ? sums + NRL_MAX_TERMS : NULL);
    return st == NRL_OK ? taken : st;
}

/* Adds the values of a set, and its sums to those of all. */
static nrl_status evaluate_set(evaluator *ev, const session_data *set, double *all_sums, double *all_weights,
                               double *all_tokens)
{
    session *se = ev->session;
    double sums[STEP_TERMS] = {0}, weights[STEP_TERMS] = {0}, tokens = 0, loss = 0;
    metrics_begin(&ev->metrics);
    run_inside was = hooks_enter(se->hooks, INSIDE_LOSS);
    nrl_status st = evaluate_batches(se, set, sums, weights, &tokens);
    hooks_enter(se->hooks, was);
    if (st == NRL_OK) st = metrics_collect(&ev->metrics, se->ctx, false);
    if (st == NRL_OK) st = ranks_end_evaluation(se->mesh, &ev->metrics, sums, weights, &tokens);
    if (st != NRL_OK) return st;
    for (uint32_t k = 0; k < se->algorithm->n_terms; k++)
        if (weights[k] > 0) loss += sums[k] / weights[k];
    loss += terms_loss(se->model, sums, weights);
    for (uint32_t k = 0; k < STEP_TERMS; k++) {
        all_sums[k] += sums[k];
        all_weights[k] += weights[k];
    }
    *all_tokens += tokens;
    if (!*set->name) {
        terms_record(se->model, sums, weights, "eval_", &ev->values, &se->memory);
        values_add_metrics(&ev->values, &ev->metrics, "eval_", &se->memory);
        return NRL_OK;
    }
    const char *prefix = arena_printf(&se->memory, "eval_%s_", set->name);
    values_add(&ev->values, arena_printf(&se->memory, "%sloss", prefix), "nats", loss);
    terms_record(se->model, sums, weights, prefix, &ev->values, &se->memory);
    values_add_metrics(&ev->values, &ev->metrics, prefix, &se->memory);
    values_add(&ev->values, arena_printf(&se->memory, "%stokens", prefix), "tokens", tokens);
    return NRL_OK;
}

static nrl_status evaluate(evaluator *ev, const session_data *sets, size_t n_sets)
{
    session *se = ev->session;
    double sums[STEP_TERMS] = {0}, weights[STEP_TERMS] = {0}, tokens = 0, loss = 0;
    double start = clock_seconds();
    if (!n_sets) return nrl_fail(NRL_ERR_CONFIG, "nothing to evaluate on: data.eval is not set");
    ev->values.n = 0;
    values_add(&ev->values, "eval_loss", "nats", 0);
    nrl_status st = strategy_average_begin(&se->strategy, se->ctx);
    for (size_t i = 0; i < n_sets && st == NRL_OK; i++)
        st = evaluate_set(ev, &sets[i], sums, weights, &tokens);
    st = strategy_average_end(&se->strategy, se->ctx, st);
    if (st != NRL_OK) {
        nrl_add_context("evaluation after step %lld", (long long)ev->trainer->progress.step);
        return st;
    }
    for (uint32_t k = 0; k < se->algorithm->n_terms; k++)
        if (weights[k] > 0) loss += sums[k] / weights[k];
    loss += terms_loss(se->model, sums, weights);
    ev->values.list[0].value = loss;
    values_add(&ev->values, "eval_tokens", "tokens", tokens);
    values_add(&ev->values, "eval_seconds", "s", clock_seconds() - start);
    return NRL_OK;
}

nrl_status evaluator_run(evaluator *ev, const char *file)
{
    session *se = ev->session;
    session_data set;
    if (!file) return evaluate(ev, se->evals, se->n_evals);
    if (se->reference && se->reference_options.reference == REFERENCE_CACHED)
        return nrl_fail(NRL_ERR_CONFIG,
                        "cannot evaluate '%s': algorithm.reference: cached knows data.train and data.eval "
                        "alone\nhint: algorithm.reference: online computes any file's",
                        file);
    NRL_TRY(open_eval_file(se, file, &set));
    nrl_status st = evaluate(ev, &set, 1);
    close_data(&set);
    return st;
}

/* Remembers a new best; ends the run after early_stop evaluations without one. */
static nrl_status judge(evaluator *ev)
{
    const session *se = ev->session;
    const char *metric = se->config.checkpoint.metric;
    const int64_t early_stop = se->config.eval.early_stop;
    run_progress *p = &ev->trainer->progress;
    const nrl_value *v = NULL;
    for (size_t i = 0; i < ev->values.n && !v; i++)
        if (!strcmp(ev->values.list[i].name, metric)) v = &ev->values.list[i];
    if (!v)
        return nrl_fail(NRL_ERR_CONFIG,
                        "checkpoint.metric: '%s' is not a value of the evaluation; "
                        "it has eval_loss and the algorithm's metrics as eval_NAME",
                        metric);
    bool is_better = !p->best_step || (se->best_is_largest ? v->value > p->best : v->value < p->best);
    if (is_better && !isnan(v->value)) {
        p->best = v->value;
        p->best_step = p->step;
        p->evals_without_best = 0;
        return NRL_OK;
    }
    p->evals_without_best++;
    if (early_stop && p->evals_without_best >= early_stop)
        trainer_stop(ev->trainer, "no better evaluation (eval.early_stop)");
    return NRL_OK;
}

nrl_status evaluator_resume(evaluator *ev)
{
    const session *se = ev->session;
    run_progress *p = &ev->trainer->progress;
    int64_t step;
    double metric;
    int32_t is_there = 1;
    if (!p->best_step || se->config.checkpoint.export != CONFIG_EXPORT_BEST) return NRL_OK;
    if (session_is_rank0(se)) {
        char *dir = checkpoint_dir_of(se->config.out, p->best_step);
        is_there = checkpoint_look(dir, &step, &metric) == NRL_OK;
        if (!is_there)
            nrl_warn(
                "the best step so far, %lld, has no checkpoint in '%s': the best is looked for among the steps to come "
                "(checkpoint.export: best)",
                (long long)p->best_step, se->config.out);
        free(dir);
    }
    NRL_TRY(mesh_broadcast(se->mesh, "best checkpoint", 0, &is_there, sizeof is_there));
    if (is_there) return NRL_OK;
    p->best_step = 0;
    p->evals_without_best = 0;
    return NRL_OK;
}

nrl_status evaluator_run_due(evaluator *ev)
{
    const session *se = ev->session;
    int64_t every = se->config.eval.every, step = ev->trainer->progress.step;
    if (!se->n_evals || !every) return NRL_OK;
    if (step % every && step != se->total_steps) return NRL_OK;
    NRL_TRY(evaluate(ev, se->evals, se->n_evals));
    const value_list *v = &ev->values;
    telemetry_record(se->telemetry, NRL_RECORD_EVAL, step, -1, v->list, v->n);
    NRL_TRY(judge(ev));
    nrl_run_event e = {
        .kind = NRL_EVENT_EVAL, .step = step, .loss = v->list[0].value, .values = v->list, .n_values = v->n};
    return hooks_emit(se->hooks, INSIDE_EVAL_HOOK, &e);
}
