/*
 * check.c - `nrl check FILE [--json] [key=value ...]`: everything a run does before it opens a device.
 */
#include "base/escape.h"
#include "base/node.h"
#include "cli/verbs.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    bool json, shows_samples; /* --json; --sample, which prints the first sample with the others */
} check_output;

static char *check_plan_text(const nrl_node *plan, bool without_sample)
{
    arena a = {0};
    char *text = nrl_plan_text(without_sample ? node_without(&a, plan, "sample") : plan);
    arena_free(&a);
    return text;
}

/* nrl_environment.event: warnings go to stderr, the rest to stdout; with --json the plan alone. */
static nrl_status check_print_event(void *user, nrl_run *r, const nrl_run_event *e)
{
    const check_output *output = user;
    FILE *to = e->kind == NRL_EVENT_WARNING ? stderr : stdout;
    (void)r;
    if (output->json && e->kind != NRL_EVENT_PLAN && e->kind != NRL_EVENT_WARNING) return NRL_OK;
    char *plan = NULL;
    if (e->plan) plan = output->json ? nrl_json_write(e->plan, 2) : check_plan_text(e->plan, output->shows_samples);
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
    check_output output = {cli_take_flag(&argc, argv, "--json"), view.samples > 0};
    NRL_TRY(cli_take_value(&argc, argv, "--frontend", &frontend));
    NRL_TRY(cli_expect(argc, argv, 1, -1));
    if (output.json && (view.samples || view.verbose || env.quiet))
        return nrl_fail(NRL_ERR_CONFIG, "--json prints only the plan; expected no -q, -v or --sample");
    nrl_status st = experiment_ranks(&a, &env);
    env.check_only = true;
    env.event = check_print_event;
    env.event_user = &output;
    env.takes_warnings = true;
    if (st == NRL_OK) st = experiment_run(&a, argc, argv, &env, frontend, &view);
    if (st == NRL_OK && !output.json && !env.quiet && experiment_speaks(&env))
        printf("ok: no mistakes found, nothing was trained\n");
    arena_free(&a);
    return st;
}
