/*
 * tp_region.h - the tensor-parallel regions of nrl/op.h, which a strategy handles.
 */
#ifndef TENSOR_TP_REGION_H
#define TENSOR_TP_REGION_H
#include "tensor/internal.h"

/* Calls the strategy (nrl_parallel.tp_region); *y is x if there is none. */
nrl_status tp_region_ask(nrl_ctx *ctx, nrl_tp_region tp_region, bool back, nrl_tensor *x, nrl_tensor **y);

/* The rows of x that belong to this rank's tokens, as a view; x has a row (of a vector an element) for each token of
 * the batch. x itself if ranks do not have parts of the tokens. */
nrl_tensor *tp_region_own_rows(nrl_ctx *ctx, nrl_tensor *x);

static inline bool tp_region_is_answered(const nrl_ctx *ctx)
{
    return ctx->settings.tp_regions.answer != NULL;
}

/* Whether an axis shards p, so that operations see only a part. */
static inline bool param_is_sharded(const nrl_param *p)
{
    return p->numel != p->whole;
}

#endif
