/*
 * packed.h - frozen linear weights that are stored quantized (tensor/packed.h): their stores become parameters of the
 * model, in the place of the weights.
 */
#ifndef MODEL_PACKED_H
#define MODEL_PACKED_H
#include "model/model.h"
#include "tensor/packed.h"

/* Whether a base stores p quantized: each weight that could have an adapter, except routers. */
bool model_quantizes(const model *m, const nrl_param *p);
/* Gives every frozen one of these weights a store, whose elements have the dtype `compute`. Call it once per model,
 * after model_adapt and before layouts are planned. [main] */
void model_pack(model *m, quantize_kind kind, nrl_dtype compute);
/* Sizes of stores and stages of weights after a strategy has written layouts. NRL_ERR_CONFIG: a rank's share of a
 * weight does not consist of whole blocks. [main] */
nrl_status model_settle_packed(const model *m, nrl_dtype compute);

#endif
