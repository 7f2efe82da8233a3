/*
 * experiment.h - what the verbs that open runs share: the environment of a run from the process's, and
 * a run from a YAML file with overrides.
 */
#ifndef CLI_COMMON_EXPERIMENT_H
#define CLI_COMMON_EXPERIMENT_H
#include "cli/common/cli.h"
#include <nrl/run.h>

/* Variables, terminal, what is said of a crash; strings live in `a`. */
void experiment_environment(arena *a, nrl_environment *env);

/* Adds the place among ranks that a launcher gave, and this rank's share of the processors. For verbs
 * that several processes may do together; NRL_ERR_CONFIG as ranks_read. */
nrl_status experiment_ranks(arena *a, nrl_environment *env);
bool experiment_speaks(const nrl_environment *env); /* rank 0, for all: what they found together */

/* Of an nrl_environment: prints what has words, warnings to stderr. For verbs without loggers. */
nrl_status experiment_print_event(void *user, nrl_run *r, const nrl_run_event *e);

/* argv: VERB FILE.yaml [key=value ...]. The config tree lives in `a`, as long as the run. */
nrl_status experiment_open(arena *a, int argc, char **argv, const nrl_environment *env, nrl_run **out);

#endif
