/*
 * split16.h - f32 values in two halves, and a parameter's exact values however they are stored: what
 * loads, saves, exports and widens them knows no encoding. nrl/param.h says what split16 is.
 */
#ifndef TENSOR_SPLIT16_H
#define TENSOR_SPLIT16_H
#include "tensor/ctx.h"
#include "tensor/param.h"

/* wide f32, high bf16, low u16; contiguous, of as many elements. [step] */
nrl_status split16_split(nrl_ctx *ctx, const nrl_tensor *wide, nrl_tensor *high, nrl_tensor *low);
nrl_status split16_join(nrl_ctx *ctx, const nrl_tensor *high, const nrl_tensor *low, nrl_tensor *wide);

/* The exact values of a parameter: MASTER, or HI16 and LO16, or (frozen) WEIGHT alone. */
bool param_is_split(const nrl_param *p);
/* Elements that lie here; 0 where nothing is bound. */
int64_t param_exact_numel(const nrl_param *p);
/* MASTER or WEIGHT; of a split one HI16. NULL where nothing is bound. */
nrl_tensor *param_exact(const nrl_param *p);
/* Elements [begin, begin + n) of what lies here. [main] */
nrl_status param_exact_read(nrl_ctx *ctx, const nrl_param *p, int64_t begin, int64_t n, float *out);
nrl_status param_exact_write(nrl_ctx *ctx, nrl_param *p, int64_t begin, int64_t n, const float *values);
/* WEIGHT again from MASTER, where that is another tensor of as many elements; split16 needs nothing. */
nrl_status param_refresh(nrl_ctx *ctx, nrl_param *p);

#endif
