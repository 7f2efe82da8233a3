/*
 * bench.c - `nrl bench` and `nrl profile`: run a config's steps without writing its output
 * directory. No figure includes the first steps, which create primitives and fault pages in. A
 * bench measures the speed of undisturbed steps, then profiles a few more to see where their time
 * goes. A profile only has profiled steps and reports phases and shapes separately.
 */
#include "bench.h"
#include "base/json.h"
#include "cli/common/experiment.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WARM_UP = 2, DEFAULT_STEPS = 10, MAX_STEPS = 10000, MOST_PROFILED = 5, DEFAULT_TOP = 15, MAX_TOP = 1000 };

static double value_of(const nrl_run_event *e, const char *name)
{
    for (size_t i = 0; i < e->n_values; i++)
        if (!strcmp(e->values[i].name, name)) return e->values[i].value;
    return NAN;
}

/* Takes `steps` steps, or as many as are left. */
static nrl_status take_steps(nrl_run *r, arena *a, int64_t steps, bench_steps *out)
{
    *out = (bench_steps){.seconds = arena_alloc(a, (size_t)(steps ? steps : 1) * sizeof *out->seconds)};
    while (out->n < steps) {
        nrl_run_event e = {.size = sizeof e};
        bool done;
        NRL_TRY(nrl_run_step(r, &e, &done));
        if (done) break;
        out->seconds[out->n++] = e.seconds;
        out->tokens += e.tokens;
        out->mfu += value_of(&e, "mfu");
        out->data_fraction += value_of(&e, "data_fraction");
        out->last_loss = e.loss;
    }
    return NRL_OK;
}

static nrl_status need_steps(int64_t found, int64_t steps)
{
    if (found == steps + WARM_UP) return NRL_OK;
    return nrl_fail(NRL_ERR_CONFIG,
                    "train.steps: the config has %lld steps, but %lld to warm up and %lld to "
                    "measure (--steps) are needed",
                    (long long)found, (long long)WARM_UP, (long long)steps);
}

static nrl_status warm_up(nrl_run *r, arena *a, bench_found *f, int64_t *n)
{
    bench_steps first, rest;
    NRL_TRY(take_steps(r, a, 1, &first));
    f->first_loss = first.last_loss;
    NRL_TRY(take_steps(r, a, WARM_UP - 1, &rest));
    *n = first.n + rest.n;
    return NRL_OK;
}

static nrl_status take_profiled(nrl_run *r, arena *a, int64_t steps, bench_found *f)
{
    NRL_TRY(nrl_run_profile(r, true));
    NRL_TRY(take_steps(r, a, steps, &f->profiled));
    f->phases.size = sizeof f->phases;
    return nrl_run_phase_times(r, &f->phases);
}

static nrl_status measure(nrl_run *r, arena *a, int64_t steps, bool profile, bench_found *f)
{
    int64_t warm, most = (steps + 1) / 2 < MOST_PROFILED ? (steps + 1) / 2 : MOST_PROFILED;
    NRL_TRY(warm_up(r, a, f, &warm));
    NRL_TRY(nrl_run_watch_begin(r));
    NRL_TRY(profile ? take_profiled(r, a, steps, f) : take_steps(r, a, steps, &f->plain));
    NRL_TRY(nrl_run_watch_end(r, f->watched, &f->n_watched));
    NRL_TRY(need_steps(warm + f->plain.n + f->profiled.n, steps));
    if (!profile) NRL_TRY(take_profiled(r, a, most, f));
    f->stats.size = sizeof f->stats;
    nrl_run_info_fill(r, &f->stats);
    return NRL_OK;
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

static nrl_status show(arena *a, const nrl_run *r, const bench_found *found, bool json)
{
    nrl_node *tree;
    NRL_TRY(bench_tree(a, r, found, &tree));
    char *text = json ? json_write(tree, 0) : NULL;
    if (json)
        puts(text);
    else
        bench_page(tree);
    free(text);
    return NRL_OK;
}

nrl_status bench_measure(int argc, char **argv, bool profile)
{
    arena a = {0};
    nrl_environment env;
    nrl_run *r = NULL;
    int64_t steps = DEFAULT_STEPS, top = profile ? DEFAULT_TOP : 0;
    bool json = cli_take_flag(&argc, argv, "--json");
    NRL_TRY(read_number(&argc, argv, "--steps", MAX_STEPS, &steps));
    if (profile) NRL_TRY(read_number(&argc, argv, "--top", MAX_TOP, &top));
    NRL_TRY(cli_expect(argc, argv, 1, -1));
    bench_found *found = arena_alloc(&a, sizeof *found);
    found->top = top;
    experiment_environment(&a, &env);
    nrl_status st = experiment_ranks(&a, &env);
    env.quiet = env.no_output = true;
    if (st == NRL_OK) st = experiment_open(&a, argc, argv, &env, &r);
    if (st == NRL_OK) st = measure(r, &a, steps, profile, found);
    if (st == NRL_OK && experiment_speaks(&env)) st = show(&a, r, found, json);
    nrl_run_close(r);
    arena_free(&a);
    return st;
}
