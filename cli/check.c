/*
 * check.c - `nrl check FILE [key=value ...]`: everything a run does before it opens a device.
 */
#include "cli/verbs.h"
#include <stdio.h>

nrl_status cli_check(int argc, char **argv)
{
    arena a = {0};
    nrl_environment env;
    const char *frontend;
    NRL_TRY(cli_take_value(&argc, argv, "--frontend", &frontend));
    NRL_TRY(cli_expect(argc, argv, 1, -1));
    experiment_environment(&a, &env);
    nrl_status st = experiment_ranks(&a, &env);
    env.check_only = true;
    env.event = experiment_print_event;
    env.takes_warnings = true;
    if (st == NRL_OK) st = experiment_run(&a, argc, argv, &env, frontend);
    if (st == NRL_OK && experiment_speaks(&env)) printf("ok: nothing was trained\n");
    arena_free(&a);
    return st;
}
