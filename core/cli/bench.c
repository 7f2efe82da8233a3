/*
 * bench.c - `nrl bench` and `nrl profile`: a config's steps without its output folder. The first steps
 * (primitives, page faults) are left out of every figure.
 */
#include "base/json.h"
#include "cli/experiment.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WARM_UP = 2, DEFAULT_STEPS = 10, MAX_STEPS = 10000 };

typedef struct {
    int64_t n;
    double *seconds; /* [n] of the measured steps */
    double tokens, mfu, first_loss, last_loss, data;
} measure;

static double value_of(const run_event *e, const char *name)
{
    for (size_t i = 0; i < e->n_values; i++)
        if (!strcmp(e->values[i].name, name)) return e->values[i].value;
    return 0;
}

static nrl_status take_steps(run *r, int64_t steps, bool profile, measure *m)
{
    for (int64_t i = 0; i < steps + WARM_UP; i++) {
        run_event e;
        bool done;
        if (i == WARM_UP && profile) run_profile(r, true);
        NRL_TRY(run_step(r, &e, &done));
        if (done)
            return nrl_fail(NRL_ERR_CONFIG, "train.steps: the config has %lld steps, but %lld to warm up and %lld to "
                            "measure (--steps) are needed", (long long)i, (long long)WARM_UP, (long long)steps);
        if (i == 0) m->first_loss = e.loss;
        if (i < WARM_UP) continue;
        m->seconds[m->n++] = e.seconds;
        m->tokens += e.tokens;
        m->mfu += value_of(&e, "mfu") / (double)steps;
        m->data += value_of(&e, "data_fraction") / (double)steps;
        m->last_loss = e.loss;
    }
    return NRL_OK;
}

