/*
 * experiment.c - a run from a YAML file, as several verbs need it.
 */
#include "cli/experiment.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void experiment_environment(arena *a, run_environment *env)
{
    bool terminal = isatty(STDOUT_FILENO);
    *env = (run_environment){.plugin_path = cli_getenv("NRL_PLUGIN_PATH"),
                             .hf_home = cli_getenv("HF_HOME"),
                             .exe_dir = cli_exe_dir(a),
                             .terminal = terminal,
                             .color = terminal && !cli_getenv("NO_COLOR"),
                             .signal = cli_catch_signals()};
}

nrl_status experiment_open(arena *a, int argc, char **argv, const run_environment *env, run **out)
{
    config_problems problems = {0};
    run_environment with_problems = *env;
    nrl_node *root;
    NRL_TRY(cli_read_config(a, &problems, argv[1], argc - 2, argv + 2, &root));
    with_problems.problems = &problems;
    return run_open(root, &with_problems, out);
}
