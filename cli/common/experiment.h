/*
 * experiment.h - shared by the verbs that open runs: the environment of a run from that of the
 * process, and a run from a YAML file with overrides.
 */
#ifndef CLI_COMMON_EXPERIMENT_H
#define CLI_COMMON_EXPERIMENT_H
#include "cli/common/cli.h"
#include <nrl/run.h>

/* Variables, terminal, crash messages; `a` owns the strings. */
void experiment_environment(arena *a, nrl_environment *env);

/* Adds the rank that a launcher assigned, and this rank's share of the processors. For verbs that several
 * processes may run together; NRL_ERR_CONFIG as for ranks_read. */
nrl_status experiment_ranks(arena *a, nrl_environment *env);
bool experiment_speaks(const nrl_environment *env); /* rank 0: prints for all ranks */

/* The directory of RUN, RUN@STEP or RUN@best: `word` itself unless it ends in @STEP. */
const char *experiment_run_of(arena *a, const char *word);

/* argv: VERB FILE.yaml [key=value ...]. `a` owns the config tree for the lifetime of the run. */
nrl_status experiment_open(arena *a, int argc, char **argv, const nrl_environment *env, nrl_run **out);

#endif
