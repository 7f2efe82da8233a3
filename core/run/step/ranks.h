/*
 * ranks.h - what the ranks of a run exchange: before a step, which call was made and the weights of the batch; after
 * it, sums and metrics. Each is one small exchange, summed on every rank in the order of the ranks or, if their number
 * is fixed, of the shards of the batch, so that all ranks have the same values and decide alike. With one rank it is a
 * copy.
 */
#ifndef RUN_RANKS_H
#define RUN_RANKS_H
#include "run/step/trainer.h"

/* Checks that all ranks made the same call with the same arguments; the error names both calls. [step] */
nrl_status ranks_agree(nrl_mesh *mesh, const data_shards *shards, const char *call, uint64_t arguments);

/* Before a step: checks that ranks agree on the call, sums the weights `own` of all shards of all ranks, and
 * distributes the decisions of rank 0's hooks (learning rate, stop). `step`: number of finished steps. [step] */
nrl_status ranks_begin_step(nrl_mesh *mesh, const data_shards *shards, int64_t step, const step_weights *own,
                            double *weights, double *lr_override, const char **stop_reason);

typedef struct {
    double sums[STEP_TERMS], weights[STEP_TERMS], tokens;
} ranks_evaluation;

/* Combines result[shards] of all ranks into result[0], and the metrics of the algorithm with them. */
nrl_status ranks_end_step(nrl_mesh *mesh, const data_shards *shards, metric_set *m, ranks_result *result);

/* Adds what other plugins (optimizers) and step_end reported to the metrics of the step or the evaluation. Exchanges
 * nothing if only an algorithm without step_end has metrics. */
nrl_status ranks_late_metrics(nrl_mesh *mesh, const data_shards *shards, metric_set *m, bool algorithm_reports);

/* The same for an evaluation. */
nrl_status ranks_end_evaluation(nrl_mesh *mesh, const data_shards *shards, metric_set *m, ranks_evaluation *result);

#endif
