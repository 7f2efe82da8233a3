/*
 * bench_page.c - the tree of a bench or a profile as a page: sections of aligned columns, sizes in
 * MiB or GiB, times in milliseconds. The page prints no exponents; --json is for programs.
 */
#include "base/units.h"
#include "bench.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

static double number(const nrl_node *map, const char *key)
{
    return nrl_node_f64(nrl_node_find(map, key), NAN);
}

static const char *text(const nrl_node *map, const char *key)
{
    return nrl_node_string(nrl_node_find(map, key), "");
}

static void section(const char *title)
{
    printf("\n%s\n", title);
}

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n >= m && !strcmp(s + n - m, end);
}

static void show_value(const char *key, const nrl_node *v)
{
    double x = nrl_node_f64(v, NAN);
    if (nrl_node_kind(v) == NRL_NODE_STRING)
        printf("  %-34s %s\n", key, nrl_node_string(v, ""));
    else if (isnan(x))
        printf("  %-34s %12s\n", key, "unknown");
    else if (ends_with(key, "_bytes") || !strcmp(key, "peak_rss"))
        printf("  %-34s %16s\n", key, size_text(x, (char[SIZE_TEXT]){0}));
    else
        printf(x == floor(x) && fabs(x) < 1e15 ? "  %-34s %12.0f\n" : "  %-34s %12.6g\n", key, x);
}

static void show(const nrl_node *map, const char *const *keys)
{
    for (; *keys; keys++)
        if (nrl_node_find(map, *keys)) show_value(*keys, nrl_node_find(map, *keys));
}

static void show_all(const nrl_node *map)
{
    for (size_t i = 0; i < nrl_node_size(map); i++)
        show_value(nrl_node_key(map, i), nrl_node_at(map, i));
}

/* A column that is wide enough for its values; an unknown value is a dash. */
static void cell(double x, int width, int digits)
{
    if (isnan(x))
        printf(" %*s", width, "-");
    else
        printf(" %*.*f", width, digits, x);
}

static void percent(double x)
{
    if (isnan(x))
        printf(" %8s", "-");
    else
        printf(" %7.1f%%", 100 * x);
}

static void show_phases(const nrl_node *tree)
{
    const nrl_node *phases = nrl_node_find(tree, "phases"), *profile = nrl_node_find(tree, "profile");
    bool ranks = nrl_node_find(nrl_node_at(phases, 0), "least_seconds_a_step") != NULL;
    section("time by phase");
    printf("  %-34s %12s %8s %8s%s\n", "phase", "ms/step", "share", "busy", ranks ? "   least ms    most ms" : "");
    for (size_t i = 0; i < nrl_node_size(phases); i++) {
        const nrl_node *p = nrl_node_at(phases, i);
        if (!(number(p, "seconds_a_step") > 0)) continue;
        printf("  %-26s", nrl_node_key(phases, i));
        cell(1e3 * number(p, "seconds_a_step"), 12, 3);
        percent(number(p, "share"));
        percent(number(p, "busy_share"));
        if (ranks) cell(1e3 * number(p, "least_seconds_a_step"), 10, 3);
        if (ranks) cell(1e3 * number(p, "most_seconds_a_step"), 10, 3);
        putchar('\n');
    }
    printf("  %-26s", "a step");
    cell(1e3 * number(profile, "seconds_a_step"), 12, 3);
    printf("%9s", "");
    percent(1 - number(profile, "idle_share"));
    putchar('\n');
}

static void show_measured(const nrl_node *profile)
{
    double overhead = number(profile, "overhead");
    printf("  %.0f steps, by %s; idle for %.1f %% of them", number(profile, "profiled_steps"), text(profile, "clock"),
           100 * number(profile, "idle_share"));
    if (!isnan(overhead)) printf("; time per token %+.1f %% compared with undisturbed steps", 100 * overhead);
    putchar('\n');
}

