/*
 * evaluator.h - the loss over sets of data, and which evaluation of a run was the best. An evaluator needs only the
 * given parts, not an open run.
 */
#ifndef RUN_EVALUATOR_H
#define RUN_EVALUATOR_H
#include "run/step/trainer.h"

/* What an evaluator uses; owned by the caller, outlives the evaluator. */
typedef struct {
    work *work; /* the walk of the policy; open before an evaluation, with a strategy */
    nrl_mesh *mesh;
    const data_shards *shards;  /* of the batches of all ranks */
    const metric_rows *metrics; /* metrics that an evaluation may report */
    hooks *hooks;
} evaluator_parts;

typedef struct {
    evaluator_parts parts;
    metric_set metrics;
    value_list values;   /* of the last evaluation: eval_loss, then others */
    arena memory, names; /* of both; of the names of the values */
} evaluator;

/* Batches to evaluate on. */
typedef struct {
    const char *name; /* "": the values are named eval_VALUE, else eval_NAME_VALUE */
    size_t data_set;  /* as in reference_column */
    int64_t n_steps;
    /* Functions that begin the batches of a step and end them. The second is called in any case. */
    nrl_status (*begin)(void *user, int64_t step, const data_step **data);
    void (*end)(void *user);
    void *user;
} evaluator_set;

/* `n_values`: room in `values`. */
void evaluator_open(evaluator *ev, const evaluator_parts *parts, size_t n_values);
void evaluator_close(evaluator *ev);
void evaluator_clear(evaluator *ev); /* removes the values of the last evaluation */
/* NRL_ERR_CONFIG if there is no set. `step`: the step that the evaluation follows, for messages. [step] */
nrl_status evaluator_run(evaluator *ev, const evaluator_set *sets, size_t n_sets, int64_t step);

/* Stores a new best value of checkpoint.metric after the evaluation at p->step, or counts an evaluation without one;
 * NaN is never the best. NRL_ERR_CONFIG: the evaluation has no such value. */
nrl_status best_judge(run_progress *p, const value_list *v, const char *metric, bool is_largest);
/* Call it after a resume if the best checkpoint is to be exported: if it is not in `out`, the search for the best one
 * starts again. All ranks call it. [step] */
nrl_status best_resume(run_progress *p, nrl_mesh *mesh, const char *out);

#endif
