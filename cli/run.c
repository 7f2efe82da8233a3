/*
 * run.c - `nrl run FILE [key=value ...]`: a Lua experiment, or the plain one of a YAML config.
 */
#include "cli/verbs.h"
#include "script/script.h"
#include <stdlib.h>
#include <string.h>

static bool is_script(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot && !strcmp(dot, ".lua");
}

static nrl_status train(arena *a, int argc, char **argv, const nrl_environment *env)
{
    nrl_run *r = NULL;
    nrl_status st = experiment_open(a, argc, argv, env, &r);
    if (st == NRL_OK && !env->check_only) st = nrl_run_train(r);
    nrl_run_close(r);
    return st;
}

/* What follows the file of `argv` goes to the script; os.exit's code becomes ours. */
static nrl_status run_script(int argc, char **argv, const nrl_environment *env)
{
    const script_environment script = {env, (const char *const *)argv + 2, (size_t)argc - 2,
                                       cli_getenv};
    int code = -1;
    nrl_status st = script_run(argv[1], &script, &code);
    if (st == NRL_OK && code > 0) exit(code); /* os.exit: everything is closed */
    return st;
}

nrl_status experiment_run(arena *a, int argc, char **argv, const nrl_environment *env)
{
    if (!is_script(argv[1])) return train(a, argc, argv, env);
    if (!cli_getenv(CLI_NO_SCRIPTS)) return run_script(argc, argv, env);
    return nrl_fail(NRL_ERR_CONFIG, "cannot %s %s: scripts are switched off (--no-scripts, " CLI_NO_SCRIPTS ")", argv[0],
                    argv[1]);
}

nrl_status cli_run(int argc, char **argv)
{
    arena a = {0};
    nrl_environment env;
    NRL_TRY(cli_expect(argc, argv, 1, -1));
    experiment_environment(&a, &env);
    env.signal = signals_catch();
    nrl_status st = experiment_ranks(&a, &env);
    if (st == NRL_OK) st = experiment_run(&a, argc, argv, &env);
    arena_free(&a);
    return st;
}
