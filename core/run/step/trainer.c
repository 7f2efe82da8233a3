/*
 * trainer.c - opens, prepares and closes a trainer; step.c has the step.
 */
#include "run/step/trainer.h"
#include "base/clock.h"
#include "mesh/layout.h"
#include <math.h>
#include <stdlib.h>

void trainer_open(trainer *tr, const trainer_parts *parts)
{
    tr->parts = *parts;
    tr->lr_override = -1;
    tr->save_at = INFINITY;
    loss_scale_start(&tr->loss_scale, &parts->config->scale);
    metrics_open(&tr->metrics, parts->metrics, parts->shards->n, &tr->memory);
    metrics_open(&tr->unrecorded, parts->metrics, parts->shards->n, &tr->memory);
    values_open(&tr->values, parts->metrics->n + NRL_MAX_MODEL_TERMS, &tr->memory);
}

nrl_status trainer_ready(trainer *tr, const reference *second)
{
    const trainer_parts *parts = &tr->parts;
    const int32_t rank = nrl_mesh_rank(parts->mesh), n_shards = parts->shards->n;
    tr->reference = second;
    NRL_TRY(slices_build(parts->work->policy, parts->mesh, parts->updates->n_states, &tr->memory, &tr->slices,
                         &tr->n_slices));
    if (parts->config->precision == CONFIG_FP8)
        NRL_TRY(fp8_scaling_open(&tr->fp8, &parts->config->fp8_scaling, parts->work->policy, parts->work->ctx,
                                 &tr->memory));
    tr->slice_counts = arena_alloc(&tr->memory, (size_t)(tr->n_slices + 1) * sizeof *tr->slice_counts);
    tr->weights = arena_alloc(&tr->memory, (size_t)n_shards * sizeof *tr->weights);
    tr->results = arena_alloc(&tr->memory, 2 * (size_t)n_shards * sizeof *tr->results);
    for (int64_t i = 0; i < tr->n_slices; i++)
        tr->slice_counts[i] = layout_owner(parts->mesh, rank, tr->slices[i].param) == rank;
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
    arena_free(&tr->memory);
}

void trainer_stop(trainer *tr, const char *reason)
{
    if (tr->stop_reason) return;
    tr->stop_reason = arena_strdup(&tr->memory, reason ? reason : "asked to");
    telemetry_log(tr->parts.telemetry, "stopping after step %lld: %s", (long long)tr->progress.step, tr->stop_reason);
}

void trainer_set_script_state(trainer *tr, const char *json)
{
    char *copy = json ? mem_strdup(json) : NULL;
    free(tr->script_state);
    tr->script_state = copy;
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
