/*
 * parallel.c - rules of every strategy: layouts cover the whole model, WEIGHT is current when an action reads it,
 * gradients are summed over ranks, all ranks make the same calls, and nothing is leaked.
 */
#include "parallel.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LOCAL_STEPS = 1024 };

/* ---- the parts, each on every rank ---- */

static const toy_kind training = {true, NRL_DTYPE_F32};

static bool begin(toy *t, const toy_kind *kind)
{
    if (!toy_open(t, kind)) return false;
    toy_check_layouts(t);
    if (t->g->staged && !t->over) toy_check_stages(t);
    return !t->over && toy_bind(t) && toy_load(t, 1, 0);
}

/* Some steps as in a run: a forward pass before each, an update after each. */
static void steps(toy *t, const toy_kind *kind)
{
    static const toy_course courses[] = {
        {.step = 1, .n_micro_batches = 1},
        {.step = 2, .n_micro_batches = 2},
        {.step = 3, .n_micro_batches = 1, .recompute = true},
        {.step = 4, .n_micro_batches = 2, .empty_rank = true},
        {.step = 5, .n_micro_batches = 3, .split = true},
        {.step = 6, .n_micro_batches = 1},
    };
    if (!begin(t, kind)) return;
    for (size_t i = 0; i < sizeof courses / sizeof *courses; i++)
        if (!toy_forward(t) || !toy_step(t, &courses[i]) || !toy_load(t, courses[i].step + 1, courses[i].step)) return;
    if (toy_forward(t) && toy_load(t, 77, 0) && toy_load(t, 78, 0)) toy_forward(t); /* as after a resume */
}

static void part_f32(toy *t)
{
    steps(t, &training);
}

static void part_bf16(toy *t)
{
    steps(t, &(toy_kind){true, NRL_DTYPE_BF16});
}

/* More and fewer micro-batches than stages. */
static void part_orders(toy *t)
{
    if (!begin(t, &training)) return;
    for (int32_t n = 1; n <= TOY_MICRO; n++)
        if (!toy_step(t, &(toy_course){.step = n, .n_micro_batches = n}) || !toy_load(t, n + 1, n)) return;
}

/* More steps must not use more memory. */
static void part_memory(toy *t)
{
    ctx_memory before = {0}, after = {0};
    if (!begin(t, &training)) return;
    for (int64_t step = 1; step <= 4; step++) {
        if (!toy_step(t, &(toy_course){.step = step, .n_micro_batches = 2}) || !toy_load(t, step + 1, step)) return;
        if (step == 2) ctx_memory_use(t->compute.ctx, &before);
    }
    ctx_memory_use(t->compute.ctx, &after);
    report_check(t->report, after.live_bytes <= before.live_bytes, "a step leaves no memory behind",
                 "%zu bytes after 2 steps, %zu after 4", before.live_bytes, after.live_bytes);
}

/* A skipped step: there is no update, and the next step has only its own gradients. */
static void part_skipped(toy *t)
{
    if (!begin(t, &training)) return;
    for (int64_t step = 1; step <= 2; step++)
        if (!toy_step(t, &(toy_course){.step = step, .n_micro_batches = 1})) return;
}

static bool masters_are(toy *t, double want, double room, const char *rule)
{
    double values[TOY_LARGEST];
    for (int i = 0; i < TOY_PARAMS; i++) {
        const nrl_tensor *master = t->params[i].slots[NRL_SLOT_MASTER];
        if (!t->params[i].trained || !master) continue;
        if (!toy_ok(t, nrl_tensor_fetch(t->compute.ctx, master, values, nrl_tensor_numel(master)),
                    "a master can be read"))
            return false;
        for (int64_t k = 0; k < nrl_tensor_numel(master); k++)
            if (!report_check(t->report, fabs(values[k] - want) <= room, rule, "'%s' is %.9g, expected %.9g",
                              t->params[i].name, values[k], want))
                return false;
    }
    return true;
}

/* One number of each rank, known to all. */
static bool share(toy *t, double mine, double all[PARALLEL_RANKS])
{
    static double numbers[PARALLEL_RANKS];
    nrl_comm *c = nrl_mesh_comm(t->mesh, t->g->axis->name);
    numbers[t->rank] = mine;
    if (!toy_ok(t, nrl_comm_barrier(c, "numbers"), "a barrier ends")) return false;
    memcpy(all, numbers, sizeof numbers);
    return toy_ok(t, nrl_comm_barrier(c, "numbers"), "a barrier ends");
}

