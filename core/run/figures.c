/*
 * figures.c - what `nrl bench`, `nrl profile` and scripts ask a run about its speed and memory.
 */
#include "run/internal.h"
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

nrl_status run_profile(run *r, bool on)
{
    NRL_TRY(run_begin_call(r, "begin or end a profile"));
    ctx_profile(r->ctx, on);
    return NRL_OK;
}

static int by_seconds_down(const void *a, const void *b)
{
    double x = ((const ctx_op_time *)a)->seconds, y = ((const ctx_op_time *)b)->seconds;
    return x < y ? 1 : x > y ? -1 : 0;
}

nrl_status run_profile_rows(const run *r, unsigned by, ctx_op_time **rows, int *n)
{
    NRL_TRY(run_begin_call(r, "read a profile"));
    NRL_TRY(ctx_profile_read(r->ctx));
    *rows = ctx_profile_rows(r->ctx, by, n);
    if (*n) qsort(*rows, (size_t)*n, sizeof **rows, by_seconds_down);
    return NRL_OK;
}

nrl_status run_phases_fill(run *r, run_phases *fill)
{
    int32_t n = nrl_mesh_world(r->mesh);
    NRL_TRY(ctx_profile_read(r->ctx));
    ctx_profile_phases(r->ctx, &fill->own);
    const double *own = fill->own.seconds;
    double *all = mem_alloc((size_t)n * sizeof fill->own.seconds);
    nrl_status st = NRL_OK;
    if (n > 1) st = mesh_exchange(r->mesh, "phases", own, sizeof fill->own.seconds, all);
    else memcpy(all, own, sizeof fill->own.seconds);
    for (int p = 0; p < CTX_PHASES; p++) {
        fill->least[p] = fill->most[p] = all[p];
        for (int32_t i = 1; i < n; i++) {
            double s = all[i * CTX_PHASES + p];
            if (s < fill->least[p]) fill->least[p] = s;
            if (s > fill->most[p]) fill->most[p] = s;
        }
    }
    free(all);
    return st;
}

static bool can_watch(const run *r)
{
    return r->device.table.watch_begin && r->device.table.watch_end;
}

nrl_status run_watch_begin(run *r)
{
    return can_watch(r) ? r->device.table.watch_begin(r->device.self) : NRL_OK;
}

nrl_status run_watch_end(run *r, nrl_value values[RUN_MAX_FIGURES], size_t *n)
{
    *n = 0;
    return can_watch(r) ? r->device.table.watch_end(r->device.self, values, RUN_MAX_FIGURES, n) : NRL_OK;
}

void run_figures_fill(const run *r, run_figures *fill)
{
    const storage *s = &r->storage;
    struct rusage usage;
    ctx_memory memory;
    getrusage(RUSAGE_SELF, &usage);
    ctx_memory_use(r->ctx, &memory);
    const int64_t width = (int64_t)nrl_dtype_size(run_compute(r));
    int64_t trained = r->env.evaluate_only ? 0 : model_n_trained(r->model);
    *fill = (run_figures){.parameters = model_n_params(r->model),
                          .trained_parameters = trained,
                          .trained_bytes = trained * width,
                          .frozen_bytes = (model_n_params(r->model) - trained) * width,
                          .weight_bytes = s->work_bytes,
                          .master_bytes = s->master_bytes,
                          .gradient_bytes = s->gradient_bytes,
                          .optimizer_bytes = s->state_bytes,
                          .reference_bytes = r->reference ? reference_bytes(r->reference) : 0,
                          .strategy_bytes = r->strategy.plan.buffer_bytes,
                          .used_peak_bytes = (int64_t)memory.peak_bytes,
                          .reserved_peak_bytes = (int64_t)memory.reserved_peak_bytes,
                          .peak_rss = usage.ru_maxrss * 1024,
                          .ranks = nrl_mesh_world(r->mesh),
                          .on_device = !r->device.facts.host_memory,
                          .clock = ctx_profile_clock(r->ctx),
                          .device = r->device.facts};
    int64_t held = s->work_bytes + s->master_bytes + s->gradient_bytes + s->state_bytes + fill->reference_bytes +
                   fill->strategy_bytes;
    fill->activation_bytes = fill->used_peak_bytes > held ? fill->used_peak_bytes - held : 0;
}
