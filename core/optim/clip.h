/*
 * clip.h - the global gradient norm, and clipping by the scale of the step.
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

/* Queues the sum of squares of each slice: *sums is [n] f64 with a reference for the caller; NULL without slices. */
nrl_status clip_queue(nrl_ctx *ctx, const nrl_slice *slices, int64_t n, nrl_tensor **sums);
/* Fetches and releases `sums`, and adds those with counts[i] (NULL = all). counts[i] is set for slices that no lower
 * rank has too, so that the sum over all ranks counts every element once. Adds in double, in the order of the slices:
 * equal gradients give an equal sum. Waits for the device. [step] */
nrl_status clip_add(nrl_ctx *ctx, nrl_tensor *sums, const bool *counts, double *sum);
/* max_norm 0 computes the norm and does not clip. */
clip_result clip_decide(double square_sum, double scale, double max_norm);

#endif