/* The first element of the first trained parameter: masters are filled with one number. */
static bool first_master(toy *t, double *value)
{
    double values[TOY_LARGEST];
    for (int i = 0; i < TOY_PARAMS; i++) {
        const nrl_tensor *master = t->params[i].slots[NRL_SLOT_MASTER];
        if (!t->params[i].trained || !master) continue;
        *value = 0;
        if (!toy_ok(t, nrl_tensor_fetch(t->compute.ctx, master, values, nrl_tensor_numel(master)),
                    "a master can be read"))
            return false;
        *value = values[0];
        return true;
    }
    return false;
}

static bool are_equal(const toy *t, const double all[PARALLEL_RANKS])
{
    for (int32_t r = 1; r < t->world; r++)
        if (fabs(all[r] - all[0]) > 1e-6 * fabs(all[0])) return false;
    return true;
}

/* Ranks that take local steps differ after an update; MASTER is the mean only between the two calls
 * of average. */
static void part_average(toy *t)
{
    const nrl_parallel *s = t->g->table;
    double own, mean = 0, all[PARALLEL_RANKS];
    if (!s->average || !begin(t, &training) || !t->plan.local_steps) return;
    nrl_ctx *ctx = t->compute.ctx;
    for (int i = 0; i < TOY_PARAMS; i++)
        if (t->params[i].trained && t->params[i].slots[NRL_SLOT_MASTER] &&
            !toy_ok(t, nrl_tensor_fill(ctx, t->params[i].slots[NRL_SLOT_MASTER], 1 + t->rank),
                    "a master can be filled"))
            return;
    if (s->updated && !toy_ok(t, s->updated(t->self, ctx, 1), "updated succeeds")) return;
    if (!first_master(t, &own) || !share(t, own, all)) return;
    if (are_equal(t, all)) return; /* the update has made them so, and nothing is left to average */
    for (int32_t r = 0; r < t->world; r++)
        mean += all[r] / t->world;
    if (!toy_ok(t, s->average(t->self, ctx, true), "average begins")) return;
    bool shown = masters_are(t, mean, 1e-6 * mean, "between the calls of average MASTER is the mean over ranks");
    if (toy_ok(t, s->average(t->self, ctx, false), "average ends") && shown)
        masters_are(t, own, 0, "after the calls of average MASTER is the rank's own");
}

/* Ranks that step alone must meet from time to time, and their differences must survive a restart. */
static void part_local(toy *t)
{
    const nrl_parallel *s = t->g->table;
    double mine, all[PARALLEL_RANKS];
    if (!begin(t, &training) || !t->plan.local_steps) return;
    for (int i = 0; i < TOY_PARAMS; i++)
        if (t->params[i].trained && t->params[i].slots[NRL_SLOT_MASTER] &&
            !toy_ok(t, nrl_tensor_fill(t->compute.ctx, t->params[i].slots[NRL_SLOT_MASTER], 1 + t->rank),
                    "a master can be filled"))
            return;
    for (int64_t step = 1; step <= LOCAL_STEPS; step++) {
        if (s->updated && !toy_ok(t, s->updated(t->self, t->compute.ctx, step), "updated succeeds")) return;
        if (!first_master(t, &mine) || !share(t, mine, all)) return;
        if (are_equal(t, all)) return;
        if (step == 1)
            report_check(t->report, s->state != NULL, "what differs between ranks is saved",
                         "ranks have weights of their own after an update, and `state` is NULL");
    }
    report_check(t->report, false, "local steps reach one weight on all ranks", "ranks still differ after %d updates",
                 LOCAL_STEPS);
}

/* Passes between the two calls of hold have the weights of that moment, at each generation again. */
static void part_hold(toy *t)
{
    const nrl_parallel *s = t->g->table;
    ctx_memory before = {0}, after = {0};
    if (!s->hold || !begin(t, &training)) return;
    for (int64_t step = 1; step <= 3; step++) {
        if (!toy_forward(t)) return;
        ctx_memory_use(t->compute.ctx, &before);
        if (!toy_ok(t, s->hold(t->self, t->compute.ctx, true), "hold begins")) return;
        for (int pass = 0; pass < 2; pass++)
            if (!toy_forward(t)) return;
        if (!toy_ok(t, s->hold(t->self, t->compute.ctx, false), "hold ends")) return;
        ctx_memory_use(t->compute.ctx, &after);
        report_check(t->report, after.live_bytes <= before.live_bytes, "the end of hold frees what was kept",
                     "%zu bytes before hold %lld, %zu after it", before.live_bytes, (long long)step, after.live_bytes);
        if (!toy_step(t, &(toy_course){.step = step, .n_micro_batches = 2}) || !toy_load(t, step + 1, step)) return;
    }
}

