/*
 * slices.h - the local elements that an optimizer updates, read from the parameters' slots. Whoever
 * bound the slots (core/run on one rank, a strategy on several) decided what is local.
 */
#ifndef OPTIM_SLICES_H
#define OPTIM_SLICES_H
#include "base/arena.h"
#include "mesh/layout.h"
#include "model/model.h"
#include <nrl/optimizer.h>

/* One slice for each trained parameter of which this rank has elements (mesh NULL: all), in the model's order, from
 * MASTER (or HI16 and LO16, or WEIGHT where nothing else is bound), GRAD_SHARD (or GRAD) and STATE0 .. n_states-1. Call
 * it again after slots are bound anew. The array lives in `a`; its tensors stay the binder's. NRL_ERR_BUG names the
 * parameter whose slots are missing or differ in size. [main] */
nrl_status slices_build(const model *m, const nrl_mesh *mesh, uint32_t n_states, arena *a, nrl_slice **out, int64_t *n);

/* One slice's update, inside a scope of the caller; widened to f32 and stored again where the optimizer takes
 * no encoded ones (nrl_optimizer.encoded). [step] */
nrl_status slices_update(nrl_ctx *ctx, const nrl_optimizer *table, void *self, nrl_slice *slice,
                         const nrl_step_params *block);

/* Tells every parameter of the slices that its WEIGHT has changed. [step] */
void slices_touch(nrl_slice *slices, int64_t n);

#endif