/* "4096x1536 k 576" for products, "4096x9x64" for attention, otherwise rows and columns. */
static void show_shape(const nrl_node *row)
{
    const nrl_node *shape = nrl_node_find(row, "shape");
    char label[64] = "";
    long long d[3];
    if (!shape) return;
    for (size_t i = 0; i < 3; i++)
        d[i] = (long long)nrl_node_f64(nrl_node_at(shape, i), 0);
    if (d[2])
        snprintf(label, sizeof label, "%lldx%lldx%lld", d[0], d[1], d[2]);
    else if (d[0])
        snprintf(label, sizeof label, "%lldx%lld", d[0], d[1]);
    printf(" %-18s", label);
}

static void show_ops(const nrl_node *list, const char *title)
{
    const nrl_node *first = nrl_node_at(list, 0);
    bool phase = nrl_node_find(first, "phase") != NULL, shape = nrl_node_find(first, "shape") != NULL;
    if (!nrl_node_size(list)) return;
    section(title);
    printf("  %-20s", "operation");
    if (phase) printf(" %-13s", "phase");
    if (shape) printf(" %-18s", "shape");
    printf(" %10s %8s %8s %10s %9s\n", "ms/step", "share", "calls", "GFLOP/s", "GB/s");
    for (size_t i = 0; i < nrl_node_size(list); i++) {
        const nrl_node *row = nrl_node_at(list, i);
        double gflops = number(row, "gflop_per_s"), gbytes = number(row, "gbyte_per_s");
        double calls = number(row, "calls_a_step");
        printf("  %-20s", text(row, "op"));
        if (phase) printf(" %-13s", text(row, "phase"));
        show_shape(row);
        cell(1e3 * number(row, "seconds_a_step"), 10, 3);
        percent(number(row, "share"));
        cell(calls, 8, calls == floor(calls) ? 0 : 2);
        cell(gflops > 0 ? gflops : NAN, 10, 1);
        cell(gbytes > 0 ? gbytes : NAN, 9, 1);
        putchar('\n');
    }
}

static void show_regions(const nrl_node *list)
{
    if (!nrl_node_size(list)) return;
    section("time by region");
    printf("  %-40s %10s %8s %8s %8s\n", "region", "ms/step", "share", "busy", "calls");
    for (size_t i = 0; i < nrl_node_size(list); i++) {
        const nrl_node *row = nrl_node_at(list, i);
        const double calls = number(row, "calls_a_step");
        const int indent = 2 * (int)number(row, "depth");
        printf("  %*s%-*s", indent, "", indent < 40 ? 40 - indent : 1, text(row, "region"));
        cell(1e3 * number(row, "seconds_a_step"), 10, 3);
        percent(number(row, "share"));
        percent(number(row, "busy_share"));
        cell(calls, 8, calls == floor(calls) ? 0 : 2);
        putchar('\n');
    }
}

static void bytes_cell(double bytes)
{
    printf(" %12s", size_text(bytes, (char[SIZE_TEXT]){0}));
}

