/*
 * ranks.h - what the ranks of a run tell each other: before a step, what was called and the weights of the
 * batch; after it, sums and metrics. One small exchange each, summed on every rank in the order of the ranks or, where
 * their number is fixed, of the shards of the batch, so that all know the same and decide alike. One rank copies.
 */
#ifndef RUN_RANKS_H
#define RUN_RANKS_H
#include "run/step/trainer.h"

/* All ranks made the same call of the run with the same arguments; else an error names both. [step] */
nrl_status ranks_agree(nrl_mesh *mesh, const data_shards *shards, const char *call, uint64_t arguments);

/* Before a step: agreement on the call, the sum of the weights `own` of all shards of all ranks, and the decisions of
 * rank 0's hooks (learning rate, stop) on all. `step`: finished ones. [step] */
nrl_status ranks_begin_step(nrl_mesh *mesh, const data_shards *shards, int64_t step, const step_weights *own,
                            double *weights, double *lr_override, const char **stop_reason);

typedef struct {
    double sums[STEP_TERMS], weights[STEP_TERMS], tokens;
} ranks_evaluation;

/* Combines result[shards] of all ranks into result[0], and the metrics of the algorithm with them. */
nrl_status ranks_end_step(nrl_mesh *mesh, const data_shards *shards, metric_set *m, ranks_result *result);

/* Adds what plugins reported beside it (optimizers, ends of steps) to the metrics of the step or the evaluation.
 * Nothing is exchanged where no plugin but an algorithm without step_end has metrics. */
nrl_status ranks_late_metrics(nrl_mesh *mesh, const data_shards *shards, metric_set *m, bool algorithm_reports);

/* The same for an evaluation. */
nrl_status ranks_end_evaluation(nrl_mesh *mesh, const data_shards *shards, metric_set *m, ranks_evaluation *result);

#endif
