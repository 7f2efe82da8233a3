/*
 * work.h - one micro-batch through the units, as visits: enter, forward (or recompute, or backward),
 * leave. The walk knows no strategy and no algorithm beyond its table.
 */
#ifndef RUN_WORK_H
#define RUN_WORK_H
#include "model/model.h"
#include "run/gradients.h"
#include "run/strategy.h"

/* One micro-batch in flight: what must be kept between its visits. Everything counted. */
typedef struct {
    nrl_batch *batch;
    nrl_carry *inputs; /* [n_units] what each unit read */
    tape **tapes;      /* [n_units] */
    nrl_carry carry;   /* on the way forward: what the last visited unit gave */
    nrl_carry grads;   /* on the way back: gradient of the carry */
    nrl_tensor *sums[NRL_MAX_TERMS];
    nrl_tensor *extra; /* see work.extra_column */
} work_micro;

/* What the walk works with; filled by open.c once, `seeds` by step.c each step. */
typedef struct work work;
struct work {
    nrl_ctx *ctx;
    model *policy;
    const nrl_algorithm *algorithm;
    void *algorithm_self;
    int32_t instance;             /* of the visits: 0 the policy, 1 the reference */
    const strategy *strategy;     /* NULL = none */
    bool *recompute;              /* [n_units] activation checkpointing */
    int32_t first;                /* lowest unit with anything trained: none below it has a backward */
    gradients gradients;          /* buffer NULL: backward adds to what the slots have */
    nrl_tensor *seeds[NRL_MAX_TERMS]; /* [1] f32: d step loss / d sum k = 1 / W[k] */
    work_micro micro;
    nrl_visit *visits;         /* of a training step */
    int64_t n_visits;
    int32_t visits_for;        /* micro-batches `visits` was made for */
    nrl_visit *forward_visits; /* [n_units] of a pass without gradients */
    /* Sets a batch's column before its first forward (reference log-probs), counted for the walk; called
     * for empty batches too, on which a sharded reference has its visits. NULL = there is none. `set`: 0 training, 1 evaluation. */
    nrl_status (*extra_column)(void *user, size_t set, nrl_batch *batch, nrl_tensor **column);
    void *extra_user;
    arena memory, visit_memory;
};

/* ctx and policy are set; algorithm and recompute too where work_train will be called. */
void work_open(work *w);
void work_close(work *w);

/* The plain schedule of n micro-batches: forward all units, then backward all, one after another. */
nrl_status work_schedule(work *w, int32_t n_micro);

/* Walks the visits of a training step; batches[m] is micro-batch m. totals[k] += sums of term k, as
 * one device scalar each, counted for the caller (released by work_take_sums). */
nrl_status work_train(work *w, nrl_batch *const *batches, nrl_tensor **totals);

/* Forward only, as visits, no tape: `use` gets the hidden states inside the last unit's visit, while the
 * head's parameters are there, too. Needs ctx and policy alone (evaluation, generation, reference
 * log-probs). */
typedef nrl_status (*work_use)(void *user, nrl_tensor *hidden);
nrl_status work_hidden(work *w, nrl_batch *batch, work_use use, void *user);

/* Forward and loss without gradients; adds to totals like work_train. */
nrl_status work_evaluate(work *w, nrl_batch *batch, nrl_tensor **totals);

/* Whether the algorithm asked for this column. */
bool work_needs(const nrl_algorithm *algorithm, const char *column);

#endif
