/*
 * bench_tree.c - the results of a bench or a profile, as the tree that --json writes. Unknown
 * values are null, never 0.
 */
#include "bench.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void put(arena *a, nrl_node *map, const char *key, double value)
{
    node_append(a, map, key, isfinite(value) ? node_f64(a, value) : node_new(a, NRL_NODE_NULL));
}

static nrl_node *put_map(arena *a, nrl_node *map, const char *key)
{
    nrl_node *child = node_new(a, NRL_NODE_MAP);
    node_append(a, map, key, child);
    return child;
}

static int rising(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double sum(const double *x, int64_t n)
{
    double s = 0;
    for (int64_t i = 0; i < n; i++)
        s += x[i];
    return s;
}

static double ratio(double x, double y)
{
    return y > 0 ? x / y : NAN;
}

/* ---- speed ---- */

static void put_speed(arena *a, nrl_node *map, const bench_found *f, const bench_steps *s)
{
    double n = (double)s->n, *sorted = arena_alloc(a, (size_t)s->n * sizeof *sorted);
    memcpy(sorted, s->seconds, (size_t)s->n * sizeof *sorted);
    qsort(sorted, (size_t)s->n, sizeof *sorted, rising);
    put(a, map, "tokens_per_s", ratio(s->tokens, sum(s->seconds, s->n)));
    put(a, map, "mfu", s->mfu / n);
    put(a, map, "step_seconds_min", sorted[0]);
    put(a, map, "step_seconds_median", sorted[s->n / 2]);
    put(a, map, "step_seconds_max", sorted[s->n - 1]);
    put(a, map, "tokens_a_step", s->tokens / n);
    put(a, map, "cpu_seconds_a_step", f->cpu_seconds);
    put(a, map, "data_fraction", s->data_fraction / n);
    node_append_int(a, map, "steps", s->n);
    put(a, map, "first_loss", f->first_loss);
    put(a, map, "last_loss", s->last_loss);
}

static void put_bytes(arena *a, nrl_node *map, const nrl_run_info *f)
{
    node_append_int(a, map, "weight_bytes", f->weight_bytes);
    node_append_int(a, map, "master_bytes", f->master_bytes);
    node_append_int(a, map, "gradient_bytes", f->gradient_bytes);
    node_append_int(a, map, "optimizer_bytes", f->optimizer_bytes);
    node_append_int(a, map, "activation_bytes", f->activation_bytes);
}

static void put_machine(arena *a, nrl_node *map, const nrl_run_info *f)
{
    node_append_int(a, map, "peak_rss", f->peak_rss);
    node_append_text(a, map, "device", f->device->name);
    node_append_text(a, map, "isa", f->device->isa);
    node_append_text(a, map, "library", f->device->library);
    node_append_int(a, map, "threads", f->device->n_threads);
    node_append_int(a, map, "ranks", f->ranks);
}

/* ---- time ---- */

static double wall_of(const nrl_phase_times *p)
{
    return sum(p->seconds + 1, NRL_PHASE_COUNT - 1);
}

static double busy_of(const nrl_phase_times *p)
{
    return sum(p->busy + 1, NRL_PHASE_COUNT - 1);
}

/* How the profiled steps were measured, and how much that slowed them. */
static void put_profile(arena *a, nrl_node *map, const bench_found *f)
{
    nrl_node *m = put_map(a, map, "profile");
    double steps = (double)f->profiled.n, wall = wall_of(&f->phases), busy = busy_of(&f->phases);
    double plain = ratio(sum(f->plain.seconds, f->plain.n), f->plain.tokens);
    double profiled = ratio(sum(f->profiled.seconds, f->profiled.n), f->profiled.tokens);
    node_append_int(a, m, "profiled_steps", f->profiled.n);
    node_append_text(a, m, "clock", f->stats.clock);
    put(a, m, "seconds_a_step", wall / steps);
    put(a, m, "busy_seconds_a_step", busy / steps);
    put(a, m, "idle_share", 1 - ratio(busy, wall));
    put(a, m, "host_seconds_a_step", sum(f->phases.host_seconds + 1, NRL_PHASE_COUNT - 1) / steps);
    if (f->plain.n) put(a, m, "overhead", ratio(profiled, plain) - 1);
}

static void put_phases(arena *a, nrl_node *map, const bench_found *f)
{
    nrl_node *phases = put_map(a, map, "phases");
    double steps = (double)f->profiled.n, wall = wall_of(&f->phases);
    for (int p = 1; p < NRL_PHASE_COUNT; p++) {
        nrl_node *m = put_map(a, phases, nrl_phase_name((nrl_phase)p));
        double seconds = f->phases.seconds[p];
        put(a, m, "seconds_a_step", seconds / steps);
        put(a, m, "share", ratio(seconds, wall));
        put(a, m, "busy_share", ratio(f->phases.busy[p], seconds));
        if (f->stats.ranks == 1) continue;
        put(a, m, "least_seconds_a_step", f->phases.least[p] / steps);
        put(a, m, "most_seconds_a_step", f->phases.most[p] / steps);
    }
}

static nrl_node *op_node(arena *a, const nrl_op_time *r, unsigned by, double steps, double wall)
{
    nrl_node *m = node_new(a, NRL_NODE_MAP);
    node_append_text(a, m, "op", r->name);
    if (by & NRL_BY_PHASE) node_append_text(a, m, "phase", nrl_phase_name(r->phase));
    if (by & NRL_BY_SHAPE) {
        nrl_node *dims = node_new(a, NRL_NODE_LIST);
        for (int i = 0; i < 3; i++)
            node_append(a, dims, NULL, node_int(a, r->dims[i]));
        node_append(a, m, "shape", dims);
    }
    put(a, m, "seconds_a_step", r->seconds / steps);
    put(a, m, "share", ratio(r->seconds, wall));
    put(a, m, "calls_a_step", (double)r->calls / steps);
    put(a, m, "gflop_per_s", ratio(r->flops * 1e-9, r->seconds));
    put(a, m, "gbyte_per_s", ratio(r->bytes * 1e-9, r->seconds));
    if (r->on_host)
        node_append(a, m, "on_host", node_bool(a, true)); /* the device works at the same time */
    else
        put(a, m, "host_seconds_a_step", r->host_seconds / steps);
    return m;
}

/* At most `most` rows; 0 = all rows, and one more for the time outside operations. */
static nrl_status put_ops(arena *a, nrl_node *map, const char *key, const nrl_run *r, const bench_found *f, unsigned by,
                          int64_t most)
{
    nrl_op_time *rows;
    size_t n;
    double steps = (double)f->profiled.n, wall = wall_of(&f->phases), outside = wall - busy_of(&f->phases);
    nrl_node *list = node_new(a, NRL_NODE_LIST);
    NRL_TRY(nrl_run_op_times(r, by, &rows, &n, NULL));
    for (size_t i = 0; i < n; i++) {
        bool is_shown = (most <= 0 || i < (size_t)most) && (!(by & NRL_BY_PHASE) || rows[i].phase != NRL_PHASE_NONE);
        if (is_shown) node_append(a, list, NULL, op_node(a, &rows[i], by, steps, wall));
        if (rows[i].on_host && !f->stats.on_device) outside -= rows[i].seconds;
    }
    free(rows);
    if (!by) {
        nrl_node *m = node_new(a, NRL_NODE_MAP);
        node_append_text(a, m, "op", "(outside operations)");
        put(a, m, "seconds_a_step", outside / steps);
        put(a, m, "share", ratio(outside, wall));
        node_append(a, list, NULL, m);
    }
    node_append(a, map, key, list);
    return NRL_OK;
}

/* Named regions, in the order in which they began first; a region inside another one has `depth` above 0. */
static nrl_status put_regions(arena *a, nrl_node *map, const nrl_run *r, const bench_found *f)
{
    nrl_region_time *rows;
    size_t n;
    const double steps = (double)f->profiled.n, wall = wall_of(&f->phases);
    NRL_TRY(nrl_run_region_times(r, &rows, &n, NULL));
    nrl_node *list = node_new(a, NRL_NODE_LIST);
    for (size_t i = 0; i < n; i++) {
        nrl_node *m = node_new(a, NRL_NODE_MAP);
        node_append_text(a, m, "region", rows[i].name);
        node_append_int(a, m, "parent", rows[i].parent);
        node_append_int(a, m, "depth", rows[i].depth);
        put(a, m, "calls_a_step", (double)rows[i].calls / steps);
        put(a, m, "seconds_a_step", rows[i].seconds / steps);
        put(a, m, "share", ratio(rows[i].seconds, wall));
        put(a, m, "busy_share", ratio(rows[i].busy, rows[i].seconds));
        node_append(a, list, NULL, m);
    }
    free(rows);
    if (n) node_append(a, map, "regions", list);
    return NRL_OK;
}

static nrl_status operations_a_step(const nrl_run *r, const bench_found *f, double *calls)
{
    nrl_op_time *rows;
    size_t n;
    *calls = 0;
    NRL_TRY(nrl_run_op_times(r, 0, &rows, &n, NULL));
    for (size_t i = 0; i < n; i++)
        if (!rows[i].on_host) *calls += (double)rows[i].calls / (double)f->profiled.n;
    free(rows);
    return NRL_OK;
}

static nrl_status put_time(arena *a, nrl_node *map, const nrl_run *r, const bench_found *f)
{
    double calls;
    if (!f->profiled.n) return NRL_OK;
    NRL_TRY(operations_a_step(r, f, &calls));
    put(a, map, "operations_a_step", calls);
    put_profile(a, map, f);
    put_phases(a, map, f);
    NRL_TRY(put_regions(a, map, r, f));
    NRL_TRY(put_ops(a, map, "ops", r, f, 0, 0));
    if (!f->top) return NRL_OK;
    NRL_TRY(put_ops(a, map, "ops_by_phase", r, f, NRL_BY_PHASE, 0));
    return put_ops(a, map, "shapes", r, f, NRL_BY_PHASE | NRL_BY_SHAPE, f->top);
}

/* ---- memory and the device ---- */

static bool is_memory(const char *name)
{
    return !strncmp(name, "memory_", 7);
}

static void put_memory(arena *a, nrl_node *map, const bench_found *f)
{
    nrl_node *m = put_map(a, map, "memory");
    put_bytes(a, m, &f->stats);
    node_append_int(a, m, "reference_bytes", f->stats.reference_bytes);
    node_append_int(a, m, "strategy_bytes", f->stats.strategy_bytes);
    node_append_int(a, m, "offloaded_bytes", f->stats.offloaded_bytes);
    node_append_int(a, m, "used_peak_bytes", f->stats.used_peak_bytes);
    if (f->stats.ranks > 1) node_append_int(a, m, "most_used_peak_bytes", (int64_t)f->most_used_peak_bytes);
    node_append_int(a, m, "reserved_peak_bytes", f->stats.reserved_peak_bytes);
    node_append_int(a, m, "total_bytes", f->stats.device->memory_bytes);
    for (size_t i = 0; i < f->n_watched; i++)
        if (is_memory(f->watched[i].name)) put(a, m, f->watched[i].name + 7, f->watched[i].value);
}

/* What was in use at the peak, by kind: what the run holds, and tensors of the step by phase. */
static void put_kinds(arena *a, nrl_node *map, const bench_found *f, const nrl_memory_site *sites, size_t n,
                      int64_t held)
{
    const nrl_run_info *s = &f->stats;
    const struct {
        const char *name;
        int64_t bytes;
    } kinds[] = {{"weights", s->weight_bytes},
                 {"masters", s->master_bytes},
                 {"gradients", s->gradient_bytes},
                 {"optimizer states", s->optimizer_bytes},
                 {"reference model", s->reference_bytes},
                 {"strategy buffers", s->strategy_bytes}};
    nrl_node *m = put_map(a, map, "at_peak");
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (kinds[i].bytes) node_append_int(a, m, kinds[i].name, kinds[i].bytes);
        held -= kinds[i].bytes;
    }
    for (int p = 0; p < NRL_PHASE_COUNT; p++) {
        int64_t bytes = 0;
        for (size_t i = 0; i < n; i++)
            if (sites[i].phase == (nrl_phase)p) bytes += sites[i].peak_bytes;
        if (bytes)
            node_append_int(a, m, arena_printf(a, "made in %s", p ? nrl_phase_name((nrl_phase)p) : "no step"), bytes);
    }
    if (held > 0) node_append_int(a, m, "other tensors", held);
}

