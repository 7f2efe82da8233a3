/*
 * profile.h - what a profiler of operations and phases implements; libnrl-profiling has one. Without a profiler the
 * calls below cost a test of a pointer.
 */
#ifndef TENSOR_PROFILE_H
#define TENSOR_PROFILE_H
#include "tensor/ctx.h"
#include "tensor/device/backend_call.h"

typedef struct pool_block pool_block;

/* All [step]. */
struct ctx_profiler {
    /* `args` are those of n calls of the operation, one behind the other, which the backend makes together; `flops` are
     * what ctx_settings.flops counts. */
    nrl_status (*op_begin)(nrl_ctx *ctx, backend_op op, const void *args, int64_t n, double flops);
    nrl_status (*copy_begin)(nrl_ctx *ctx, nrl_copy_direction way, size_t bytes);
    nrl_status (*op_end)(nrl_ctx *ctx); /* of an operation or a copy */
    /* ctx_phase_set, ctx_profile_step, ctx_profile_mark and ctx_profile_host */
    nrl_phase (*phase_set)(nrl_ctx *ctx, nrl_phase phase);
    void (*unit)(nrl_ctx *ctx, const char *name, const nrl_batch *batch); /* ctx_profile_unit */
    void (*memory)(nrl_ctx *ctx, const pool_block *b, bool taken); /* a block begins to be used, or no longer is */
    nrl_status (*step)(nrl_ctx *ctx, bool begins);
    double (*mark)(const nrl_ctx *ctx);
    void (*host)(nrl_ctx *ctx, const char *name, double mark);
    void (*close)(nrl_ctx *ctx); /* frees ctx->profile */
};

#endif
