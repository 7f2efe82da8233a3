/*
 * split16.h - f32 values split into two 16-bit halves (see nrl/param.h), and access to the exact values of a parameter,
 * so that code that loads, saves or exports parameters does not depend on their encoding.
 */
#ifndef TENSOR_SPLIT16_H
#define TENSOR_SPLIT16_H
#include "tensor/ctx.h"
#include "tensor/param.h"

/* wide f32, high bf16, low u16: contiguous, with the same number of elements. [step] */
nrl_status split16_split(nrl_ctx *ctx, const nrl_tensor *wide, nrl_tensor *high, nrl_tensor *low);
nrl_status split16_join(nrl_ctx *ctx, const nrl_tensor *high, const nrl_tensor *low, nrl_tensor *wide);

/* The exact values of a parameter are in MASTER, in HI16 and LO16, or (frozen) in WEIGHT alone. */
bool param_is_split(const nrl_param *p);
/* The number of elements on this rank; 0 if no slot is bound. */
int64_t param_exact_numel(const nrl_param *p);
/* MASTER or WEIGHT; HI16 of a split parameter. NULL if no slot is bound. */
nrl_tensor *param_exact(const nrl_param *p);
/* Copies elements [begin, begin + n) of those on this rank to `out`; with NULL, from `values`. [main] */
nrl_status param_exact_copy(nrl_ctx *ctx, const nrl_param *p, int64_t begin, int64_t n, float *out,
                            const float *values);
/* Computes WEIGHT from MASTER, if they are different tensors of equal size. Does nothing for split16. */
nrl_status param_refresh(nrl_ctx *ctx, nrl_param *p);

#endif
