/*
 * ranks.h - what the ranks of a run tell each other: before a step, what was called and the weights of the
 * batch; after it, sums and metrics. One small exchange each, summed in the order of the ranks on every
 * rank, so that all know the same and decide alike. One rank copies.
 */
#ifndef RUN_RANKS_H
#define RUN_RANKS_H
#include "run/step/trainer.h"

/* All ranks made the same call of the run with the same arguments; else an error names both. [step] */
nrl_status ranks_agree(nrl_mesh *mesh, const char *call, uint64_t arguments);

/* Before a step: agreement on the call, weights[STEP_TERMS] summed over ranks, and the decisions of rank 0's hooks
 * (learning rate, stop) on all. `step`: finished ones. [step] */
nrl_status ranks_begin_step(nrl_mesh *mesh, int64_t step, double *weights, double *lr_override,
                            const char **stop_reason);

/* What one rank knows after its backward. */
typedef struct {
    double sums[STEP_TERMS];
    double tokens, flops;
    double square_sum; /* of the gradients that this rank counts */
    double finite;     /* 1, or 0 */
    double norm;       /* local steps: the largest of the ranks */
    double signal;     /* number, 0 = none */
    double save_now;   /* 1: rank 0's clock says so */
    double lacks;      /* 1: memory */
} ranks_result;

/* The same over all ranks, the algorithm's metrics with it. */
nrl_status ranks_end_step(nrl_mesh *mesh, metric_set *m, ranks_result *result);

/* Adds what plugins reported since then (optimizers, ends of steps) to the metrics of the step. Nothing is exchanged
 * where no plugin but an algorithm without step_end has metrics. */
nrl_status ranks_late_metrics(nrl_mesh *mesh, metric_set *m, bool algorithm_reports);

/* Evaluation: sums, weights and metrics over all ranks. */
nrl_status ranks_end_evaluation(nrl_mesh *mesh, metric_set *m, double *sums, double *weights, double *tokens);

/* ---- debug: true ----
 *
 * `debug: true`: who the ranks are and what each gets to do, and every few steps whether what must
 * be equal on several ranks is: gradients before the update, weights after it. One rank compares nothing. */

/* Process group info, printed by rank 0. Collective. */
nrl_status debug_group(trainer *tr);
/* Tokens, samples and micro-batches of the step on each rank, printed by rank 0. Collective. */
nrl_status debug_data(trainer *tr, const data_step *data);
/* A parameter whose bytes differ from those of the lowest rank that holds the same elements stops the run
 * and is named with the rank: reduced gradients, or weights (MASTER, and whole copies in WEIGHT).
 * Collective. */
nrl_status debug_gradients(trainer *tr);
nrl_status debug_weights(trainer *tr);
/* Whether the current step is one of those that are looked at. */
bool debug_is_due(const trainer *tr);

#endif
