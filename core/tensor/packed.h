/*
 * packed.h - a frozen weight that is stored quantized (lib/base/quantize.h). The weight has its name and dimensions but
 * no slots; its store is a parameter of its own, a vector of the compute dtype whose bytes are a quantized_layout, so
 * that strategies place, gather and count it like any other frozen parameter.
 */
#ifndef TENSOR_PACKED_H
#define TENSOR_PACKED_H
#include "base/quantize.h"
#include "tensor/ctx.h"

typedef struct param_packing {
    quantize_kind kind;
    nrl_param *store;
} param_packing;

/* Of the elements on this rank. */
quantized_layout param_packed_layout(const nrl_param *weight);
/* What operations multiply by: WEIGHT, or (*temporary, to be released) its values in the compute dtype. [step] */
nrl_status param_unpack(nrl_ctx *ctx, const nrl_param *weight, nrl_tensor **temporary, nrl_mat *mat);

#endif
