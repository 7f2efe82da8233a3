/*
 * profile.h - what a profiler of operations and phases implements; libnrl-profiling has one. Without a profiler the
 * calls below cost a test of a pointer.
 */
#ifndef TENSOR_PROFILE_H
#define TENSOR_PROFILE_H
#include "tensor/ctx.h"
#include "tensor/device/op_work.h"

/* All [step]. */
struct ctx_profiler {
    nrl_status (*op_begin)(nrl_ctx *ctx, const char *name, op_work w); /* `name` is a string literal */
    nrl_status (*op_end)(nrl_ctx *ctx);
    /* ctx_phase_set, ctx_profile_step, ctx_profile_mark and ctx_profile_host */
    nrl_phase (*phase_set)(nrl_ctx *ctx, nrl_phase phase);
    nrl_status (*step)(nrl_ctx *ctx, bool begins);
    double (*mark)(const nrl_ctx *ctx);
    void (*host)(nrl_ctx *ctx, const char *name, double mark);
    void (*close)(nrl_ctx *ctx); /* frees ctx->profile */
};

#endif