static nrl_status put_memory_profile(arena *a, nrl_node *map, const nrl_run *r, const bench_found *f)
{
    nrl_memory_site *sites;
    nrl_memory_batch *batches;
    nrl_region_time *regions;
    size_t n, n_batches, n_regions;
    int64_t peak, held;
    NRL_TRY(nrl_run_region_times(r, &regions, &n_regions, NULL));
    NRL_TRY(nrl_run_memory_sites(r, &sites, &n, NULL, &peak, &held));
    NRL_TRY(nrl_run_memory_batches(r, &batches, &n_batches, NULL));
    nrl_node *m = put_map(a, map, "memory_profile"), *list = node_new(a, NRL_NODE_LIST);
    node_append_int(a, m, "peak_bytes", peak);
    node_append_int(a, m, "held_bytes", held);
    put_kinds(a, m, f, sites, n, held);
    for (size_t i = 0; i < n; i++) {
        const nrl_memory_site *s = &sites[i];
        nrl_node *row = node_new(a, NRL_NODE_MAP);
        node_append_text(a, row, "op", s->operation ? s->operation : "(other)");
        node_append_text(a, row, "phase", nrl_phase_name(s->phase));
        if (s->unit) node_append_text(a, row, "unit", s->unit);
        if (s->region >= 0) node_append_text(a, row, "region", regions[s->region].name);
        node_append_int(a, row, "peak_bytes", s->peak_bytes);
        put(a, row, "bytes_a_step", (double)s->total_bytes / (double)f->profiled.n);
        put(a, row, "tensors_a_step", (double)s->calls / (double)f->profiled.n);
        node_append(a, list, NULL, row);
    }
    node_append(a, m, "sites", list);
    list = node_new(a, NRL_NODE_LIST);
    for (size_t i = 0; i < n_batches; i++) {
        const nrl_memory_batch *b = &batches[i];
        nrl_node *row = node_new(a, NRL_NODE_MAP);
        node_append_int(a, row, "step", b->step);
        node_append_int(a, row, "micro_batch", b->micro_batch);
        node_append_int(a, row, "tokens", b->tokens);
        node_append_int(a, row, "samples", b->samples);
        node_append_int(a, row, "longest", b->longest);
        node_append_int(a, row, "begin_bytes", b->begin_bytes);
        node_append_int(a, row, "peak_bytes", b->peak_bytes);
        node_append(a, list, NULL, row);
    }
    node_append(a, m, "batches", list);
    free(regions);
    free(sites);
    free(batches);
    return NRL_OK;
}

