/*
 * check.c - `nrl check FILE [--json] [key=value ...]`: everything a run does before it opens a device.
 */
#include "base/escape.h"
#include "cli/verbs.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* nrl_environment.event: warnings go to stderr, the rest to stdout; with --json the plan alone. */
static nrl_status check_print_event(void *user, nrl_run *r, const nrl_run_event *e)
{
    const bool *json = user;
    FILE *to = e->kind == NRL_EVENT_WARNING ? stderr : stdout;
    (void)r;
    if (*json && e->kind != NRL_EVENT_PLAN && e->kind != NRL_EVENT_WARNING) return NRL_OK;
    char *plan = !e->plan ? NULL : *json ? nrl_json_write(e->plan, 2) : nrl_plan_text(e->plan);
    const char *text = plan ? plan : e->text;
    if (text) {
        flockfile(to);
        if (to == stderr) fputs("warning: ", to);
        escape_print(to, text, strlen(text));
        fputc('\n', to);
        fflush(to);
        funlockfile(to);
    }
    nrl_free(plan);
    return NRL_OK;
}

nrl_status cli_check(int argc, char **argv)
{
    arena a = {0};
    nrl_environment env;
    const char *frontend, *samples;
    experiment_view view = {0};
    char *end = "";
    experiment_environment(&a, &env);
    NRL_TRY(experiment_take_flags(&argc, argv, &env, &view));
    view.full = cli_take_flag(&argc, argv, "--full");
    NRL_TRY(cli_take_value(&argc, argv, "--sample", &samples));
    if (samples) view.samples = strtoll(samples, &end, 10);
    if (samples && (*end || view.samples < 1))
        return nrl_fail(NRL_ERR_CONFIG, "--sample: expected a number of samples, found '%s'", samples);
    if (view.full && !view.samples) view.samples = 1;
    bool json = cli_take_flag(&argc, argv, "--json");
    NRL_TRY(cli_take_value(&argc, argv, "--frontend", &frontend));
    NRL_TRY(cli_expect(argc, argv, 1, -1));
    if (json && (view.samples || view.verbose || env.quiet))
        return nrl_fail(NRL_ERR_CONFIG, "--json prints only the plan; expected no -q, -v or --sample");
    nrl_status st = experiment_ranks(&a, &env);
    env.check_only = true;
    env.event = check_print_event;
    env.event_user = &json;
    env.takes_warnings = true;
    if (st == NRL_OK) st = experiment_run(&a, argc, argv, &env, frontend, &view);
    if (st == NRL_OK && !json && !env.quiet && experiment_speaks(&env))
        printf("ok: no mistakes found, nothing was trained\n");
    arena_free(&a);
    return st;
}
