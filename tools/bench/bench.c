/*
 * bench.c - `nrl bench` and `nrl profile`: run a config's steps without writing its output
 * directory. No figure includes the first steps, which create primitives and fault pages in. A
 * bench measures the speed of undisturbed steps, then profiles a few more to see where their time
 * goes. A profile only has profiled steps and reports phases and shapes separately.
 */
#include "bench.h"
#include "base/json.h"
#include "cli/common/experiment.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

enum { DEFAULT_STEPS = 10, MAX_STEPS = 10000, MOST_PROFILED = 5, DEFAULT_TOP = 15, MAX_TOP = 1000 };

static double value_of(const nrl_run_event *e, const char *name)
{
    for (size_t i = 0; i < e->n_values; i++)
        if (!strcmp(e->values[i].name, name)) return e->values[i].value;
    return NAN;
}

static double cpu_clock(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void bench_begin_steps(bench_steps *s, arena *a, int64_t steps)
{
    *s = (bench_steps){.seconds = arena_alloc(a, (size_t)(steps ? steps : 1) * sizeof *s->seconds)};
    s->cpu_begin = cpu_clock();
}

void bench_add_step(bench_steps *s, const nrl_run_event *e)
{
    s->cpu_seconds = cpu_clock() - s->cpu_begin;
    s->seconds[s->n++] = e->seconds;
    s->tokens += e->tokens;
    s->mfu += value_of(e, "mfu");
    s->data_fraction += value_of(e, "data_fraction");
    s->last_loss = e->loss;
}

/* Takes `steps` steps, or as many as are left. */
static nrl_status take_steps(nrl_run *r, arena *a, int64_t steps, bench_steps *out)
{
    bench_begin_steps(out, a, steps);
    while (out->n < steps) {
        nrl_run_event e = {.size = sizeof e};
        bool done;
        NRL_TRY(nrl_run_step(r, &e, &done));
        if (done) break;
        bench_add_step(out, &e);
    }
    return NRL_OK;
}

static nrl_status need_steps(int64_t found, int64_t steps)
{
    if (found == steps + BENCH_WARM_UP) return NRL_OK;
    return nrl_fail(NRL_ERR_CONFIG,
                    "train.steps: the config has %lld steps, but %lld warm-up steps and %lld measured steps (--steps) "
                    "are needed",
                    (long long)found, (long long)BENCH_WARM_UP, (long long)steps);
}

static nrl_status warm_up(nrl_run *r, arena *a, bench_found *f, int64_t *n)
{
    bench_steps first, rest;
    NRL_TRY(take_steps(r, a, 1, &first));
    f->first_loss = first.last_loss;
    NRL_TRY(take_steps(r, a, BENCH_WARM_UP - 1, &rest));
    *n = first.n + rest.n;
    return NRL_OK;
}

unsigned bench_what(const bench_options *o)
{
    return (o->trace ? NRL_PROFILE_TRACE : 0) | (o->memory ? NRL_PROFILE_MEMORY : 0);
}

static nrl_status collect_ranks(arena *a, nrl_run *r, bench_found *f)
{
    const bench_steps *s = f->plain.n ? &f->plain : &f->profiled;
    const double own[] = {s->cpu_seconds / (double)s->n, (double)f->stats.used_peak_bytes};
    double *all = arena_alloc(a, (size_t)f->stats.ranks * sizeof own);
    NRL_TRY(nrl_run_all_gather(r, own, 2, all));
    f->cpu_seconds = f->most_used_peak_bytes = 0;
    for (int32_t i = 0; i < f->stats.ranks; i++) {
        f->cpu_seconds += all[2 * i] / f->stats.ranks;
        f->most_used_peak_bytes = fmax(f->most_used_peak_bytes, all[2 * i + 1]);
    }
    return NRL_OK;
}

nrl_status bench_collect(arena *a, nrl_run *r, const bench_options *o, bench_found *f)
{
    f->phases.size = sizeof f->phases;
    f->stats.size = sizeof f->stats;
    f->has_memory = o->memory;
    f->top = o->top;
    NRL_TRY(nrl_run_phase_times(r, &f->phases));
    nrl_run_info_fill(r, &f->stats);
    NRL_TRY(collect_ranks(a, r, f));
    return o->trace ? nrl_run_trace_write(r, o->trace, &f->n_dropped) : NRL_OK;
}

static nrl_status take_profiled(nrl_run *r, arena *a, int64_t steps, const bench_options *o, bench_found *f)
{
    NRL_TRY(nrl_run_profile_begin(r, bench_what(o)));
    return take_steps(r, a, steps, &f->profiled);
}

static nrl_status measure(nrl_run *r, arena *a, const bench_options *o, bench_found *f)
{
    const int64_t steps = o->steps, most = (steps + 1) / 2 < MOST_PROFILED ? (steps + 1) / 2 : MOST_PROFILED;
    int64_t warm;
    NRL_TRY(warm_up(r, a, f, &warm));
    NRL_TRY(nrl_run_watch_begin(r));
    NRL_TRY(o->is_profile ? take_profiled(r, a, steps, o, f) : take_steps(r, a, steps, &f->plain));
    NRL_TRY(nrl_run_watch_end(r, f->watched, &f->n_watched));
    NRL_TRY(need_steps(warm + f->plain.n + f->profiled.n, steps));
    if (!o->is_profile) NRL_TRY(take_profiled(r, a, most, o, f));
    return bench_collect(a, r, o, f);
}

static nrl_status read_number(int *argc, char **argv, const char *flag, int64_t most, int64_t *value)
{
    const char *text;
    char *end;
    NRL_TRY(cli_take_value(argc, argv, flag, &text));
    if (!text) return NRL_OK;
    *value = strtoll(text, &end, 10);
    if (*end || *value < 1 || *value > most)
        return nrl_fail(NRL_ERR_CONFIG, "%s: '%s': expected a number from 1 to %lld", flag, text, (long long)most);
    return NRL_OK;
}

static void show(const nrl_node *tree, const bench_options *o)
{
    char *text = o->json ? json_write(tree, 0) : NULL;
    if (o->json)
        puts(text);
    else
        bench_page(tree);
    if (!o->json && o->trace) printf("\ntimeline in %s: open it at https://ui.perfetto.dev\n", o->trace);
    free(text);
}

static nrl_status take_options(int *argc, char **argv, bool profile, bench_options *o)
{
    *o = (bench_options){.is_profile = profile, .steps = DEFAULT_STEPS, .top = profile ? DEFAULT_TOP : 0};
    o->json = cli_take_flag(argc, argv, "--json");
    NRL_TRY(read_number(argc, argv, "--steps", MAX_STEPS, &o->steps));
    if (!profile) return cli_expect(*argc, argv, 1, -1);
    NRL_TRY(read_number(argc, argv, "--top", MAX_TOP, &o->top));
    o->memory = cli_take_flag(argc, argv, "--memory");
    o->output = cli_take_flag(argc, argv, "--output");
    NRL_TRY(cli_take_value(argc, argv, "--trace", &o->trace));
    return cli_expect(*argc, argv, 1, -1);
}

/* Before minutes of work: the file of the timeline can be written, and only replaces an earlier timeline. */
static nrl_status try_trace(const bench_options *o, const nrl_environment *env)
{
    static const char begin[] = "{\"displayTimeUnit\"";
    char head[sizeof begin] = "";
    struct stat s;
    if (!o->trace || !experiment_speaks(env)) return NRL_OK;
    bool exists = !stat(o->trace, &s) && S_ISREG(s.st_mode) && s.st_size;
    FILE *f = fopen(o->trace, exists ? "r+e" : "ae");
    if (!f) return nrl_fail(NRL_ERR_CONFIG, "--trace: cannot write %s: %s", o->trace, strerror(errno));
    if (exists && fread(head, 1, sizeof begin - 1, f) && !strcmp(head, begin)) exists = false;
    fclose(f);
    return exists ? nrl_fail(NRL_ERR_CONFIG, "--trace: '%s' exists, and is not a timeline", o->trace) : NRL_OK;
}

static bool is_config(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot && (!strcmp(dot, ".yaml") || !strcmp(dot, ".yml"));
}

nrl_status bench_measure(int argc, char **argv, bool profile)
{
    arena a = {0};
    nrl_environment env;
    nrl_run *r = NULL;
    nrl_node *tree = NULL;
    bench_options o;
    NRL_TRY(take_options(&argc, argv, profile, &o));
    bench_found *found = arena_alloc(&a, sizeof *found);
    experiment_environment(&a, &env);
    nrl_status st = experiment_ranks(&a, &env);
    env.quiet = true;
    env.no_output = !o.output;
    if (st == NRL_OK) st = try_trace(&o, &env);
    if (st == NRL_OK && profile && !is_config(argv[1])) {
        st = bench_script(&a, argc, argv, &env, &o, &tree);
    } else {
        if (st == NRL_OK) st = experiment_open(&a, argc, argv, &env, &r);
        if (st == NRL_OK) st = measure(r, &a, &o, found);
        if (st == NRL_OK && experiment_speaks(&env)) st = bench_tree(&a, r, found, &tree);
    }
    if (st == NRL_OK && tree) show(tree, &o);
    nrl_run_close(r);
    arena_free(&a);
    return st;
}
