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

nrl_status clip_norm(nrl_ctx *ctx, const nrl_slice *slices, int64_t n, double scale,
                     double max_norm, const clip_reduce *reduce, clip_result *out)
{
    double total = 0, *sums = calloc((size_t)(n > 0 ? n : 1), sizeof *sums);
    if (!sums) return nrl_fail(NRL_ERR_MEMORY, "out of memory for %lld norms", (long long)n);
    nrl_status st = n > 0 ? measure(ctx, slices, n, sums) : NRL_OK;
    if (st == NRL_OK && reduce) st = reduce->all_reduce(reduce->user, slices, sums, n);
    for (int64_t i = 0; i < n; i++)
        total += sums[i];
    free(sums);
    NRL_TRY(st);
    out->norm = sqrt(total) * fabs(scale);
    out->finite = isfinite(out->norm);
    double factor = max_norm > 0 ? max_norm / (out->norm + CLIP_EPSILON) : 1;
    out->scale = out->finite ? scale * fmin(1, factor) : 0;
    return NRL_OK;
}