static int rising(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double sum(const double *x, int64_t n)
{
    double s = 0;
    for (int64_t i = 0; i < n; i++) s += x[i];
    return s;
}

static nrl_node *bench_node(arena *a, run *r, measure *m)
{
    run_figures f;
    nrl_node *map = node_new(a, NRL_NODE_MAP);
    double total = sum(m->seconds, m->n);
    run_figures_fill(r, &f);
    qsort(m->seconds, (size_t)m->n, sizeof *m->seconds, rising);
#define PUT_F64(key, value) node_append(a, map, key, node_f64(a, value))
#define PUT_INT(key, value) node_append(a, map, key, node_int(a, value))
#define PUT_TEXT(key, value) node_append(a, map, key, node_string(a, value, strlen(value)))
    PUT_F64("tokens_per_s", m->tokens / total);
    PUT_F64("mfu", m->mfu);
    PUT_F64("step_seconds_min", m->seconds[0]);
    PUT_F64("step_seconds_median", m->seconds[m->n / 2]);
    PUT_F64("step_seconds_max", m->seconds[m->n - 1]);
    PUT_F64("data_fraction", m->data);
    PUT_INT("steps", m->n);
    PUT_F64("first_loss", m->first_loss);
    PUT_F64("last_loss", m->last_loss);
    PUT_INT("parameters", f.parameters);
    PUT_INT("weight_bytes", f.weight_bytes);
    PUT_INT("master_bytes", f.master_bytes);
    PUT_INT("gradient_bytes", f.gradient_bytes);
    PUT_INT("optimizer_bytes", f.optimizer_bytes);
    PUT_INT("activation_bytes", f.activation_bytes);
    PUT_INT("peak_rss", f.peak_rss);
    PUT_TEXT("device", f.device.name);
    PUT_TEXT("isa", f.device.isa);
    PUT_TEXT("library", f.device.library);
    PUT_INT("threads", f.device.n_threads);
    return map;
}

static nrl_node *profile_node(arena *a, run *r, const measure *m)
{
    int n;
    run_op_time *rows = run_profile_rows(r, &n);
    nrl_node *list = node_new(a, NRL_NODE_LIST);
    double total = sum(m->seconds, m->n), inside = 0;
    for (int i = 0; i < n; i++) {
        nrl_node *map = node_new(a, NRL_NODE_MAP);
        inside += rows[i].seconds;
        PUT_TEXT("op", rows[i].name);
        PUT_F64("seconds_a_step", rows[i].seconds / (double)m->n);
        PUT_F64("share", rows[i].seconds / total);
        PUT_F64("calls_a_step", (double)rows[i].calls / (double)m->n);
        PUT_F64("gflop_per_s", rows[i].flops / rows[i].seconds * 1e-9);
        PUT_F64("gbyte_per_s", rows[i].bytes / rows[i].seconds * 1e-9);
        node_append(a, list, NULL, map);
    }
    nrl_node *map = node_new(a, NRL_NODE_MAP);
    PUT_TEXT("op", "(outside operations)");
    PUT_F64("seconds_a_step", (total - inside) / (double)m->n);
    PUT_F64("share", 1 - inside / total);
    node_append(a, list, NULL, map);
    free(rows);
    return list;
}

/* Sizes in MiB, counts in full: an exponent is for programs (--json has it). */
static void print_number(const char *key, double v)
{
    if (strstr(key, "_bytes") || !strcmp(key, "peak_rss")) printf("%-22s %.1f MiB\n", key, v / (1 << 20));
    else printf(v == floor(v) && fabs(v) < 1e15 ? "%-22s %.0f\n" : "%-22s %.6g\n", key, v);
}

static void print_map(const nrl_node *map)
{
    for (size_t i = 0; i < nrl_node_size(map); i++) {
        const nrl_node *v = nrl_node_at(map, i);
        if (nrl_node_kind(v) == NRL_NODE_STRING) printf("%-22s %s\n", nrl_node_key(map, i), nrl_node_string(v, ""));
        else print_number(nrl_node_key(map, i), nrl_node_f64(v, 0));
    }
}

static void print_profile(const nrl_node *list)
{
    printf("%-22s %10s %7s %9s %9s %9s\n", "operation", "ms/step", "share", "calls", "GFLOP/s", "GB/s");
    for (size_t i = 0; i < nrl_node_size(list); i++) {
        const nrl_node *row = nrl_node_at(list, i);
        printf("%-22s %10.2f %6.1f%% %9.0f %9.1f %9.1f\n", nrl_node_string(nrl_node_find(row, "op"), ""),
               1e3 * nrl_node_f64(nrl_node_find(row, "seconds_a_step"), 0),
               100 * nrl_node_f64(nrl_node_find(row, "share"), 0),
               nrl_node_f64(nrl_node_find(row, "calls_a_step"), 0),
               nrl_node_f64(nrl_node_find(row, "gflop_per_s"), 0),
               nrl_node_f64(nrl_node_find(row, "gbyte_per_s"), 0));
    }
}

static nrl_status read_steps(int *argc, char **argv, int64_t *steps)
{
    const char *text;
    char *end;
    *steps = DEFAULT_STEPS;
    NRL_TRY(cli_take_value(argc, argv, "--steps", &text));
    if (!text) return NRL_OK;
    *steps = strtoll(text, &end, 10);
    if (*end || *steps < 1 || *steps > MAX_STEPS)
        return nrl_fail(NRL_ERR_CONFIG, "--steps: '%s': expected a number from 1 to %d", text, MAX_STEPS);
    return NRL_OK;
}

static nrl_status measure_config(int argc, char **argv, bool profile)
{
    arena a = {0};
    run_environment env;
    run *r = NULL;
    int64_t steps;
    bool json = cli_take_flag(&argc, argv, "--json");
    NRL_TRY(read_steps(&argc, argv, &steps));
    NRL_TRY(cli_expect(argc, argv, 1, -1));
    measure m = {.seconds = arena_alloc(&a, (size_t)steps * sizeof *m.seconds)};
    experiment_environment(&a, &env);
    nrl_status st = experiment_ranks(&a, &env);
    env.quiet = env.no_output = true;
    if (st == NRL_OK) st = experiment_open(&a, argc, argv, &env, &r);
    if (st == NRL_OK) st = take_steps(r, steps, profile, &m);
    if (st == NRL_OK && experiment_speaks(&env)) {
        nrl_node *result = profile ? profile_node(&a, r, &m) : bench_node(&a, r, &m);
        char *text = json ? json_write(result, 0) : NULL;
        if (json) puts(text);
        else if (profile) print_profile(result);
        else print_map(result);
        free(text);
    }
    run_close(r);
    arena_free(&a);
    return st;
}

nrl_status cli_bench(int argc, char **argv)
{
    return measure_config(argc, argv, false);
}

nrl_status cli_profile(int argc, char **argv)
{
    return measure_config(argc, argv, true);
}
