/*
 * optimizer_state.h - what an optimizer declared (nrl_optimizer.declare, .state), to a checkpoint and back. Plain
 * states are saved with the parameters (checkpoint/params.h).
 */
#ifndef RUN_OPTIMIZER_STATE_H
#define RUN_OPTIMIZER_STATE_H
#include "checkpoint/checkpoint.h"
#include "optim/updates.h"

int64_t optimizer_state_bytes(const update_plan *u); /* of state tensors that this rank saves */
/* Adds this rank's states, and the numbers of the instance under the key "optimizer". [step] */
nrl_status optimizer_state_save(const update_plan *u, nrl_ctx *ctx, arena *a, checkpoint_writer *w);
/* NRL_ERR_CONFIG if the checkpoint's states have another meaning: version. */
nrl_status optimizer_state_check(const update_plan *u, const checkpoint *c);
/* Loads both. NRL_ERR_CONFIG names the first state that is missing or has another shape. [step] */
nrl_status optimizer_state_load(const update_plan *u, nrl_ctx *ctx, checkpoint *c);
/* Whether optimizer_state_load reads this tensor, on whatever rank; user is the update_plan. */
bool optimizer_state_reads(const void *user, const char *name, const char *slot);

#endif
