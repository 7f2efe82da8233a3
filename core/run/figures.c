/*
 * figures.c - what `nrl bench` and `nrl profile` ask a run.
 */
#include "run/internal.h"
#include <stdlib.h>
#include <sys/resource.h>

void run_profile(run *r, bool on)
{
    ctx_profile(r->ctx, on);
}

static int by_seconds_down(const void *a, const void *b)
{
    double x = ((const run_op_time *)a)->seconds, y = ((const run_op_time *)b)->seconds;
    return x < y ? 1 : x > y ? -1 : 0;
}

run_op_time *run_profile_rows(const run *r, int *n)
{
    const ctx_op_time *rows = ctx_profile_rows(r->ctx, n);
    run_op_time *out = mem_alloc((size_t)*n * sizeof *out);
    for (int i = 0; i < *n; i++)
        out[i] = (run_op_time){rows[i].name, rows[i].seconds, rows[i].flops, rows[i].bytes, rows[i].calls};
    qsort(out, (size_t)*n, sizeof *out, by_seconds_down);
    return out;
}

void run_figures_fill(const run *r, run_figures *fill)
{
    const storage *s = &r->storage;
    int64_t held = s->work_bytes + s->master_bytes + s->gradient_bytes + s->state_bytes;
    struct rusage usage;
    ctx_memory memory;
    getrusage(RUSAGE_SELF, &usage);
    ctx_memory_use(r->ctx, &memory);
    *fill = (run_figures){.parameters = model_n_params(r->model),
                          .weight_bytes = s->work_bytes,
                          .master_bytes = s->master_bytes,
                          .gradient_bytes = s->gradient_bytes,
                          .optimizer_bytes = s->state_bytes,
                          .activation_bytes = (int64_t)memory.peak_bytes - held,
                          .peak_rss = usage.ru_maxrss * 1024,
                          .device = r->device.facts};
}
