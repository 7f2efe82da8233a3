/*
 * clip.c - global gradient norm: the device computes a sum of squares for each slice, the host adds them up.
 */
#include "optim/clip.h"
#include "tensor/device/backend_call.h"
#include <math.h>
#include <stdlib.h>

/* As torch.nn.utils.clip_grad_norm_: a norm of exactly max is scaled by slightly less than 1. */
#define CLIP_EPSILON 1e-6

static nrl_status queue_sums(nrl_ctx *ctx, const nrl_slice *slices, int64_t n, nrl_tensor *sums)
{
    enum { CALLS = 64 };
    nrl_square_sum_args calls[CALLS];
    const int64_t most = ctx_offloads(ctx) ? 1 : CALLS; /* no more gradients than that are in memory */
    double *out = nrl_tensor_mat(sums).data;
    for (int64_t first = 0; first < n; first += most) {
        const int64_t end = first + most < n ? first + most : n;
        for (int64_t i = first; i < end; i++)
            calls[i - first] = (nrl_square_sum_args){
                .size = sizeof *calls, .overwrite = true, .out = out + i, .x = nrl_tensor_mat(slices[i].grad)};
        if (end < n) nrl_tensor_expect(ctx, slices[end].grad, true);
        NRL_TRY(backend_square_sum_all(ctx, calls, end - first));
        for (int64_t i = first; i < end; i++)
            nrl_tensor_expect(ctx, slices[i].grad, false);
    }
    return NRL_OK;
}

nrl_status clip_queue(nrl_ctx *ctx, const nrl_slice *slices, int64_t n, nrl_tensor **sums)
{
    nrl_tensor *t = NULL;
    *sums = NULL;
    if (n <= 0) return NRL_OK;
    ctx_scope_begin(ctx);
    nrl_status st = nrl_tensor_new(ctx, NRL_DTYPE_F64, 1, &n, &t);
    if (st == NRL_OK) st = queue_sums(ctx, slices, n, t);
    if (st == NRL_OK) *sums = tensor_retain(t);
    ctx_scope_end(ctx);
    return st;
}

nrl_status clip_add(nrl_ctx *ctx, nrl_tensor *sums, const bool *counts, double *sum)
{
    *sum = 0;
    if (!sums) return NRL_OK;
    int64_t n = nrl_tensor_numel(sums);
    double *each = mem_alloc((size_t)n * sizeof *each);
    nrl_status st = nrl_tensor_fetch(ctx, sums, each, n);
    tensor_release(ctx, sums);
    for (int64_t i = 0; i < n && st == NRL_OK; i++)
        if (!counts || counts[i]) *sum += each[i];
    free(each);
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
