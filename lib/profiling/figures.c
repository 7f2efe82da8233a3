/*
 * figures.c - nrl/profile.h: what `nrl bench`, `nrl profile` and scripts read about the speed and memory of a run.
 */
#include "profiling/internal.h"
#include "run/internal.h"
#include "tensor/device/profile.h"
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

nrl_status nrl_run_profile(run *r, bool on)
{
    if (on) return nrl_run_profile_begin(r, 0);
    NRL_TRY(hooks_check_call(&r->hooks, "begin or end a profile"));
    ctx_profile(r->session.ctx, false);
    return NRL_OK;
}

nrl_status nrl_run_profile_begin(run *r, unsigned what)
{
    NRL_TRY(hooks_check_call(&r->hooks, "begin or end a profile"));
    ctx_profile_begin(r->session.ctx, what, r->trainer.progress.step);
    return NRL_OK;
}

nrl_status nrl_run_profile_end_step(run *r)
{
    nrl_ctx *ctx = r->session.ctx;
    return ctx->profiler ? ctx->profiler->step(ctx, false) : NRL_OK;
}

static int by_seconds_down(const void *a, const void *b)
{
    double x = ((const nrl_op_time *)a)->seconds, y = ((const nrl_op_time *)b)->seconds;
    return x < y ? 1 : x > y ? -1 : 0;
}

nrl_status nrl_run_op_times(const nrl_run *r, unsigned by, nrl_op_time **rows, size_t *n, size_t *stride)
{
    int count;
    NRL_TRY(hooks_check_call(&r->hooks, "read a profile"));
    NRL_TRY(ctx_profile_read(r->session.ctx));
    *rows = ctx_profile_rows(r->session.ctx, by, &count);
    *n = (size_t)count;
    if (stride) *stride = sizeof **rows;
    if (*n) qsort(*rows, *n, sizeof **rows, by_seconds_down);
    return NRL_OK;
}

nrl_status nrl_run_region_times(const nrl_run *r, nrl_region_time **rows, size_t *n, size_t *stride)
{
    const profile *p = r->session.ctx->profile;
    NRL_TRY(hooks_check_call(&r->hooks, "read a profile"));
    NRL_TRY(ctx_profile_read(r->session.ctx));
    *n = p ? (size_t)p->n_regions : 0;
    *rows = mem_alloc((*n + 1) * sizeof **rows);
    if (*n) memcpy(*rows, p->regions, *n * sizeof **rows);
    if (stride) *stride = sizeof **rows;
    return NRL_OK;
}

/* The tensors of a profile; NULL, with an error, if it does not record them. */
static memory_log *memory_of(const run *r)
{
    const profile *p = r->session.ctx->profile;
    if (p && p->memory) return p->memory;
    (void)nrl_fail(NRL_ERR_CONFIG, "cannot read the memory of a profile: it was started without NRL_PROFILE_MEMORY");
    return NULL;
}

nrl_status nrl_run_memory_sites(const nrl_run *r, nrl_memory_site **rows, size_t *n, size_t *stride, int64_t *peak,
                                int64_t *held)
{
    memory_log *m = memory_of(r);
    if (!m) return NRL_ERR_CONFIG;
    memory_sites(m, rows, n);
    memory_peak(m, held, peak);
    if (stride) *stride = sizeof **rows;
    return NRL_OK;
}

nrl_status nrl_run_memory_batches(const nrl_run *r, nrl_memory_batch **rows, size_t *n, size_t *stride)
{
    const memory_log *m = memory_of(r);
    if (!m) return NRL_ERR_CONFIG;
    memory_batches(m, rows, n);
    if (stride) *stride = sizeof **rows;
    return NRL_OK;
}

