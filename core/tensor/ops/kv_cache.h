/*
 * kv_cache.h - attention over cached keys and values, for op_attention.c.
 */
#ifndef TENSOR_KV_CACHE_H
#define TENSOR_KV_CACHE_H
#include "tensor/internal.h"

/* Appends k and v of the batch's segments to the cache of spec->layer and attends to all cached keys. Not recorded on
 * the tape, because generation has no backward. */
nrl_status kv_cache_attention(nrl_ctx *ctx, nrl_tensor *q, nrl_tensor *k, nrl_tensor *v, const nrl_attention_spec *spec,
                              nrl_tensor *y);

#endif
