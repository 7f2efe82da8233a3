/*
 * state.h - a run's whole state to a checkpoint and back; saver.c and resume.c say when and which.
 */
#ifndef RUN_STATE_H
#define RUN_STATE_H
#include "checkpoint/checkpoint.h"
#include "run/open/session.h"
#include "run/step/trainer.h"

int64_t state_bytes(const session *se); /* of numbers that this rank saves */
/* Between checkpoint_begin and checkpoint_submit; `a` for what is passed on the way. [step] */
nrl_status state_add(session *se, const trainer *tr, arena *a, checkpoint_writer *w);
/* NRL_ERR_CONFIG names everything in which the checkpoint belongs to another run. [step] */
nrl_status state_restore(session *se, trainer *tr, checkpoint *c);
/* What an evaluation needs of it: weights, step, the algorithm's state. The config may differ
 * otherwise. [step] */
nrl_status state_restore_weights(session *se, trainer *tr, checkpoint *c);

/* ---- progress ----
 *
 * How far a run has come, as a checkpoint keeps it; every field is checked before it is believed. A hash
 * says that nothing was damaged by accident, not that the values make sense together. */

nrl_node *progress_node(arena *a, const run_progress *p, double lr_override);
/* NRL_ERR_CORRUPT names the field that is missing, has no such range, or contradicts the manifest. */
nrl_status progress_read(const checkpoint *c, run_progress *p, double *lr_override);

/* Whether the nodes of a checkpoint have their types, and its progress, where it has any, makes sense.
 * NRL_ERR_CORRUPT. */
nrl_status progress_check_nodes(const checkpoint *c);

/* ---- fingerprints ----
 *
 * What tells whether a checkpoint belongs to this run: the resolved config, the model's config.json,
 * and hashes of what options only name (data, tokenizer, script, the base of adapters). */

/* The hashes, and the number of steps; the config and the model have nodes of their own in a checkpoint. */
nrl_node *fingerprint_node(arena *a, const session *se);

/* NRL_ERR_CONFIG names every key that differs, with both values; by checkpoint.mismatch a warning of rank 0 instead.
 * Which options are compared is config/compare.h's. [step] */
nrl_status fingerprint_check(const session *se, const schedule *rates, const checkpoint *c);

/* ---- plugins ----
 *
 * The plugins of a run in its checkpoints: recorded by kind and name with version and hash, compared at a
 * resume. */

/* {"KIND/NAME": "VERSION, HASH", ...}: the plugins that compute, read or write something of the run; in `a`. */
nrl_node *plugins_node(arena *a, const session *se);

/* Compares the plugins of the run with those of a checkpoint (NULL: none recorded). `tell` is called for each plugin
 * whose version is incompatible by semantic versioning (another major version, or below 1.0 another minor version).
 * Other versions, and other files of plugins that are not nrl's own, are one warning. Plugins that only one of the two
 * has are not compared. */
void plugins_compare(const session *se, const nrl_node *was,
                     void (*tell)(void *user, const char *plugin, const nrl_node *was, const nrl_node *is), void *user);

/* ---- states of the optimizer ----
 *
 * What an optimizer declared (nrl_optimizer.declare, .state), to a checkpoint and back. Plain
 * states are saved with the parameters (run/state/params.h). */

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