static nrl_status phase_times(run *r, nrl_phase_times *fill)
{
    int32_t n = nrl_mesh_world(r->session.mesh);
    NRL_TRY(ctx_profile_read(r->session.ctx));
    ctx_profile_phases(r->session.ctx, fill);
    double *all = mem_alloc((size_t)n * sizeof fill->seconds);
    nrl_status st = NRL_OK;
    if (n > 1)
        st = mesh_exchange(r->session.mesh, "phases", fill->seconds, sizeof fill->seconds, all);
    else
        memcpy(all, fill->seconds, sizeof fill->seconds);
    for (int p = 0; p < NRL_PHASE_COUNT; p++) {
        fill->least[p] = fill->most[p] = all[p];
        for (int32_t i = 1; i < n; i++) {
            double s = all[i * NRL_PHASE_COUNT + p];
            if (s < fill->least[p]) fill->least[p] = s;
            if (s > fill->most[p]) fill->most[p] = s;
        }
    }
    free(all);
    return st;
}

nrl_status nrl_run_phase_times(nrl_run *r, nrl_phase_times *fill)
{
    nrl_phase_times times = {.size = fill->size};
    NRL_TRY(phase_times(r, &times));
    memcpy(fill, &times, fill->size < sizeof times ? fill->size : sizeof times);
    return NRL_OK;
}

nrl_status nrl_run_all_gather(run *r, const double *own, size_t n, double *all)
{
    if (nrl_mesh_world(r->session.mesh) > 1)
        return mesh_exchange(r->session.mesh, "numbers of a bench", own, n * sizeof *own, all);
    memcpy(all, own, n * sizeof *own);
    return NRL_OK;
}

static bool can_watch(const run *r)
{
    return r->session.device.table.watch_begin && r->session.device.table.watch_end;
}

nrl_status nrl_run_watch_begin(run *r)
{
    return can_watch(r) ? r->session.device.table.watch_begin(r->session.device.self) : NRL_OK;
}

nrl_status nrl_run_watch_end(run *r, nrl_value values[NRL_MAX_WATCHED], size_t *n)
{
    *n = 0;
    return can_watch(r) ? r->session.device.table.watch_end(r->session.device.self, values, NRL_MAX_WATCHED, n)
                        : NRL_OK;
}

static void info_of(const run *r, nrl_run_info *fill)
{
    const storage *s = &r->session.storage;
    struct rusage usage;
    ctx_memory memory;
    getrusage(RUSAGE_SELF, &usage);
    ctx_memory_use(r->session.ctx, &memory);
    const int64_t width = (int64_t)nrl_dtype_size(ctx_settings_of(r->session.ctx)->compute);
    int64_t trained = r->session.env.evaluate_only ? 0 : model_n_trained(r->session.model);
    *fill = (nrl_run_info){.parameters = model_n_params(r->session.model),
                           .trained_parameters = trained,
                           .trained_bytes = trained * width,
                           .frozen_bytes = (model_n_params(r->session.model) - trained) * width,
                           .weight_bytes = s->work_bytes,
                           .master_bytes = s->master_bytes,
                           .gradient_bytes = s->gradient_bytes,
                           .optimizer_bytes = s->state_bytes,
                           .reference_bytes = r->session.reference ? reference_bytes(r->session.reference) : 0,
                           .strategy_bytes = r->session.strategy.plan.buffer_bytes,
                           .used_peak_bytes = (int64_t)memory.peak_bytes,
                           .reserved_peak_bytes = (int64_t)memory.reserved_peak_bytes,
                           .peak_rss = usage.ru_maxrss * 1024,
                           .ranks = nrl_mesh_world(r->session.mesh),
                           .on_device = !r->session.device.info.host_memory,
                           .clock = ctx_profile_clock(r->session.ctx),
                           .device = &r->session.device.info,
                           .offloaded_bytes = session_offloaded_bytes(&r->session)};
    int64_t held = s->work_bytes + s->master_bytes + s->gradient_bytes + s->state_bytes + fill->reference_bytes +
                   fill->strategy_bytes - fill->offloaded_bytes;
    fill->activation_bytes = fill->used_peak_bytes > held ? fill->used_peak_bytes - held : 0;
}

void nrl_run_info_fill(const nrl_run *r, nrl_run_info *fill)
{
    nrl_run_info info;
    uint32_t size = fill->size;
    info_of(r, &info);
    info.size = size;
    memcpy(fill, &info, size < sizeof info ? size : sizeof info);
}
