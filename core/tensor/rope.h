/*
 * rope.h - rotary tables: angles by position that grow with need, and their rows for the batch.
 */
#ifndef TENSOR_ROPE_H
#define TENSOR_ROPE_H
#include "tensor/internal.h"

/* cos and sin, f32 [N, half] each, for the positions of the current batch; borrowed from the
 * context until the batch changes (retain to keep). */
nrl_status rope_rows(nrl_ctx *ctx, const nrl_rope *rope, nrl_tensor **cos, nrl_tensor **sin);
void rope_new_batch(nrl_ctx *ctx); /* rows are forgotten, angles stay */
void rope_forget(nrl_ctx *ctx);    /* everything goes */

#endif
