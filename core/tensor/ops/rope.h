/*
 * rope.h - tables of rotary position embedding: angles by position, which grow on demand, and the rows of the batch.
 */
#ifndef TENSOR_ROPE_H
#define TENSOR_ROPE_H
#include "tensor/internal.h"

/* cos and sin, f32 [N, half] each, for the positions of the current batch. Borrowed from the context until the batch
 * changes; retain them to keep them longer. */
nrl_status rope_rows(nrl_ctx *ctx, const nrl_rope *rope, nrl_tensor **cos, nrl_tensor **sin);
void rope_new_batch(nrl_ctx *ctx); /* drops the rows, keeps the angles */
void rope_forget(nrl_ctx *ctx);    /* drops rows and angles */

#endif
