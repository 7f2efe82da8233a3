/*
 * evaluator.h - the loss over data.eval or a file, which of the evaluations was the best, and when to stop early.
 */
#ifndef RUN_EVALUATOR_H
#define RUN_EVALUATOR_H
#include "run/step/trainer.h"

typedef struct {
    session *session;
    trainer *trainer; /* whose progress remembers the best, and which early_stop stops */
    metric_set metrics;
    value_list values; /* of the last evaluation */
} evaluator;

void evaluator_open(evaluator *ev, trainer *tr);
/* data.eval, or `file` in its place for this one time. NRL_ERR_CONFIG where there is neither. */
nrl_status evaluator_run(evaluator *ev, const char *file);
/* By eval.every: evaluates, logs the record, remembers a new best and calls the eval hook. */
nrl_status evaluator_run_due(evaluator *ev);
/* After a resume, where the best is to be exported: its checkpoint must be in this run's folder, or the best is
 * looked for anew. */
nrl_status evaluator_resume(evaluator *ev);

#endif