static double watched(const bench_found *f, const char *name)
{
    for (size_t i = 0; i < f->n_watched; i++)
        if (!strcmp(f->watched[i].name, name)) return f->watched[i].value;
    return NAN;
}

/* Values of the device of rank 0. The energy is that of one device, so with several ranks there is
 * no energy per token. */
static void put_device(arena *a, nrl_node *map, const bench_found *f)
{
    const bench_steps *s = f->plain.n ? &f->plain : &f->profiled;
    put(a, map, "launches_a_step", watched(f, "launches") / (double)s->n);
    put(a, map, "joules_per_token", f->stats.ranks == 1 ? ratio(watched(f, "energy_j"), s->tokens) : NAN);
    nrl_node *m = put_map(a, map, "device_stats");
    for (size_t i = 0; i < f->n_watched; i++)
        if (!is_memory(f->watched[i].name)) put(a, m, f->watched[i].name, f->watched[i].value);
}

nrl_status bench_tree(arena *a, const nrl_run *r, const bench_found *f, nrl_node **out)
{
    nrl_node *map = *out = node_new(a, NRL_NODE_MAP);
    put_speed(a, map, f, f->plain.n ? &f->plain : &f->profiled);
    node_append_int(a, map, "parameters", f->stats.parameters);
    node_append_int(a, map, "trained_parameters", f->stats.trained_parameters);
    node_append_int(a, map, "frozen_parameters", f->stats.parameters - f->stats.trained_parameters);
    node_append_int(a, map, "trained_weight_bytes", f->stats.trained_bytes);
    node_append_int(a, map, "frozen_weight_bytes", f->stats.frozen_bytes);
    put_bytes(a, map, &f->stats);
    put_machine(a, map, &f->stats);
    put_device(a, map, f);
    put_memory(a, map, f);
    if (f->has_memory) NRL_TRY(put_memory_profile(a, map, r, f));
    if (f->n_dropped) node_append_int(a, map, "trace_events_dropped", f->n_dropped);
    return put_time(a, map, r, f);
}
