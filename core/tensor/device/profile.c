/*
 * profile.c - calls of a profiler, see profile.h.
 */
#include "tensor/device/profile.h"
#include "tensor/internal.h"

void ctx_set_profiler(nrl_ctx *ctx, const ctx_profiler *profiler, profile *p)
{
    if (ctx->profiler) ctx->profiler->close(ctx);
    ctx->profiler = profiler;
    ctx->profile = p;
}

nrl_phase ctx_phase_set(nrl_ctx *ctx, nrl_phase phase)
{
    return ctx->profiler ? ctx->profiler->phase_set(ctx, phase) : NRL_PHASE_NONE;
}

void ctx_profile_unit(nrl_ctx *ctx, const char *name, const nrl_batch *batch)
{
    if (ctx->profiler) ctx->profiler->unit(ctx, name, batch);
}

nrl_status ctx_profile_step(nrl_ctx *ctx, bool begins)
{
    return ctx->profiler ? ctx->profiler->step(ctx, begins) : NRL_OK;
}

double ctx_profile_mark(const nrl_ctx *ctx)
{
    return ctx->profiler ? ctx->profiler->mark(ctx) : 0;
}

void ctx_profile_host(nrl_ctx *ctx, const char *name, double mark)
{
    if (ctx->profiler) ctx->profiler->host(ctx, name, mark);
}
