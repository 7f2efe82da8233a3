/*
 * rope.h - tables of rotary position embedding: angles by position, which grow on demand, and the rows of the batch.
 */
#ifndef TENSOR_ROPE_H
#define TENSOR_ROPE_H
#include "tensor/internal.h"

/* The rows for the positions of the current batch, f32 [2, N, half]: cos, then sin. Borrowed from the context until the
 * batch changes; retain them to keep them longer. */
nrl_status rope_rows(nrl_ctx *ctx, const nrl_rope *rope, nrl_tensor **rows);
static inline nrl_mat rope_part(const nrl_tensor *rows, int part)
{
    const int64_t n = rows->rows / 2;
    return (nrl_mat){(float *)rows->data + part * n * rows->cols, NRL_DTYPE_F32, 0, n, rows->cols, rows->cols};
}
/* x rotated to y, which may be the same memory; `inverse` rotates back. */
nrl_status rope_rotate(nrl_ctx *ctx, nrl_mat x, int64_t n_heads, const nrl_tensor *rows, bool inverse, nrl_mat y);
void rope_new_batch(nrl_ctx *ctx); /* drops the rows, keeps the angles */
void rope_forget(nrl_ctx *ctx);    /* drops rows and angles */

#endif
