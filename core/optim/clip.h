/*
 * clip.h - the global gradient norm and what it makes of the step's scale.
 *
 * The true gradient is grad * scale (1/W, 1/loss scale). Clipping changes no gradient: its factor
 * joins the scale that the optimizer applies anyway.
 */
#ifndef OPTIM_CLIP_H
#define OPTIM_CLIP_H
#include "tensor/ctx.h"
#include <nrl/optimizer.h>

typedef struct {
    double norm;  /* of the true gradient, before clipping */
    double scale; /* for nrl_step_params.grad_scale: scale * min(1, max_norm / (norm + 1e-6)) */
    bool finite;  /* false: the update must not happen; scale is 0 */
} clip_result;

/* Queues the sum of squares of each slice: *sums [n] f64, counted for the caller; NULL without slices. */
nrl_status clip_queue(nrl_ctx *ctx, const nrl_slice *slices, int64_t n, nrl_tensor **sums);
/* Fetches and releases them, and adds those with counts[i] (NULL = all): of slices that no lower rank
 * holds too, so that the sum over ranks is that of the whole gradient. The order of additions is that of
 * the slices, in double: equal gradients give an equal sum. Waits for the device. [step] */
nrl_status clip_add(nrl_ctx *ctx, nrl_tensor *sums, const bool *counts, double *sum);
/* Both at once. */
nrl_status clip_square_sum(nrl_ctx *ctx, const nrl_slice *slices, int64_t n, const bool *counts, double *sum);
/* max_norm 0 measures only. */
clip_result clip_decide(double square_sum, double scale, double max_norm);

#endif
