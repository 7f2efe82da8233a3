/*
 * slice.c - updates of optimizers on local slices, one fused pass of the backend.
 */
#include "tensor/internal.h"
#include <math.h>
#include <nrl/optimizer.h>

static nrl_status slice_mat(const nrl_slice *s, const char *what, const nrl_tensor *t, bool f32,
                            nrl_mat *out)
{
    if (!t || t->numel != s->n || !tensor_is_contiguous(t) || (f32 && t->dtype != NRL_DTYPE_F32))
        return nrl_fail(NRL_ERR_BUG, "%s of '%s': %s %s, expected %lld elements%s", what,
                        s->param->name, t ? nrl_dtype_name(t->dtype) : "nothing",
                        t ? tensor_shape(t).text : "bound", (long long)s->n, f32 ? " of f32" : "");
    *out = (nrl_mat){t->data, (uint32_t)t->dtype, 0, 1, s->n, s->n};
    return NRL_OK;
}

nrl_status nrl_slice_adamw(nrl_ctx *ctx, nrl_slice *slice, const nrl_adamw *adamw,
                           const nrl_step_block *step)
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
    NRL_TRY(slice_mat(slice, "master", slice->master, true, &a.master));
    NRL_TRY(slice_mat(slice, "gradient", slice->grad, true, &a.grad));
    NRL_TRY(slice_mat(slice, "first moment", slice->states[0], true, &a.m));
    NRL_TRY(slice_mat(slice, "second moment", slice->states[1], true, &a.v));
    if (slice->work) NRL_TRY(slice_mat(slice, "work copy", slice->work, false, &a.work));
    return backend_adamw(ctx, &a);
}
