/*
 * trainer.c - what a trainer has before its first step and after its last; the step is step.c's.
 */
#include "run/step/trainer.h"
#include "base/clock.h"
#include "mesh/layout.h"
#include <math.h>
#include <stdlib.h>

void trainer_open(trainer *tr, session *se)
{
    *tr = (trainer){.session = se, .lr_override = -1, .save_at = INFINITY};
    loss_scale_start(&tr->loss_scale, &se->config.train.scale);
}

nrl_status trainer_open_schedule(trainer *tr)
{
    const session *se = tr->session;
    nrl_status st =
        schedule_open(&tr->schedule, se->schedule, se->schedule_options, se->optimizer_options.lr, se->total_steps);
    if (st != NRL_OK) nrl_add_context("%s: schedule", nrl_node_place(se->config.schedule.at));
    return st;
}

nrl_status trainer_open_slices(trainer *tr)
{
    const session *se = tr->session;
    const int32_t rank = nrl_mesh_rank(se->mesh);
    NRL_TRY(slices_build(se->model, se->mesh, se->updates.n_states, &tr->slice_memory, &tr->slices, &tr->n_slices));
    tr->slice_counts = arena_alloc(&tr->slice_memory, (size_t)(tr->n_slices + 1) * sizeof *tr->slice_counts);
    tr->weights = arena_alloc(&tr->slice_memory, (size_t)se->shards.n * sizeof *tr->weights);
    tr->results = arena_alloc(&tr->slice_memory, 2 * (size_t)se->shards.n * sizeof *tr->results);
    for (int64_t i = 0; i < tr->n_slices; i++)
        tr->slice_counts[i] = layout_owner(se->mesh, rank, tr->slices[i].param) == rank;
    return NRL_OK;
}

void trainer_begin(trainer *tr)
{
    tr->resumed = tr->progress;
    tr->started = clock_seconds();
}

void trainer_close(trainer *tr)
{
    schedule_close(&tr->schedule);
    metrics_close(&tr->metrics);
    free(tr->script_state);
    arena_free(&tr->slice_memory);
}

void trainer_stop(trainer *tr, const char *reason)
{
    if (tr->stop_reason) return;
    tr->stop_reason = arena_strdup(&tr->session->memory, reason ? reason : "asked to");
    telemetry_say(tr->session->telemetry, "stopping after step %lld: %s", (long long)tr->progress.step,
                  tr->stop_reason);
}

void trainer_set_script_state(trainer *tr, const char *json)
{
    char *copy = json ? mem_strdup(json) : NULL;
    free(tr->script_state);
    tr->script_state = copy;
}

/* ---- rollouts ---- */

nrl_status rollout_begin(nrl_rollout *r)
{
    const session *se = r->session;
    if (!se->algorithm->rollout) return NRL_OK;
    run_inside was = hooks_enter(se->hooks, INSIDE_LOSS);
    nrl_status st = se->algorithm->rollout(se->algorithm_self, r);
    hooks_enter(se->hooks, was);
    if (st != NRL_OK) nrl_add_context("rollout of '%s'", se->algorithm->plugin.name);
    return st;
}

void rollout_end(nrl_rollout *r)
{
    for (int64_t m = 0; r->batches && m < r->data->n_micro_batches; m++)
        batch_free(r->batches[m]);
    arena_free(&r->memory);
}

/* ---- terms of the model ---- */

void terms_weigh(const model *m, const nrl_batch *batch, double *weights)
{
    for (int32_t i = 0; i < m->n_terms; i++)
        weights[NRL_MAX_TERMS + i] += nrl_batch_count(batch, "tokens");
}

double terms_loss(const model *m, const double *sums, const double *weights)
{
    double loss = 0;
    for (int32_t k = NRL_MAX_TERMS; k < NRL_MAX_TERMS + m->n_terms; k++)
        if (weights[k] > 0) loss += m->terms[k - NRL_MAX_TERMS].coefficient * sums[k] / weights[k];
    return loss;
}

void terms_record(const model *m, const double *sums, const double *weights, const char *prefix, value_list *v,
                  arena *names)
{
    for (int32_t k = NRL_MAX_TERMS; k < NRL_MAX_TERMS + m->n_terms; k++) {
        const char *name = m->terms[k - NRL_MAX_TERMS].name;
        if (*prefix) name = arena_printf(names, "%s%s", prefix, name);
        if (weights[k] > 0) values_add(v, name, "nats", sums[k] / weights[k]);
    }
}
