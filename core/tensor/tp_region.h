/*
 * tp_region.h - places where a strategy answers, see nrl/op.h.
 */
#ifndef TENSOR_TP_REGION_H
#define TENSOR_TP_REGION_H
#include "tensor/internal.h"

/* What the strategy makes of x (nrl_parallel.tp_region); x itself where nobody answers. */
nrl_status tp_region_ask(nrl_ctx *ctx, nrl_tp_region tp_region, bool back, nrl_tensor *x, nrl_tensor **y);

static inline bool tp_region_is_answered(const nrl_ctx *ctx)
{
    return ctx->tp_regions != NULL;
}

/* An axis has cut it. */
static inline bool param_is_sharded(const nrl_param *p)
{
    return p->numel != p->whole;
}

#endif