/* Only for strategies that fix the shards of a batch. */
static void part_bits(toy *t)
{
    bool strided;
    if (parallel_shards(t->g, &strided) > 0 && begin(t, &training))
        toy_step(t, &(toy_course){.step = 1, .n_micro_batches = 3, .fractions = true});
}

static void part_reference(toy *t)
{
    if (!begin(t, &(toy_kind){false, NRL_DTYPE_F32})) return;
    for (int i = 0; i < TOY_PARAMS; i++)
        report_check(t->report, !t->params[i].slots[NRL_SLOT_GRAD] && !t->params[i].slots[NRL_SLOT_GRAD_SHARD],
                     "a model that is not trained has no gradients", "'%s' has", t->params[i].name);
    if (toy_forward(t)) toy_forward(t);
}

static const struct {
    const char *name, *rule; /* what a crash breaks */
    void (*part)(toy *t);
    int32_t least, most; /* ranks */
    bool staged;         /* also for strategies with stages */
} parts[] = {
    {"f32", "gradients are the sum over ranks", part_f32, 1, 4, false},
    {"bf16", "gradients are the sum over ranks", part_bf16, 1, 3, true},
    {"orders", "gradients are the sum over ranks", part_orders, 2, 4, true},
    {"memory", "a step leaves no memory behind", part_memory, 2, 2, true},
    {"skipped", "gradients are the sum over ranks", part_skipped, 2, 2, true},
    {"reference", "a model that is not trained has no gradients", part_reference, 1, 2, true},
    {"average", "between the calls of average MASTER is the mean over ranks", part_average, 2, 3, false},
    {"hold", "WEIGHT is whole and current inside an action", part_hold, 1, 3, false},
    {"bits", "gradients have the same bits on any number of ranks", part_bits, 1, 4, false},
    {"local", "local steps reach one weight on all ranks", part_local, 2, 3, false},
};

static bool check_table(const nrl_parallel *t, conformance_report *r)
{
    const char *rule = "a strategy names its axis";
    if (!report_check(r, t->axis && t->axis->size >= sizeof(nrl_mesh_axis), rule, "axis is %s",
                      t->axis ? "too small" : "NULL"))
        return false;
    return report_check(r, t->axis->name && *t->axis->name, rule, "its name is %s", t->axis->name ? "empty" : "NULL") &&
           report_check(r, t->axis->divides >= NRL_DIVIDES_DEPTH && t->axis->divides <= NRL_DIVIDES_EXPERTS,
                        "an axis divides depth, width, batch, tokens or experts", "divides is %u", t->axis->divides);
}

/* A part for one kind of axis, from `least` ranks on. */
static bool on_all_ranks(const nrl_parallel *table, const conformance_setup *setup, conformance_report *report,
                         int32_t least, const char *name, const char *rule, void (*part)(toy *t))
{
    bool all = true;
    for (int32_t world = least; all && world <= PARALLEL_RANKS; world++) {
        parallel_group g = {table, setup, table->axis, world, false};
        REPORT_CASE(report, rule) all = parallel_run(&g, report, name, part);
    }
    return all;
}

void conformance_parallel(const nrl_parallel *table, const conformance_setup *setup, conformance_report *report)
{
    if (!check_table(table, report)) return;
    bool staged = table->axis->divides == NRL_DIVIDES_DEPTH;
    if (table->axis->divides == NRL_DIVIDES_WIDTH) {
        on_all_ranks(table, setup, report, 1, "layers", "log-probs are those of one rank", parallel_tp_regions);
        return;
    }
    if (table->axis->divides == NRL_DIVIDES_TOKENS) {
        const char *rule = "a strategy that divides tokens has divide, attention and sum";
        if (!report_check(report, table->divide && table->attention && table->sum, rule, "one of them is NULL") ||
            !on_all_ranks(table, setup, report, 2, "tokens", "attention is that of one rank", parallel_tokens))
            return;
    }
    if (table->axis->divides == NRL_DIVIDES_EXPERTS) {
        if (!report_check(report, table->exchange, "a strategy that divides experts has exchange", "it is NULL") ||
            !on_all_ranks(table, setup, report, 2, "experts", "rows arrive where they are for", parallel_experts))
            return;
    }
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        for (int32_t world = parts[i].least; world <= parts[i].most; world++) {
            parallel_group g = {table, setup, table->axis, world, staged};
            bool strided;
            int32_t shards = parallel_shards(&g, &strided);
            if (staged && (!parts[i].staged || world == 1)) continue;
            if (shards > 0 && shards % world) continue;
            bool all = true;
            REPORT_CASE(report, parts[i].rule) all = parallel_run(&g, report, parts[i].name, parts[i].part);
            if (!all) return;
        }
}
