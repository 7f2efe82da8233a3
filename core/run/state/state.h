/*
 * state.h - writes the whole state of a run to a checkpoint and restores it; saver.c and resume.c decide when and from
 * which one. It needs only the given parts, not an open run.
 */
#ifndef RUN_STATE_H
#define RUN_STATE_H
#include "checkpoint/checkpoint.h"
#include "run/step/trainer.h"
#include "run/weights/origin.h"

/* What a checkpoint is filled from and restored to; owned by the caller. */
typedef struct {
    trainer *trainer;           /* open, with its parts, except for state_bytes */
    model *model;               /* that the trainer trains */
    const model_origin *origin; /* of the base weights of adapters */
    const format_scope *formats;
    plugin_host *host;
    const nrl_node *given; /* the config before defaults, while the run is opened */
    bool mismatch_warns;   /* a checkpoint of another run is a warning: checkpoint.mismatch */
    bool restores_data;    /* that a program has set instead of data.train */
    /* What a checkpoint records of the run, a map of nodes: "config", "model", "plugins", "fingerprints"... */
    nrl_status (*describe)(void *user, arena *a, nrl_node **map);
    /* The hash of the base weights of adapters; collective. */
    nrl_status (*base_key)(void *user, const char **key);
    void *user;
} state_parts;

int64_t state_bytes(const state_parts *s); /* of numbers that this rank saves */
/* Call it between checkpoint_begin and checkpoint_submit; trees are built in `a`. [step] */
nrl_status state_add(const state_parts *s, arena *a, checkpoint_writer *w);
/* NRL_ERR_CONFIG lists all differences to this run. [step] */
nrl_status state_restore(const state_parts *s, checkpoint *c);
/* Restores what an evaluation needs: weights, step, the state of the algorithm. The config may differ otherwise.
 * [step] */
nrl_status state_restore_weights(const state_parts *s, checkpoint *c);

/* ---- progress ----
 *
 * The progress of a run, as a checkpoint stores it; every field is checked before it is used. A hash shows that nothing
 * was damaged by accident, not that the values are consistent. */

nrl_node *progress_node(arena *a, const run_progress *p, double lr_override);
/* NRL_ERR_CORRUPT names the field that is missing, is out of range, or contradicts the manifest. */
nrl_status progress_read(const checkpoint *c, run_progress *p, double *lr_override);

/* NRL_ERR_CORRUPT unless the nodes of a checkpoint have their types and its progress, if there is any, is valid. */
nrl_status progress_check_nodes(const checkpoint *c);

/* ---- fingerprints ----
 *
 * The information by which a checkpoint is compared with this run: the resolved config, the model's config.json, hashes
 * of files that options only name (data, tokenizer, script, the base of adapters), and the plugins. */

/* `run` is from state_parts.describe. NRL_ERR_CONFIG, or a warning on rank 0, lists every key that differs, with both
 * values. config/compare.h decides which options are compared. [step] */
nrl_status fingerprint_check(const state_parts *s, const nrl_node *run, const checkpoint *c);

/* ---- states of the optimizer ----
 *
 * Saves and restores what an optimizer declared (nrl_optimizer.declare, .state). Plain states are saved with the
 * parameters (run/state/params.h). */

int64_t optimizer_state_bytes(const update_plan *u); /* of state tensors that this rank saves */
/* Adds this rank's states, and the numbers of the instance under the key "optimizer". [step] */
nrl_status optimizer_state_save(const update_plan *u, nrl_ctx *ctx, arena *a, checkpoint_writer *w);
/* NRL_ERR_CONFIG if the checkpoint's states have another meaning: version. */
nrl_status optimizer_state_check(const update_plan *u, const checkpoint *c);
/* Loads the states and the numbers. NRL_ERR_CONFIG names the first state that is missing or has another shape.
 * [step] */
nrl_status optimizer_state_load(const update_plan *u, nrl_ctx *ctx, checkpoint *c);
/* Whether optimizer_state_load reads this tensor, on any rank; user is the update_plan. */
bool optimizer_state_reads(const void *user, const char *name, const char *slot);

#endif
