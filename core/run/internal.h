/*
 * internal.h - a run: its parts, each of which uses only those above it, and what the public calls share.
 */
#ifndef RUN_INTERNAL_H
#define RUN_INTERNAL_H
#include "run/open/session.h"
#include "run/state/saver.h"
#include "run/state/state.h"
#include "run/step/evaluator.h"

typedef struct nrl_run run; /* its name in this directory */

struct nrl_run {
    hooks hooks;
    telemetry telemetry;
    session session;
    trainer trainer;
    evaluator evaluator;
    saver saver;
    void *samples;                 /* of eval.samples: the services'; NULL = none */
    void *measured;                /* of nrl_run_services.measure, in the session's memory; NULL before it */
    bool finished, report_refused; /* the latter: nrl_run_report has warned */
};

/* nrl_run_open of a tree; `problems` were found while it was read and are reported with the rest, NULL = none. */
nrl_status run_open(const nrl_node *config, config_problems *problems, const nrl_environment *env, run **out);

/* Restores what `resume` of the config names; the weights that env.weights names. (start.c) */
nrl_status run_resume(run *r);
nrl_status run_take_weights(run *r);

/* What a checkpoint is filled from and restored to. (start.c) */
state_parts run_state(run *r);

/* Emits the plan, unless the run is quiet, and warns about odd settings in any case. (plan.c) */
void run_log_plan(run *r);

/* Ends the run if the last eval.early_stop evaluations did not improve, also those before a resume. (train.c) */
void run_stop_early(run *r);

/* Every public call returns through this function, which reports an error to the other ranks. (run.c) */
nrl_status run_end_call(run *r, nrl_status st);
/* Of several runs in a process, warnings and the metrics that plugins report belong to this one from now on. */
void run_use(run *r);

#endif
