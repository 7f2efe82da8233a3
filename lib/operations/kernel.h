/*
 * kernel.h - what the kernels of this directory share. They compute in f32; the functions around them convert.
 */
#ifndef OPERATIONS_KERNEL_H
#define OPERATIONS_KERNEL_H
#include <nrl/operations.h>

static inline float *kernel_row(const nrl_mat *m, int64_t i)
{
    return (float *)m->data + i * m->stride;
}

static inline nrl_status kernel_f32(nrl_ctx *ctx, nrl_tensor *x, nrl_tensor **y)
{
    *y = x;
    return nrl_tensor_dtype(x) == NRL_DTYPE_F32 ? NRL_OK : nrl_op_cast(ctx, x, NRL_DTYPE_F32, y);
}

/* *y, which is f32, becomes of x's dtype. */
static inline nrl_status kernel_back(nrl_ctx *ctx, const nrl_tensor *x, nrl_tensor **y)
{
    return nrl_tensor_dtype(x) == NRL_DTYPE_F32 ? NRL_OK : nrl_op_cast(ctx, *y, nrl_tensor_dtype(x), y);
}

static inline nrl_status kernel_matrix(nrl_ctx *ctx, nrl_dtype dtype, int64_t rows, int64_t cols, nrl_tensor **y)
{
    const int64_t dims[] = {rows, cols};
    return nrl_tensor_new(ctx, dtype, 2, dims, y);
}

#endif
