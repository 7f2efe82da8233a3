/*
 * measure.c - the time of each unit's passes in the first steps of a run, for `costs`. A pass at the edge of a stage
 * may begin with a wait for its input, so the shortest time of all micro-batches counts.
 */
#include "pipeline.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static bool is_measured(const pipeline *p, const nrl_action *actions, int64_t i)
{
    const nrl_action *a = nrl_action_at(actions, i);
    return p->times && p->n_steps < p->options.measure &&
           nrl_action_at(actions, a->n_actions - 1)->pass != NRL_PASS_FORWARD; /* else an evaluation */
}

/* Seconds, after all that was begun has ended. */
static nrl_status now(const pipeline *p, nrl_ctx *ctx, double *seconds)
{
    double unused;
    struct timespec t;
    NRL_TRY(nrl_tensor_fetch(ctx, p->probe, &unused, 1));
    clock_gettime(CLOCK_MONOTONIC, &t);
    *seconds = (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
    return NRL_OK;
}

nrl_status pipeline_measure_bind(pipeline *p, nrl_ctx *ctx)
{
    const size_t n = (size_t)p->plan.n_units * (NRL_PASS_BACKWARD_WEIGHT + 1);
    if (!p->options.measure || !p->plan.train) return NRL_OK;
    p->times = malloc(n * sizeof *p->times);
    if (!p->times) return nrl_fail(NRL_ERR_MEMORY, "out of memory for strategy 'pipeline'");
    for (size_t i = 0; i < n; i++)
        p->times[i] = INFINITY;
    return nrl_tensor_persistent(ctx, NRL_DTYPE_F32, 1, true, &p->probe);
}

void pipeline_measure_unbind(pipeline *p, nrl_ctx *ctx)
{
    nrl_tensor_free(ctx, p->probe);
    p->probe = NULL;
    free(p->times);
    p->times = NULL;
}

nrl_status pipeline_enter(void *self, nrl_ctx *ctx, const nrl_action *actions, int64_t i)
{
    pipeline *p = self;
    return is_measured(p, actions, i) ? now(p, ctx, &p->entered) : NRL_OK;
}

nrl_status pipeline_leave(void *self, nrl_ctx *ctx, const nrl_action *actions, int64_t i)
{
    pipeline *p = self;
    const nrl_action *a = nrl_action_at(actions, i);
    double left;
    if (!is_measured(p, actions, i)) return NRL_OK;
    NRL_TRY(now(p, ctx, &left));
    double *best = &p->times[a->unit * (NRL_PASS_BACKWARD_WEIGHT + 1) + (int32_t)a->pass];
    if (left - p->entered < *best) *best = left - p->entered;
    return NRL_OK;
}

/* "1.5 + 2" */
static void put_stages(FILE *to, const double *ms, const int32_t *first, int32_t n_stages)
{
    for (int32_t s = 0; s < n_stages; s++) {
        double sum = 0;
        for (int32_t u = first[s]; u < first[s + 1]; u++)
            sum += ms[u];
        fprintf(to, "%s%.3g", s ? " + " : "", sum);
    }
}

static nrl_status print(const pipeline *p, const double *ms)
{
    const int32_t n_stages = p->n * p->shape.n_chunks;
    char *text = NULL;
    size_t size;
    int32_t *balanced = calloc((size_t)n_stages + 1, sizeof *balanced);
    FILE *to = balanced ? open_memstream(&text, &size) : NULL;
    if (to) {
        pipeline_balance(ms, p->plan.n_units, n_stages, balanced);
        fputs("costs: [", to);
        for (int32_t u = 0; u < p->plan.n_units; u++)
            fprintf(to, "%s%.3g", u ? ", " : "", ms[u]);
        fputs("] were measured, in ms per micro-batch; stages take ", to);
        put_stages(to, ms, p->first, n_stages);
        fputs(", and with these costs ", to);
        put_stages(to, ms, balanced, n_stages);
    }
    const bool whole = to && !fclose(to);
    if (whole) nrl_warn("pipeline: %s", text);
    free(balanced);
    free(text);
    return whole ? NRL_OK : nrl_fail(NRL_ERR_MEMORY, "out of memory for strategy 'pipeline'");
}

nrl_status pipeline_measure_finish(pipeline *p, nrl_ctx *ctx)
{
    if (!p->times || p->n_steps++ != p->options.measure - 1) return NRL_OK;
    const int64_t n = p->plan.n_units;
    float *own = calloc((size_t)n, sizeof *own);
    double *ms = calloc((size_t)n, sizeof *ms);
    nrl_tensor *all = NULL;
    nrl_work *work = NULL;
    nrl_status st = own && ms ? NRL_OK : nrl_fail(NRL_ERR_MEMORY, "out of memory for strategy 'pipeline'");
    for (int64_t u = 0; st == NRL_OK && u < n; u++)
        for (int64_t pass = 0; pass <= NRL_PASS_BACKWARD_WEIGHT; pass++) {
            const double seconds = p->times[u * (NRL_PASS_BACKWARD_WEIGHT + 1) + pass];
            if (!isinf(seconds)) own[u] += (float)(1e3 * seconds);
        }
    if (st == NRL_OK) st = nrl_tensor_from_host(ctx, NRL_DTYPE_F32, 1, &n, own, &all);
    nrl_comm_call call = {
        .size = sizeof call, .reduce = NRL_REDUCE_OP_SUM, .receive = all, .what = "measured costs of units"};
    if (st == NRL_OK) st = nrl_comm_all_reduce(p->comm, ctx, &call, &work);
    if (st == NRL_OK) st = nrl_work_wait(&work, ctx);
    if (st == NRL_OK) st = nrl_tensor_fetch(ctx, all, ms, n);
    if (st == NRL_OK && !p->plan.quiet) st = print(p, ms);
    free(own);
    free(ms);
    return st;
}
