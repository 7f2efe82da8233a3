/*
 * gradient_sums.h - sums of gradients over an axis, once per step in `finish`, for strategies whose ranks hold the same
 * parameters and have each a part of their gradients (context, experts).
 */
#ifndef GRADIENT_SUMS_H
#define GRADIENT_SUMS_H
#include <nrl/nrl.h>

typedef struct {
    nrl_comm *comm;
    nrl_param **trained; /* [n] whose gradients are summed */
    int32_t n;
    nrl_work **works;   /* [n] sums on their way */
    nrl_tensor *buffer; /* f32, for gradients that are summed together; created by the first step */
} gradient_sums;

/* Takes those of the plan's trained parameters that `takes` names; NULL: all. Adds the buffer to plan->buffer_bytes. */
nrl_status gradient_sums_plan(gradient_sums *s, nrl_comm *comm, nrl_parallel_plan *plan,
                              bool (*takes)(const nrl_param *p));
/* In `finish`: GRAD_SHARD (GRAD if there is none) becomes the sum over the axis. */
nrl_status gradient_sums_finish(gradient_sums *s, nrl_ctx *ctx);
void gradient_sums_unbind(gradient_sums *s, nrl_ctx *ctx);
void gradient_sums_free(gradient_sums *s);

/* In `updated`, at step 0: WEIGHT of each parameter becomes MASTER, rounded, where both are whole. An update has
 * written WEIGHT already. */
nrl_status weights_from_masters(nrl_param *const *params, int32_t n, nrl_ctx *ctx);

#endif
