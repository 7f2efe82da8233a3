/*
 * checkpoint_inspect.c - `nrl checkpoint inspect DIR`: which run wrote a checkpoint, its contents,
 * and its compression.
 */
#include "base/node.h"
#include "checkpoint_verb.h"
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static const char *time_of(arena *a, const nrl_checkpoint *c)
{
    time_t t = (time_t)nrl_node_int(nrl_checkpoint_node(c, "time"), 0);
    struct tm utc;
    char text[64];
    if (t <= 0 || !gmtime_r(&t, &utc) || !strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S UTC", &utc)) return "unknown";
    return arena_strdup(a, text);
}

static int percent(int64_t part, int64_t whole)
{
    return whole ? (int)lround(100.0 * (double)part / (double)whole) : 100;
}

/* ---- the metric ---- */

static const char *checkpoint_option(const nrl_checkpoint *c, const char *key)
{
    return nrl_node_string(nrl_node_find(nrl_node_find(nrl_checkpoint_node(c, "config"), "checkpoint"), key), "");
}

static const char *metric_name(const nrl_checkpoint *c)
{
    return checkpoint_option(c, "metric");
}

/* The best value of the run until this checkpoint, as the evaluation reported it. */
static double best_value(const nrl_checkpoint *c)
{
    return nrl_node_f64(nrl_node_find(nrl_checkpoint_node(c, "progress"), "best"), checkpoint_verb_info(c).metric);
}

static int64_t best_step(const nrl_checkpoint *c)
{
    return nrl_node_int(nrl_node_find(nrl_checkpoint_node(c, "progress"), "best_step"), 0);
}

/* The manifest stores the metric so that smaller is better: as it is (1), or negated if larger is better (-1). That is
 * known from metric_mode and for eval_loss. Otherwise only a plugin declares it, but progress.best, which is not
 * negated, shows it: the manifest of the best step has this value or its negative, and no other step's value is below
 * that. 0: both are possible. */
static int stored_sign(const nrl_checkpoint *c)
{
    const nrl_checkpoint_info info = checkpoint_verb_info(c);
    const char *mode = checkpoint_option(c, "metric_mode");
    const double best = best_value(c);
    if (!strcmp(mode, "max")) return -1;
    if (!strcmp(mode, "min") || !strcmp(metric_name(c), "eval_loss")) return 1;
    if (best_step(c) == info.step) return signbit(best) == signbit(info.metric) ? 1 : -1; /* also of 0 */
    const bool as_it_is = best <= info.metric, negated = -best <= info.metric;
    return as_it_is == negated ? 0 : as_it_is ? 1 : -1;
}

/* The same by the checkpoint of the best step, which the run keeps (keep_best); 0: it is gone. */
static int stored_sign_of_best(arena *a, const nrl_checkpoint *c)
{
    const char *dir = arena_printf(a, "%s/../step-%08lld", checkpoint_verb_info(c).dir, (long long)best_step(c));
    nrl_checkpoint *best;
    if (nrl_checkpoint_open(dir, NULL, &best) != NRL_OK) return 0;
    const int sign = stored_sign(best);
    nrl_checkpoint_close(best);
    return sign;
}

/* The metric of this checkpoint as its evaluation reported it. If neither tells, it gets the sign of the best value:
 * losses, log-probabilities and accuracies do not change theirs. */
static double metric_value(arena *a, const nrl_checkpoint *c)
{
    const double stored = checkpoint_verb_info(c).metric;
    int sign = stored_sign(c);
    if (!sign) sign = stored_sign_of_best(a, c);
    return sign ? sign * stored : copysign(stored, best_value(c));
}

/* ---- text ---- */

/* Sizes by slot, in order of appearance. */
static void print_slots(arena *a, const nrl_checkpoint *c)
{
    int64_t n = checkpoint_verb_info(c).n_tensors;
    bool *told = arena_alloc(a, (size_t)n * sizeof *told);
    for (int64_t i = 0; i < n; i++) {
        int64_t raw = 0, stored = 0;
        int count = 0;
        const char *slot = checkpoint_verb_tensor(c, i).slot;
        for (int64_t k = i; k < n && !told[i]; k++) {
            nrl_checkpoint_tensor t = checkpoint_verb_tensor(c, k);
            if (strcmp(slot, t.slot)) continue;
            told[k] = k > i;
            raw += t.bytes;
            stored += t.stored_bytes;
            count++;
        }
        if (count)
            cli_page("%-11s %d tensors, %s, stored in %d %%\n", slot, count, checkpoint_verb_bytes(a, raw),
                     percent(stored, raw));
    }
}

static void print_tensors(arena *a, const nrl_checkpoint *c)
{
    for (int64_t i = 0; i < checkpoint_verb_info(c).n_tensors; i++) {
        nrl_checkpoint_tensor t = checkpoint_verb_tensor(c, i);
        cli_page("  %-48s %-10s %-4s %-14s %10s %4d %%%s\n", t.name, t.slot, nrl_dtype_name(t.dtype),
                 checkpoint_verb_shape(a, &t), checkpoint_verb_bytes(a, t.bytes), percent(t.stored_bytes, t.bytes),
                 t.n_shards > 1 ? arena_printf(a, "  %d shards", t.n_shards) : "");
    }
}

static void print_text(arena *a, const nrl_checkpoint *c)
{
    nrl_checkpoint_info info = checkpoint_verb_info(c);
    cli_page("%s\n", info.dir);
    cli_page("step        %lld\n", (long long)info.step);
    cli_page("written by  nrl %s, %s, %d rank%s\n", nrl_node_string(nrl_checkpoint_node(c, "nrl"), "unknown"),
             time_of(a, c), info.world, info.world > 1 ? "s" : "");
    if (!isnan(info.metric)) cli_page("metric      %s %g\n", metric_name(c), metric_value(a, c));
    cli_page("size        %s in %d files\n", checkpoint_verb_bytes(a, info.bytes), info.world + 1);
    print_slots(a, c);
    print_tensors(a, c);
}

/* ---- JSON ---- */

static nrl_node *tensor_node(arena *a, const nrl_checkpoint_tensor *t)
{
    nrl_node *n = node_new(a, NRL_NODE_MAP), *shape = node_new(a, NRL_NODE_LIST);
    for (int d = 0; d < t->n_dims; d++)
        node_append(a, shape, NULL, node_int(a, t->dims[d]));
    checkpoint_verb_set(a, n, "name", t->name);
    checkpoint_verb_set(a, n, "slot", t->slot);
    checkpoint_verb_set(a, n, "dtype", nrl_dtype_name(t->dtype));
    node_append(a, n, "shape", shape);
    node_append(a, n, "bytes", node_int(a, t->bytes));
    node_append(a, n, "stored", node_int(a, t->stored_bytes));
    node_append(a, n, "shards", node_int(a, t->n_shards));
    return n;
}

static void print_json(arena *a, const nrl_checkpoint *c)
{
    static const char *const nodes[] = {"nrl", "time", "progress", "fingerprints", "model", "config", "script_path"};
    nrl_node *map = node_new(a, NRL_NODE_MAP), *tensors = node_new(a, NRL_NODE_LIST);
    nrl_checkpoint_info info = checkpoint_verb_info(c);
    for (int64_t i = 0; i < info.n_tensors; i++) {
        nrl_checkpoint_tensor t = checkpoint_verb_tensor(c, i);
        node_append(a, tensors, NULL, tensor_node(a, &t));
    }
    checkpoint_verb_set(a, map, "dir", info.dir);
    node_append(a, map, "step", node_int(a, info.step));
    node_append(a, map, "world", node_int(a, info.world));
    if (!isnan(info.metric)) node_append(a, map, "metric", node_f64(a, metric_value(a, c)));
    node_append(a, map, "bytes", node_int(a, info.bytes));
    for (size_t i = 0; i < sizeof nodes / sizeof *nodes; i++)
        if (nrl_checkpoint_node(c, nodes[i]))
            node_append(a, map, nodes[i], node_copy(a, nrl_checkpoint_node(c, nodes[i])));
    node_append(a, map, "tensors", tensors);
    checkpoint_verb_print(map);
}

nrl_status checkpoint_inspect(int argc, char **argv, bool json)
{
    arena a = {0};
    nrl_checkpoint *c;
    NRL_TRY(cli_expect(argc, argv, 1, 1));
    NRL_TRY(nrl_checkpoint_open(argv[1], NULL, &c));
    if (json)
        print_json(&a, c);
    else
        print_text(&a, c);
    nrl_checkpoint_close(c);
    arena_free(&a);
    return NRL_OK;
}
