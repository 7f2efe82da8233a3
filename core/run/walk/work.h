/*
 * work.h - one micro-batch through the units, as actions: enter, forward (or recompute, or backward),
 * leave. The walk knows no strategy and no algorithm beyond its table.
 */
#ifndef RUN_WORK_H
#define RUN_WORK_H
#include "run/walk/gradients.h"
#include "run/walk/stage.h"
#include "run/walk/strategy.h"
#include "run/walk/actions.h"

/* What the walk works with; filled by open.c once, `seeds` and `decision` by step.c each step. */
typedef struct work work;
struct work {
    nrl_ctx *ctx;
    model *policy;
    const nrl_algorithm *algorithm;
    void *algorithm_self;
    int32_t instance;                 /* of the actions: 0 the policy, 1 the reference */
    const strategy *strategy;         /* NULL = none */
    bool *recompute;                  /* [n_units] activation checkpointing */
    gradients gradients;              /* buffer NULL: backward adds to what the slots have */
    nrl_tensor *seeds[NRL_MAX_TERMS]; /* [1] f32: d step loss / d sum k = 1 / W[k] */
    nrl_tensor *decision;             /* [3] f64: nrl_update_decision; NULL until the device decides */
    int32_t first_trained;            /* lowest unit with a trained parameter: units below have no backward */
    stage_link stage;                 /* this rank's units; all of them unless a strategy said otherwise */
    action_list actions;              /* of a training step */
    work_micro_batches micro_batches; /* in flight */
    work_micro_batch *micro_batch;    /* of the current action */
    tape_saved **leaving;             /* tensors that the last action has begun to copy elsewhere; NULL = none */
    uint32_t step;                    /* of stage_begin */
    nrl_action *forward_actions;      /* of a pass without gradients: one a unit of this rank */
    uint64_t random;                  /* key of this step's dropout; 0 = off */
    /* Sets a batch's column before its first forward (reference log-probs), counted for the walk; also called for empty
     * batches, for which a sharded reference runs its actions. NULL = none. `set`: as in reference_column. */
    nrl_status (*extra_column)(void *user, size_t set, nrl_batch *batch, nrl_tensor **column);
    void *extra_user;
    work *teacher; /* whose logits the loss reads; NULL = none */
    arena memory;
};

/* The caller has set ctx and policy; algorithm and recompute too if it calls work_train; stage if this rank does not
 * have the whole model. */
void work_open(work *w);
void work_close(work *w);

/* The actions of a shard of n micro-batches of a step; `shard`: among those of this rank. Errors as actions_make. */
nrl_status work_schedule(work *w, int32_t n_micro_batches, int32_t shard);

/* Walks the actions of a shard of a training step; batches[m] is micro-batch m. totals[k] += sums of term k, as
 * one device scalar each, counted for the caller (released by work_take_sums). */
nrl_status work_train(work *w, nrl_batch *const *batches, nrl_tensor **totals);

/* Forward only, as actions, no tape: `use` gets the hidden states inside the last unit's action, while the
 * head's parameters are there, too. Needs ctx and policy alone (evaluation, generation, reference
 * log-probs). Stages without the head never call it. */
typedef nrl_status (*work_use)(void *user, nrl_tensor *hidden);
nrl_status work_hidden(work *w, nrl_batch *batch, work_use use, void *user);

/* Forward and loss without gradients; adds to totals like work_train. `set`: as in reference_column. */
nrl_status work_evaluate(work *w, size_t set, nrl_batch *batch, nrl_tensor **totals);

/* Whether the algorithm asked for this column. */
bool work_needs(const nrl_algorithm *algorithm, const char *column);

/* ---- the loss ----
 *
 * From hidden states to the algorithm's sums: fills the columns it needs and calls it. */

/* Inside the last unit's forward action, its tape on: the head, the columns and the loss. Ends the tape.
 * A tokenwise loss is differentiated chunk by chunk here and leaves the hidden states' gradient in
 * micro_batch.grads; any other leaves its sums, on the tape, in micro_batch.sums. */
nrl_status loss_forward(work *w, nrl_tensor *hidden, nrl_tensor **totals);
/* The same without gradients. */
nrl_status loss_evaluate(work *w, nrl_tensor *hidden, nrl_tensor **totals);
/* Whether the loss gets log-probs chunk by chunk; if not, logits are kept from forward to backward. */
bool loss_is_separable(const nrl_algorithm *a);

#endif
