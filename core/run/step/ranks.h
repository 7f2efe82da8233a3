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

/* Before a step: agreement on the call, weights[k] summed over ranks, and the decisions of rank 0's hooks
 * (learning rate, stop) on all. */
nrl_status ranks_begin_step(trainer *tr, double *weights);

/* What one rank knows after its backward. */
typedef struct {
    double sums[NRL_MAX_TERMS];
    double tokens, flops;
    double square_sum; /* of the gradients that this rank counts */
    double finite;     /* 1, or 0 */
    double norm;       /* local steps: the largest of the ranks */
    double signal;     /* number, 0 = none */
    double save_now;   /* 1: rank 0's clock says so */
} ranks_result;

/* The same over all ranks, the algorithm's metrics with it. */
nrl_status ranks_end_step(nrl_mesh *mesh, metric_set *m, ranks_result *result);

/* Evaluation: sums, weights and metrics over all ranks. */
nrl_status ranks_end_evaluation(nrl_mesh *mesh, metric_set *m, double *sums, double *weights, double *tokens);

#endif
