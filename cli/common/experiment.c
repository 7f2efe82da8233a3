/*
 * experiment.c - a run from a YAML file, as several verbs need it.
 */
#include "cli/common/experiment.h"
#include "cli/common/job_secret.h"
#include "cli/common/ranks.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void experiment_environment(arena *a, run_environment *env)
{
    bool terminal = isatty(STDOUT_FILENO);
    *env = (run_environment){.plugin_path = cli_getenv("NRL_PLUGIN_PATH"),
                             .variable = cli_getenv,
                             .exe_dir = cli_exe_dir(a),
                             .terminal = terminal,
                             .color = terminal && !cli_getenv("NO_COLOR"),
                             .step = cli_tell_crashes(),
                             .no_config_plugins = cli_getenv(CLI_NO_CONFIG_PLUGINS)};
}

/* OpenMP's runtime comes with the CPU backend and reads this then. Who set it already knows better. */
static void share_processors(const mesh_place *place)
{
    char text[16];
    snprintf(text, sizeof text, "%d", ranks_threads(cli_getenv, place));
    setenv("OMP_NUM_THREADS", text, 0);
}

nrl_status experiment_ranks(arena *a, run_environment *env)
{
    mesh_place *place = arena_alloc(a, sizeof *place);
    job_secret secret;
    NRL_TRY(ranks_read(a, cli_getenv, place));
    NRL_TRY(job_secret_take(&secret)); /* one rank needs none, but wipes it too */
    place->secret = job_secret_key(a, &secret, place->run_id);
    if (place->world == 1) return NRL_OK;
    share_processors(place);
    env->place = place;
    return NRL_OK;
}

bool experiment_speaks(const run_environment *env)
{
    return !env->place || env->place->rank == 0;
}

/* A list of nodes is not followed by a process that was started alone: it says so. */
static void look_at_nodes(const nrl_node *root, const run_environment *env)
{
    size_t n = nrl_node_size(nrl_node_find(nrl_node_find(root, "launch"), "nodes"));
    if (n && !env->place && !env->check_only)
        nrl_warn("launch.nodes names %zu node%s, but this is one process; `nrl launch -- run FILE` starts the ranks",
                 n, n > 1 ? "s" : "");
}

nrl_status experiment_open(arena *a, int argc, char **argv, const run_environment *env, run **out)
{
    config_problems problems = {0};
    run_environment with_problems = *env;
    nrl_node *root;
    NRL_TRY(cli_read_config(a, &problems, argv[1], argc - 2, argv + 2, &root));
    look_at_nodes(root, env);
    with_problems.problems = &problems;
    return run_open(root, &with_problems, out);
}
