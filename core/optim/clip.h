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

/* Adds up square sums over the ranks that hold other elements, in place; `sums[i]` belongs to
 * slices[i], whose layouts name the axes. On one rank there is none. */
typedef struct {
    nrl_status (*all_reduce)(void *user, const nrl_slice *slices, double *sums, int64_t n);
    void *user;
} clip_reduce;

typedef struct {
    double norm;  /* of the true gradient, before clipping */
    double scale; /* for nrl_step_block.grad_scale: scale * min(1, max_norm / (norm + 1e-6)) */
    bool finite;  /* false: the update must not happen; scale is 0 */
} clip_result;

/* max_norm 0 measures only. `reduce` NULL = one rank. The order of additions is that of the slices,
 * in double: equal gradients give an equal norm. Waits for the device. [step] */
nrl_status clip_norm(nrl_ctx *ctx, const nrl_slice *slices, int64_t n, double scale,
                     double max_norm, const clip_reduce *reduce, clip_result *out);

#endif
