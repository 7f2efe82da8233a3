/*
 * slices.h - the local elements that an optimizer updates, read from the parameters' slots. The code that bound the
 * slots (core/run on one rank, a strategy on several) decided which elements are local.
 */
#ifndef OPTIM_SLICES_H
#define OPTIM_SLICES_H
#include "base/arena.h"
#include "mesh/layout.h"
#include "model/model.h"
#include <nrl/optimizer.h>

/* Makes one slice for each trained parameter of which this rank has elements (mesh NULL: all), in the model's order,
 * from MASTER (or HI16 and LO16, else WEIGHT), GRAD_SHARD (else GRAD) and STATE0 .. n_states-1. Call it again after
 * slots are bound again. The array lives in `a`; its tensors are borrowed. NRL_ERR_BUG names the parameter whose slots
 * are missing or differ in size. [main] */
nrl_status slices_build(const model *m, const nrl_mesh *mesh, uint32_t n_states, arena *a, nrl_slice **out, int64_t *n);

/* The same for one parameter of which this rank has elements. */
nrl_status slices_fill(nrl_param *p, uint32_t n_states, nrl_slice *s);

/* Updates one slice, inside a scope of the caller. Converts the slice to f32 and back unless the optimizer supports
 * encoded slices (nrl_optimizer.encoded). [step] */
nrl_status slices_update(nrl_ctx *ctx, const nrl_optimizer *table, void *self, nrl_slice *slice,
                         const nrl_step_params *block);

/* Keeps a copy of the masters in kept[n], NULL before the call, and lets the optimizer move them (perturb). Then
 * slices_restore gives them back and releases the copies, also after a failure. [step] */
nrl_status slices_perturb(nrl_ctx *ctx, const nrl_optimizer *table, void *self, nrl_slice *slices, int64_t n,
                          const nrl_step_params *step, nrl_tensor **kept);
nrl_status slices_restore(nrl_ctx *ctx, nrl_slice *slices, int64_t n, nrl_tensor **kept);

/* *before: the master of a slice as it is now, in the current scope; NULL without memory for a copy. slices_moved adds
 * the sum of squares of what an update has changed since, or NaN without a copy. Waits for the device. [step] */
nrl_status slices_copy(nrl_ctx *ctx, const nrl_slice *slice, nrl_tensor **before);
nrl_status slices_moved(nrl_ctx *ctx, const nrl_slice *slice, nrl_tensor *before, double *square_sum);

/* Marks the WEIGHT of every parameter of the slices as changed. [step] */
void slices_touch(nrl_slice *slices, int64_t n);

#endif
