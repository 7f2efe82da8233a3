/*
 * seam.h - places where a strategy answers, see nrl/op.h.
 */
#ifndef TENSOR_SEAM_H
#define TENSOR_SEAM_H
#include "tensor/internal.h"

/* What the strategy makes of x (nrl_parallel.seam); x itself where nobody answers. */
nrl_status seam_ask(nrl_ctx *ctx, nrl_seam seam, bool back, nrl_tensor *x, nrl_tensor **y);

static inline bool seam_is_answered(const nrl_ctx *ctx)
{
    return ctx->seams != NULL;
}

/* An axis has cut it. */
static inline bool param_is_cut(const nrl_param *p)
{
    return p->numel != p->whole;
}

#endif
