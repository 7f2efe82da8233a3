/*
 * run.c - `nrl run FILE [key=value ...]`: a script, which a frontend runs, or the plain run of a YAML config.
 */
#include "base/escape.h"
#include "base/json.h"
#include "base/yaml.h"
#include "cli/verbs.h"
#include <nrl/host.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SAMPLE_BYTES = 600 };

nrl_status experiment_take_flags(int *argc, char **argv, nrl_environment *env, experiment_view *view)
{
    bool quiet = cli_take_flag(argc, argv, "-q"), verbose = cli_take_flag(argc, argv, "-v");
    env->quiet = cli_take_flag(argc, argv, "--quiet") || quiet;
    view->verbose = cli_take_flag(argc, argv, "--verbose") || verbose;
    return env->quiet && view->verbose ? nrl_fail(NRL_ERR_CONFIG, "give -q or -v, not both") : NRL_OK;
}

/* Samples at even distances in the data. */
static void show_samples(nrl_run *r, const experiment_view *view)
{
    int64_t n = 0;
    free(nrl_run_sample_text(r, 0, &n));
    const int64_t count = view->samples < n ? view->samples : n;
    for (int64_t k = 0; k < count; k++) {
        const int64_t i = k * n / count;
        char *text = nrl_run_sample_text(r, i, &n);
        size_t size = text ? strlen(text) : 0, shown = view->full || size <= SAMPLE_BYTES ? size : SAMPLE_BYTES;
        while (shown < size && shown && ((unsigned char)text[shown] & 0xc0) == 0x80)
            shown--; /* not inside a character */
        printf("\nsample %lld of %lld\n", (long long)i + 1, (long long)n);
        escape_print(stdout, text ? text : "", shown);
        printf("%s\n", shown < size ? " ... (--full)" : "");
        nrl_free(text);
    }
    if (count) putchar('\n');
}

void experiment_show(nrl_run *r, const experiment_view *view)
{
    if (view->verbose) {
        char *text = yaml_write(nrl_run_config(r));
        printf("\n# the config with all defaults\n");
        escape_print(stdout, text, strlen(text));
        putchar('\n');
        free(text);
    }
    if (view->samples) show_samples(r, view);
    fflush(stdout);
}

void experiment_record_restart(const nrl_run *r, const nrl_environment *env)
{
    const char *given = cli_getenv("NRL_RESTART"); /* "2 rank 1: signal 9 (Killed)" */
    char *cause = NULL;
    arena a = {0};
    if (!given || !experiment_speaks(env)) return;
    nrl_node *map = node_new(&a, NRL_NODE_MAP);
    node_append_int(&a, map, "restart", strtoll(given, &cause, 10));
    node_append_int(&a, map, "step", nrl_run_steps_done(r));
    node_append(&a, map, "time", node_f64(&a, (double)time(NULL)));
    node_append_text(&a, map, "cause", cause + strspn(cause, " "));
    char *line = json_write(map, 0), *path = arena_printf(&a, "%s/restarts.jsonl", nrl_run_out(r));
    FILE *f = fopen(path, "ae");
    bool ok = f && fprintf(f, "%s\n", line) > 0;
    if (f && fclose(f)) ok = false;
    if (!ok) nrl_warn("cannot record the restart in %s", path);
    free(line);
    arena_free(&a);
}

static nrl_status train(arena *a, int argc, char **argv, const nrl_environment *env, const experiment_view *view)
{
    nrl_run *r = NULL;
    nrl_status st = experiment_open(a, argc, argv, env, &r);
    if (st == NRL_OK && experiment_speaks(env)) experiment_show(r, view);
    if (st == NRL_OK && !env->check_only) experiment_record_restart(r, env);
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

nrl_status experiment_run(arena *a, int argc, char **argv, const nrl_environment *env, const char *name,
                          const experiment_view *view)
{
    nrl_component *frontend = NULL;
    if (name || !experiment_is_config(argv[1])) NRL_TRY(frontend_find(env, name, argv[1], &frontend));
    nrl_status st = NRL_OK;
    if (frontend && (view->samples || view->verbose))
        st = nrl_fail(NRL_ERR_CONFIG, "%s is a script; -v and --sample require a config, FILE.yaml", argv[1]);
    else
        st = frontend ? run_script(frontend, argc, argv, env) : train(a, argc, argv, env, view);
    nrl_component_close(frontend);
    return st;
}

nrl_status cli_run(int argc, char **argv)
{
    arena a = {0};
    nrl_environment env;
    const char *frontend;
    experiment_view view = {0};
    experiment_environment(&a, &env);
    NRL_TRY(experiment_take_flags(&argc, argv, &env, &view));
    NRL_TRY(cli_take_value(&argc, argv, "--frontend", &frontend));
    NRL_TRY(cli_expect(argc, argv, 1, -1));
    env.signal = signals_catch();
    nrl_status st = experiment_ranks(&a, &env);
    if (st == NRL_OK && experiment_speaks(&env)) signals_answer(env.step);
    if (st == NRL_OK) st = experiment_run(&a, argc, argv, &env, frontend, &view);
    arena_free(&a);
    return st;
}
