/*
 * vector.h - arithmetic of optimizers that are written with operations: linear combinations of whole slices. Results
 * belong to the caller's scope; nothing is recorded on a tape. Works on every backend.
 */
#ifndef OPTIMIZERS_VECTOR_H
#define OPTIMIZERS_VECTOR_H
#include <nrl/nrl.h>

/* The part of which a declared slice has elements. */
static inline const nrl_part *vector_part(const nrl_slice *s)
{
    return nrl_param_part(s->param, s->part);
}

/* *y = a x */
static inline nrl_status vector_scale(nrl_ctx *ctx, double a, nrl_tensor *x, nrl_tensor **y)
{
    return nrl_op_unary(ctx, NRL_UNARY_AFFINE, x, a, 0, y);
}

/* *y = a x + b z; a factor of 1 costs no pass over memory. */
static inline nrl_status vector_mix(nrl_ctx *ctx, double a, nrl_tensor *x, double b, nrl_tensor *z, nrl_tensor **y)
{
    nrl_tensor *ax = x, *bz = z;
    if (a < 1 || a > 1) NRL_TRY(vector_scale(ctx, a, x, &ax));
    if (b < 1 || b > 1) NRL_TRY(vector_scale(ctx, b, z, &bz));
    return nrl_op_binary(ctx, NRL_BINARY_ADD, ax, bz, y);
}

/* Stores new weights in the slice: master, and the rounded copy if there is one. */
static inline nrl_status vector_store(nrl_ctx *ctx, nrl_slice *s, nrl_tensor *w)
{
    NRL_TRY(nrl_tensor_copy(ctx, w, s->master));
    return s->work ? nrl_master_round(ctx, s->master, s->work) : NRL_OK;
}

#endif
