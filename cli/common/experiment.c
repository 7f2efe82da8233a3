/*
 * experiment.c - opens a run from a YAML file, for several verbs.
 */
#include "cli/common/experiment.h"
#include "cli/common/auto.h"
#include "cli/common/hosts.h"
#include "cli/common/job_secret.h"
#include "cli/common/ranks.h"
#include "cli/common/spool.h"
#include <nrl/inference.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void experiment_environment(arena *a, nrl_environment *env)
{
    bool terminal = isatty(STDOUT_FILENO);
    *env = (nrl_environment){.size = sizeof *env,
                             .plugin_path = cli_getenv("NRL_PLUGIN_PATH"),
                             .user_plugins = cli_user_plugins(a),
                             .variable = cli_getenv,
                             .exe_dir = cli_exe_dir(a),
                             .terminal = terminal,
                             .color = terminal && !cli_getenv("NO_COLOR"),
                             .services = nrl_inference_services(),
                             .step = cli_report_crashes(),
                             .no_config_plugins = cli_getenv(CLI_NO_CONFIG_PLUGINS)};
}

/* OpenMP's runtime is loaded with the CPU backend and reads this variable then. A value that the user set stays. */
static void share_processors(const nrl_rank_info *place)
{
    char text[16];
    snprintf(text, sizeof text, "%d", ranks_threads(cli_getenv, place));
    setenv("OMP_NUM_THREADS", text, 0);
}

nrl_status experiment_ranks(arena *a, nrl_environment *env)
{
    nrl_rank_info *place = arena_alloc(a, sizeof *place);
    job_secret secret;
    NRL_TRY(ranks_read(a, cli_getenv, place));
    NRL_TRY(job_secret_take(&secret)); /* one rank needs no secret, but wipes it too */
    place->secret = job_secret_key(a, &secret, place->run_id);
    if (place->world == 1) return NRL_OK;
    share_processors(place);
    env->ranks = place;
    return NRL_OK;
}

bool experiment_speaks(const nrl_environment *env)
{
    return !env->ranks || env->ranks->rank == 0;
}

const char *experiment_run_of(arena *a, const char *word)
{
    struct stat s;
    const char *at = strrchr(word, '@');
    return at && stat(word, &s) ? arena_strndup(a, word, (size_t)(at - word)) : word; /* a name may contain an @ */
}

/* A process that was started alone ignores launch.nodes, and warns about it. */
static void inspect_nodes(arena *a, nrl_config *config, const nrl_environment *env)
{
    launch_host *hosts;
    const size_t n = hosts_read(a, config, &hosts);
    if (n && !env->ranks && !env->check_only)
        nrl_warn("launch.nodes lists %zu node%s, but this is one process; `nrl launch -- run FILE` starts the ranks", n,
                 n > 1 ? "s" : "");
}

/* Values for the keys that say `auto`. Several ranks have them from `nrl launch`; without it the run reports them. */
static nrl_status choose(arena *a, nrl_config *config, int argc, char **argv, const char *rows,
                         const nrl_environment *env)
{
    const char *const *chosen;
    char **words = arena_alloc(a, (size_t)argc * sizeof *words);
    auto_request r = {.file = argv[1],
                      .words = words,
                      .ranks = 1,
                      .trains = !env->evaluate_only,
                      .quiet = env->quiet && !env->no_output};
    for (int i = 2; i < argc; i++)
        words[r.n_words++] = argv[i];
    if (rows) words[r.n_words++] = (char *)(uintptr_t)rows;
    NRL_TRY(auto_choose(a, config, &r, &chosen));
    for (; *chosen; chosen++)
        nrl_config_override(config, *chosen);
    return NRL_OK;
}

nrl_status experiment_open(arena *a, int argc, char **argv, const nrl_environment *env, nrl_run **out)
{
    nrl_config *config = nrl_config_create(a);
    nrl_status st = nrl_config_read(config, argv[1]);
    for (int i = 2; st == NRL_OK && i < argc; i++)
        nrl_config_override(config, argv[i]);
    if (st == NRL_OK) {
        nrl_config_substitute(config, cli_variable);
        inspect_nodes(a, config, env);
        const char *rows = NULL;
        if (!env->no_output) st = spool_train(a, config, env, &rows);
        if (st == NRL_OK && !env->ranks) st = choose(a, config, argc, argv, rows, env);
        if (st == NRL_OK) st = nrl_run_open(config, env, out);
    }
    nrl_config_destroy(config);
    return st;
}
