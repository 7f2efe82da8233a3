/*
 * run.c - `nrl run FILE [key=value ...]`: a script, which a frontend runs, or the plain run of a YAML config.
 */
#include "cli/verbs.h"
#include <nrl/host.h>
#include <stdlib.h>
#include <string.h>

static nrl_status train(arena *a, int argc, char **argv, const nrl_environment *env)
{
    nrl_run *r = NULL;
    nrl_status st = experiment_open(a, argc, argv, env, &r);
    if (st == NRL_OK && !env->check_only) st = nrl_run_train(r);
    nrl_run_close(r);
    return st;
}

/* The arguments after the file go to the script; the exit code that the script sets becomes the program's. */
static nrl_status run_script(nrl_component *frontend, int argc, char **argv, const nrl_environment *env)
{
    const nrl_frontend_job job = {.size = sizeof job,
                                  .script = argv[1],
                                  .words = (const char *const *)argv + 2,
                                  .n_words = (size_t)argc - 2,
                                  .environment = env};
    int code = -1;
    if (cli_getenv(CLI_NO_SCRIPTS))
        return nrl_fail(NRL_ERR_CONFIG, "cannot %s %s: scripts are disabled (--no-scripts, " CLI_NO_SCRIPTS ")",
                        argv[0], argv[1]);
    nrl_status st = frontend_run(frontend, &job, &code);
    if (st == NRL_OK && code > 0) exit(code); /* everything is closed */
    return st;
}

/* File names for which no frontend is queried. */
bool experiment_is_config(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot && (!strcmp(dot, ".yaml") || !strcmp(dot, ".yml"));
}

nrl_status experiment_run(arena *a, int argc, char **argv, const nrl_environment *env, const char *name)
{
    nrl_component *frontend = NULL;
    if (name || !experiment_is_config(argv[1])) NRL_TRY(frontend_find(env, name, argv[1], &frontend));
    nrl_status st = frontend ? run_script(frontend, argc, argv, env) : train(a, argc, argv, env);
    nrl_component_close(frontend);
    return st;
}

nrl_status cli_run(int argc, char **argv)
{
    arena a = {0};
    nrl_environment env;
    const char *frontend;
    NRL_TRY(cli_take_value(&argc, argv, "--frontend", &frontend));
    NRL_TRY(cli_expect(argc, argv, 1, -1));
    experiment_environment(&a, &env);
    env.signal = signals_catch();
    nrl_status st = experiment_ranks(&a, &env);
    if (st == NRL_OK) st = experiment_run(&a, argc, argv, &env, frontend);
    arena_free(&a);
    return st;
}
