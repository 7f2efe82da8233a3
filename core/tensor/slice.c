/*
 * slice.c - updates of optimizers on local slices, in one fused operation of the backend, and quantized states.
 */
#include "base/quantize.h"
#include "tensor/internal.h"
#include <math.h>
#include <nrl/optimizer.h>

/* Checks and converts a tensor of the slice. dtype NONE accepts any dtype. */
static nrl_status slice_mat(const nrl_slice *s, const char *what, const nrl_tensor *t, nrl_dtype dtype, nrl_mat *out)
{
    if (!t || t->numel != s->n || !tensor_is_contiguous(t) || (dtype && t->dtype != dtype))
        return nrl_fail(NRL_ERR_BUG, "%s of '%s' is %s%s, expected %lld elements%s%s", what, s->param->name,
                        t ? nrl_dtype_name(t->dtype) : "missing", t ? tensor_shape(t).text : "", (long long)s->n,
                        dtype ? " of " : "", dtype ? nrl_dtype_name(dtype) : "");
    *out = (nrl_mat){t->data, (uint32_t)t->dtype, 0, 1, s->n, s->n};
    return NRL_OK;
}

static nrl_status adamw_args(const nrl_ctx *ctx, const nrl_slice *slice, const nrl_adamw *adamw,
                             const nrl_step_params *step, nrl_adamw_args *out)
{
    nrl_adamw_args a = {.size = sizeof a,
                        .lr = step->lr,
                        .grad_scale = step->grad_scale,
                        .beta1 = adamw->beta1,
                        .beta2 = adamw->beta2,
                        .eps = adamw->eps,
                        .weight_decay = slice->decay ? adamw->weight_decay : 0,
                        .correction1 = 1 - pow(adamw->beta1, (double)step->step),
                        .correction2 = 1 - pow(adamw->beta2, (double)step->step),
                        .decision = ctx->settings.decision};
    bool narrow = slice->grad && slice->grad->dtype == NRL_DTYPE_BF16;
    if (slice->low) { /* the master weights are the two halves of split16 */
        NRL_TRY(slice_mat(slice, "upper half", slice->work, NRL_DTYPE_BF16, &a.work));
        NRL_TRY(slice_mat(slice, "lower half", slice->low, NRL_DTYPE_U16, &a.low));
    } else {
        NRL_TRY(slice_mat(slice, "master", slice->master, NRL_DTYPE_F32, &a.master));
        if (slice->work) NRL_TRY(slice_mat(slice, "weight", slice->work, NRL_DTYPE_NONE, &a.work));
    }
    NRL_TRY(slice_mat(slice, "gradient", slice->grad, narrow ? NRL_DTYPE_BF16 : NRL_DTYPE_F32, &a.grad));
    NRL_TRY(slice_mat(slice, "first moment", slice->states[0], NRL_DTYPE_F32, &a.m));
    NRL_TRY(slice_mat(slice, "second moment", slice->states[1], NRL_DTYPE_F32, &a.v));
    *out = a;
    return NRL_OK;
}

nrl_status nrl_slice_adamw(nrl_ctx *ctx, nrl_slice *slice, const nrl_adamw *adamw, const nrl_step_params *step)
{
    nrl_adamw_args a;
    if (!slice->n) return NRL_OK;
    NRL_TRY(adamw_args(ctx, slice, adamw, step, &a));
    return backend_adamw(ctx, &a);
}

nrl_status nrl_slices_adamw(nrl_ctx *ctx, nrl_slice *slices, int64_t n_slices, const nrl_adamw *adamw,
                            const nrl_step_params *step)
{
    enum { CALLS = 48 };
    nrl_adamw_args calls[CALLS];
    int64_t n = 0;
    for (int64_t i = 0; i < n_slices; i++) {
        const nrl_slice *slice = nrl_slice_at(slices, i, step);
        if (slice->n) NRL_TRY(adamw_args(ctx, slice, adamw, step, &calls[n++]));
        if (n < CALLS && i + 1 < n_slices) continue;
        NRL_TRY(backend_adamw_all(ctx, calls, n));
        n = 0;
    }
    return NRL_OK;
}

/* ---- quantized states ---- */

static nrl_status flat_mat(const char *what, const nrl_tensor *t, int64_t n, nrl_dtype dtype, nrl_mat *out)
{
    if (t->numel != n || !tensor_is_contiguous(t) || t->dtype != dtype)
        return nrl_fail(NRL_ERR_BUG, "quantize: %s is %s of %s, expected %lld elements of %s", what,
                        tensor_shape(t).text, nrl_dtype_name(t->dtype), (long long)n, nrl_dtype_name(dtype));
    *out = (nrl_mat){t->data, (uint32_t)dtype, 0, 1, n, n};
    return NRL_OK;
}

static nrl_status quantize(nrl_ctx *ctx, bool inverse, const nrl_tensor *x, const nrl_tensor *code, int64_t block,
                           const nrl_tensor *q, const nrl_tensor *scale)
{
    nrl_quantize_args a = {.size = sizeof a, .inverse = inverse, .block = block};
    if (block < 1) return nrl_fail(NRL_ERR_BUG, "quantize: blocks of %lld elements", (long long)block);
    NRL_TRY(flat_mat("x", x, x->numel, NRL_DTYPE_F32, &a.x));
    NRL_TRY(flat_mat("q", q, x->numel, NRL_DTYPE_U8, &a.q));
    NRL_TRY(flat_mat("scale", scale, (x->numel + block - 1) / block, NRL_DTYPE_F32, &a.scale));
    NRL_TRY(flat_mat("code", code, 256, NRL_DTYPE_F32, &a.code));
    return x->numel ? backend_quantize(ctx, &a) : NRL_OK;
}

nrl_status nrl_quantize(nrl_ctx *ctx, const nrl_tensor *x, const nrl_tensor *code, int64_t block, nrl_tensor *q,
                        nrl_tensor *scale)
{
    return quantize(ctx, false, x, code, block, q, scale);
}

nrl_status nrl_dequantize(nrl_ctx *ctx, const nrl_tensor *q, const nrl_tensor *scale, const nrl_tensor *code,
                          int64_t block, nrl_tensor *x)
{
    return quantize(ctx, true, x, code, block, q, scale);
}

nrl_status nrl_quantize_code(nrl_ctx *ctx, const float *code, nrl_tensor **out)
{
    const int64_t n = QUANTIZE_CODES;
    ctx_code *c = ctx->codes;
    while (c && c->host != code)
        c = c->next;
    if (!c) {
        nrl_tensor *t;
        NRL_TRY(tensor_persistent(ctx, NRL_DTYPE_F32, 1, &n, false, &t));
        c = arena_alloc(&ctx->memory, sizeof *c);
        *c = (ctx_code){code, t, ctx->codes};
        ctx->codes = c;
        NRL_TRY(tensor_write(ctx, t, code));
    }
    *out = c->tensor;
    return NRL_OK;
}
