/*
 * micro_batch.h - micro-batches in flight: what is kept of each between its actions. Without stages there is one at a
 * time; a stage holds several, each with its own tapes.
 */
#ifndef RUN_MICRO_BATCH_H
#define RUN_MICRO_BATCH_H
#include "tensor/ctx.h"
#include <nrl/model.h>

/* Everything counted. */
typedef struct {
    int32_t number;    /* in the step */
    nrl_batch *batch;  /* NULL: nothing is in flight here */
    nrl_carry *inputs; /* [n_units] what each unit read; of a unit of another stage, what was sent to it */
    tape **tapes;      /* [2 n_units] of each unit; from n_units on, what its backward has deferred */
    tape_saved **away; /* [n_units] what is elsewhere of what a unit read and its tape (train.offload.activations) */
    nrl_carry carry;   /* in the forward passes: the result of the last unit that ran */
    nrl_carry grads;   /* in the backward passes: the gradient of the carry */
    nrl_tensor *sums[NRL_MAX_TERMS];
    nrl_tensor *extra; /* see work.extra_column */
} work_micro_batch;

typedef struct {
    work_micro_batch *list; /* grows to as many as were ever in flight; free ones are used again */
    int32_t n, n_units;     /* n_units: of the model */
} work_micro_batches;

/* Returns the micro-batch in flight with this number; *begins: it has just been taken, with this batch. The pointer is
 * valid until the next call. */
work_micro_batch *micro_batch_at(work_micro_batches *all, int32_t number, nrl_batch *batch, bool *begins);
/* Drops everything that it holds: its actions are over, or there was an error. */
void micro_batch_end(const work_micro_batches *all, work_micro_batch *m, nrl_ctx *ctx);
/* Releases all of them; others may begin afterwards. */
void micro_batches_close(work_micro_batches *all, nrl_ctx *ctx);

void carry_release(nrl_ctx *ctx, nrl_carry *c);
nrl_carry carry_retain(const nrl_carry *c);

#endif
