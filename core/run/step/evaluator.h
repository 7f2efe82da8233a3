/*
 * evaluator.h - the loss over sets of data, and which of the evaluations of a run was the best.
 */
#ifndef RUN_EVALUATOR_H
#define RUN_EVALUATOR_H
#include "run/open/session.h"
#include "run/step/trainer.h"

/* The pointers stay the caller's. */
typedef struct {
    session *session;
    arena *memory; /* of the names of values */
    metric_set metrics;
    value_list values; /* of the last evaluation: eval_loss, then others */
} evaluator;

/* NRL_ERR_CONFIG where there is no set. `step`: after which it is, for messages. [step] */
nrl_status evaluator_run(evaluator *ev, const session_data *sets, size_t n_sets, int64_t step);

/* Remembers a new best of checkpoint.metric among the values of the evaluation after p->step, or counts one without
 * it; a NaN is never the best. NRL_ERR_CONFIG: the evaluation has no such value. */
nrl_status best_judge(run_progress *p, const value_list *v, const char *metric, bool is_largest);
/* After a resume, where the best is to be exported: its checkpoint must be in `out`, or the best is looked for anew.
 * All ranks call it. [step] */
nrl_status best_resume(run_progress *p, nrl_mesh *mesh, const char *out);

#endif
