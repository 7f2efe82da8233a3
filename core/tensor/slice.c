/*
 * slice.c - updates of optimizers on local slices, in one fused operation of the backend.
 */
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

/* The master weights: f32, or the two halves of split16. */
static nrl_status master_mats(const nrl_slice *s, nrl_adamw_args *a)
{
    if (!s->low) {
        NRL_TRY(slice_mat(s, "master", s->master, NRL_DTYPE_F32, &a->master));
        return s->work ? slice_mat(s, "weight", s->work, NRL_DTYPE_NONE, &a->work) : NRL_OK;
    }
    NRL_TRY(slice_mat(s, "upper half", s->work, NRL_DTYPE_BF16, &a->work));
    return slice_mat(s, "lower half", s->low, NRL_DTYPE_U16, &a->low);
}

nrl_status nrl_slice_adamw(nrl_ctx *ctx, nrl_slice *slice, const nrl_adamw *adamw, const nrl_step_params *step)
{
    nrl_adamw_args a = {.size = sizeof a,
                        .lr = step->lr,
                        .grad_scale = step->grad_scale,
                        .beta1 = adamw->beta1,
                        .beta2 = adamw->beta2,
                        .eps = adamw->eps,
                        .weight_decay = slice->decay ? adamw->weight_decay : 0,
                        .correction1 = 1 - pow(adamw->beta1, (double)step->step),
                        .correction2 = 1 - pow(adamw->beta2, (double)step->step)};
    if (!slice->n) return NRL_OK;
    bool narrow = slice->grad && slice->grad->dtype == NRL_DTYPE_BF16;
    NRL_TRY(master_mats(slice, &a));
    NRL_TRY(slice_mat(slice, "gradient", slice->grad, narrow ? NRL_DTYPE_BF16 : NRL_DTYPE_F32, &a.grad));
    NRL_TRY(slice_mat(slice, "first moment", slice->states[0], NRL_DTYPE_F32, &a.m));
    NRL_TRY(slice_mat(slice, "second moment", slice->states[1], NRL_DTYPE_F32, &a.v));
    return backend_adamw(ctx, &a);
}
