/*
 * clip.c - global gradient norm: one square sum a slice on the device, added up on the host.
 */
#include "optim/clip.h"
#include "tensor/backend_call.h"
#include <math.h>
#include <stdlib.h>

/* As torch.nn.utils.clip_grad_norm_: a norm of exactly max is scaled by slightly less than 1. */
#define CLIP_EPSILON 1e-6

static nrl_status queue_sums(nrl_ctx *ctx, const nrl_slice *slices, int64_t n, nrl_tensor *sums)
{
    double *out = nrl_tensor_mat(sums).data;
    for (int64_t i = 0; i < n; i++) {
        nrl_square_sum_args args = {.size = sizeof args,
                                    .fresh = true,
                                    .out = out + i,
                                    .x = nrl_tensor_mat(slices[i].grad)};
        NRL_TRY(backend_square_sum(ctx, &args));
    }
    return NRL_OK;
}

static nrl_status measure(nrl_ctx *ctx, const nrl_slice *slices, int64_t n, double *host)
{
    nrl_tensor *sums;
    ctx_scope_begin(ctx);
    nrl_status st = nrl_tensor_new(ctx, NRL_DTYPE_F64, 1, &n, &sums);
    if (st == NRL_OK) st = queue_sums(ctx, slices, n, sums);
    if (st == NRL_OK) st = nrl_tensor_fetch(ctx, sums, host, n);
    ctx_scope_end(ctx);
    return st;
}

nrl_status clip_square_sum(nrl_ctx *ctx, const nrl_slice *slices, int64_t n, const bool *counts,
                           double *sum)
{
    double *sums = mem_alloc((size_t)(n > 0 ? n : 1) * sizeof *sums);
    nrl_status st = n > 0 ? measure(ctx, slices, n, sums) : NRL_OK;
    *sum = 0;
    for (int64_t i = 0; i < n; i++)
        if (!counts || counts[i]) *sum += sums[i];
    free(sums);
    return st;
}

clip_result clip_decide(double square_sum, double scale, double max_norm)
{
    clip_result r = {.norm = sqrt(square_sum) * fabs(scale)};
    double factor = max_norm > 0 ? max_norm / (r.norm + CLIP_EPSILON) : 1;
    r.finite = isfinite(r.norm);
    r.scale = r.finite ? scale * fmin(1, factor) : 0;
    return r;
}
