/*
 * internal.h - a run: its parts, which know only those above them here, and what its public calls share.
 */
#ifndef RUN_INTERNAL_H
#define RUN_INTERNAL_H
#include "run/state/saver.h"
#include "run/step/evaluator.h"

typedef struct nrl_run run; /* as this folder calls it */

/* Of nrl_run_services.measure: between two steps. */
typedef struct {
    double wall, cpu, norm_sum, norm_weight;
} run_measured;

struct nrl_run {
    hooks hooks;
    telemetry telemetry;
    session session;
    trainer trainer;
    evaluator evaluator;
    saver saver;
    run_measured measured;
    void *samples; /* of eval.samples: the services'; NULL = none */
    bool finished;
};

/* nrl_run_open of a tree; `problems` were found while it was read and are reported with the rest, NULL = none. */
nrl_status run_open(const nrl_node *config, config_problems *problems, const nrl_environment *env, run **out);

/* Emits the plan, unless the run is quiet, and warns about odd settings. (plan.c) */
void run_tell_plan(run *r);

/* What every public call returns through: an error is told to the other ranks. (run.c) */
nrl_status run_end_call(run *r, nrl_status st);

#endif