static void show_memory(const nrl_node *m)
{
    enum { MOST_SITES = 20, MOST_BATCHES = 12 };
    const nrl_node *kinds = nrl_node_find(m, "at_peak"), *sites = nrl_node_find(m, "sites");
    const nrl_node *batches = nrl_node_find(m, "batches");
    if (!m) return;
    section("tensors at the peak, by kind");
    for (size_t i = 0; i < nrl_node_size(kinds); i++)
        printf("  %-34s %16s\n", nrl_node_key(kinds, i),
               size_text(nrl_node_f64(nrl_node_at(kinds, i), 0), (char[SIZE_TEXT]){0}));
    printf("  %-34s %16s\n", "all", size_text(number(m, "peak_bytes"), (char[SIZE_TEXT]){0}));
    section("tensors by origin: in use at the peak, and created in a step");
    printf("  %-18s %-13s %-20s %-16s %12s %12s %8s\n", "operation", "phase", "unit", "region", "at peak", "a step",
           "tensors");
    for (size_t i = 0; i < nrl_node_size(sites) && i < MOST_SITES; i++) {
        const nrl_node *row = nrl_node_at(sites, i);
        printf("  %-18s %-13s %-20s %-16s", text(row, "op"), text(row, "phase"), text(row, "unit"),
               text(row, "region"));
        bytes_cell(number(row, "peak_bytes"));
        bytes_cell(number(row, "bytes_a_step"));
        cell(number(row, "tensors_a_step"), 8, 1);
        putchar('\n');
    }
    if (nrl_node_size(sites) > MOST_SITES)
        printf("  and %zu smaller ones (--json)\n", nrl_node_size(sites) - MOST_SITES);
    section("tensors by micro-batch");
    printf("  %6s %6s %8s %8s %8s %12s %12s\n", "step", "batch", "tokens", "samples", "longest", "at begin", "most");
    for (size_t i = 0; i < nrl_node_size(batches) && i < MOST_BATCHES; i++) {
        const nrl_node *row = nrl_node_at(batches, i);
        printf("  %6.0f %6.0f %8.0f %8.0f %8.0f", number(row, "step"), number(row, "micro_batch"),
               number(row, "tokens"), number(row, "samples"), number(row, "longest"));
        bytes_cell(number(row, "begin_bytes"));
        bytes_cell(number(row, "peak_bytes"));
        putchar('\n');
    }
    if (nrl_node_size(batches) > MOST_BATCHES)
        printf("  and %zu later ones (--json)\n", nrl_node_size(batches) - MOST_BATCHES);
}

static void show_device(const nrl_node *tree)
{
    static const char *const keys[] = {"device", "isa", "library", "threads", "ranks", NULL};
    const nrl_node *stats = nrl_node_find(tree, "device_stats");
    section("device");
    show(tree, keys);
    show_all(stats);
    if (!nrl_node_size(stats)) printf("  %-34s %s\n", "clocks, power", "not reported by the backend");
}

void bench_page(const nrl_node *tree)
{
    static const char *const speed[] = {"tokens_per_s",
                                        "mfu",
                                        "step_seconds_min",
                                        "step_seconds_median",
                                        "step_seconds_max",
                                        "tokens_a_step",
                                        "cpu_seconds_a_step",
                                        "data_fraction",
                                        "steps",
                                        "first_loss",
                                        "last_loss",
                                        "parameters",
                                        "trained_parameters",
                                        "frozen_parameters",
                                        "trained_weight_bytes",
                                        "frozen_weight_bytes",
                                        "operations_a_step",
                                        "launches_a_step",
                                        "joules_per_token",
                                        NULL};
    const nrl_node *profile = nrl_node_find(tree, "profile"), *memory = nrl_node_find(tree, "memory");
    puts("speed");
    show(tree, speed);
    section("peak memory");
    show_all(memory);
    show_value("peak_rss", nrl_node_find(tree, "peak_rss"));
    show_device(tree);
    if (!profile) {
        section("time by phase");
        puts("  not measured: the config has no steps left (train.steps)");
        return;
    }
    show_phases(tree);
    show_measured(profile);
    show_regions(nrl_node_find(tree, "regions"));
    show_ops(nrl_node_find(tree, "ops"), "time by operation");
    show_ops(nrl_node_find(tree, "ops_by_phase"), "time by operation and phase");
    show_ops(nrl_node_find(tree, "shapes"),
             "the longest, by shape (products: rows x columns x inner; attention: queries x heads x width)");
    show_memory(nrl_node_find(tree, "memory_profile"));
    if (nrl_node_find(tree, "trace_events_dropped"))
        printf("\n%.0f events do not fit into the timeline; measure fewer steps (--steps)\n",
               number(tree, "trace_events_dropped"));
}
