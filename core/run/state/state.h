/*
 * state.h - writes the whole state of a run to a checkpoint and restores it; saver.c and resume.c decide when and from
 * which one. It needs no open run, only the parts that it is given.
 */
#ifndef RUN_STATE_H
#define RUN_STATE_H
#include "checkpoint/checkpoint.h"
#include "run/step/trainer.h"
#include "run/weights/origin.h"

/* What a checkpoint is filled from and restored to; all of it stays the caller's. */
typedef struct {
    trainer *trainer;           /* open; with what it works with, except for state_bytes */
    model *model;               /* that the trainer trains */
    const model_origin *origin; /* of the weights beside adapters */
    const format_scope *formats;
    plugin_host *host;
    const nrl_node *given; /* the config before defaults, while the run is opened */
    bool mismatch_warns;   /* another run's checkpoint is a warning: checkpoint.mismatch */
    bool restores_data;    /* which a program had set in the place of data.train */
    /* What a checkpoint records of the run, a map of nodes: "config", "model", "plugins", "fingerprints"... */
    nrl_status (*describe)(void *user, arena *a, nrl_node **map);
    /* The hash of the weights beside adapters; the same on all ranks, which all ask. */
    nrl_status (*base_key)(void *user, const char **key);
    void *user;
} state_parts;

int64_t state_bytes(const state_parts *s); /* of numbers that this rank saves */
/* Between checkpoint_begin and checkpoint_submit; `a` for what is passed on the way. [step] */
nrl_status state_add(const state_parts *s, arena *a, checkpoint_writer *w);
/* NRL_ERR_CONFIG names everything in which the checkpoint belongs to another run. [step] */
nrl_status state_restore(const state_parts *s, checkpoint *c);
/* Restores what an evaluation needs: weights, step, the state of the algorithm. The config may differ otherwise.
 * [step] */
nrl_status state_restore_weights(const state_parts *s, checkpoint *c);

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
 * What tells whether a checkpoint belongs to this run: the resolved config, the model's config.json, hashes of what
 * options only name (data, tokenizer, script, the base of adapters), and the plugins. */

/* `run`: as state_parts.describe gives it. NRL_ERR_CONFIG names every key that differs, with both values, or a warning
 * of rank 0 does. Which options are compared is config/compare.h's. [step] */
nrl_status fingerprint_check(const state_parts *s, const nrl_node *run, const checkpoint *c);

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
