/*
 * plan.c - nrl/plan.h: candidates in a fixed order, the memory of each, the time of those that fit, and the choice.
 */
#include "base/clock.h"
#include "base/file.h"
#include "base/units.h"
#include "config/config.h"
#include "config/tree.h"
#include "plugin/component.h"
#include "profiling/predict.h"
#include <dirent.h>
#include <math.h>
#include <nrl/plan.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_STRATEGIES = 64, SMALLEST_TOKENS = 256, LARGEST_TOKENS = 1 << 24, SLOWER = 2 };
#define AS_FAST 0.98 /* settings whose speeds differ by less are equally fast */
#define OF_FREE 0.9  /* share of the free memory that tensors may take: a process needs some besides */
#define LATE 2       /* times the seconds of a request, after which no more candidates are tried */

/* A value of a dimension: assignments of keys, or none, which leaves what the config has. */
typedef struct {
    const char *key, *value;
} setting;

typedef struct {
    const nrl_config *base;
    const nrl_plan_request *request;
    arena *a;
    predict_setup setup;
    machine *m;
    const char *cache; /* folder of the token cache, removed at the end; NULL = the config names one */
    setting strategies[MOST_STRATEGIES];
    int32_t n_strategies;
    nrl_node *candidates, *configs; /* the complete config of each candidate, or null */
    bool any_walked, by_samples;    /* by_samples: train.micro_batch counts the samples of a micro-batch */
    double limit, begun;            /* bytes of a rank, 0 = any; by CLOCK_MONOTONIC */
    nrl_status first;               /* of a candidate that cannot run, and its text */
    const char *first_text;
    setting current[16]; /* of the candidate that is walked */
    size_t n_current;
    bool scales;          /* several numbers of ranks are compared */
    int64_t global_batch; /* of the candidates, 0 = that of the config */
} planner;

/* ---- the config of a candidate ---- */

static nrl_config *candidate_config(void *user, arena *a)
{
    planner *p = user;
    nrl_config *c = nrl_config_create(a);
    nrl_config_set_root(c, node_copy(a, p->base->root));
    const char *key;
    while ((key = nrl_config_auto(c, 0)))
        nrl_config_override(c, arena_printf(a, "%s=null", key));
    for (size_t i = 0; i < p->n_current; i++) {
        /* Axes of the config would be merged with those of the candidate. */
        nrl_config_override(c, arena_printf(a, "%s=null", p->current[i].key));
        nrl_config_override(c, arena_printf(a, "%s=%s", p->current[i].key, p->current[i].value));
    }
    if (p->cache) nrl_config_override(c, arena_printf(a, "data.cache=%s", p->cache));
    if (p->global_batch) {
        nrl_config_override(c, arena_printf(a, "train.global_batch=%lld", (long long)p->global_batch));
        nrl_config_override(c, "train.epochs=0"); /* the data may have fewer rows than a batch */
        nrl_config_override(c, "train.steps=1000");
    }
    return c;
}

static bool is_auto(const planner *p, const char *key)
{
    const char *name;
    for (size_t i = 0; (name = nrl_config_auto(p->base, i)); i++)
        if (!strcmp(name, key)) return true;
    return false;
}

/* Whether it is one of the keys parallel.AXIS.costs. */
static bool is_costs(const char *key)
{
    return !strncmp(key, "parallel.", strlen("parallel."));
}

/* A config whose costs are measured has chosen the axes. */
static bool has_costs(const planner *p)
{
    const char *key;
    for (size_t i = 0; (key = nrl_config_auto(p->base, i)); i++)
        if (is_costs(key)) return true;
    return false;
}

static bool is_kept(const planner *p, const char *key)
{
    const nrl_plan_request *r = p->request;
    if (!strcmp(key, "parallel") && has_costs(p)) return true;
    if (p->scales && !strcmp(key, "train.micro_batch_tokens")) return true;
    if (r->only_config || (r->only_auto && !is_auto(p, key))) return true;
    for (size_t i = 0; i < r->n_keep; i++)
        if (!strcmp(r->keep[i], key)) return true;
    return false;
}

/* ---- walking a candidate ---- */

static void put_bytes(arena *a, nrl_node *map, const nrl_run_info *f)
{
    node_append_int(a, map, "total_bytes", f->reserved_peak_bytes);
    node_append_int(a, map, "used_peak_bytes", f->used_peak_bytes);
    node_append_int(a, map, "weight_bytes", f->weight_bytes);
    node_append_int(a, map, "master_bytes", f->master_bytes);
    node_append_int(a, map, "gradient_bytes", f->gradient_bytes);
    node_append_int(a, map, "optimizer_bytes", f->optimizer_bytes);
    node_append_int(a, map, "strategy_bytes", f->strategy_bytes);
    node_append_int(a, map, "reference_bytes", f->reference_bytes);
    node_append_int(a, map, "activation_bytes", f->activation_bytes);
    node_append_int(a, map, "offloaded_bytes", f->offloaded_bytes);
}

static double number(const nrl_node *map, const char *key)
{
    return nrl_node_f64(nrl_node_find(map, key), NAN);
}

static nrl_node *new_candidate(planner *p)
{
    nrl_node *map = node_new(p->a, NRL_NODE_MAP), *keys = node_new(p->a, NRL_NODE_MAP);
    node_append(p->a, map, "keys", keys);
    for (size_t i = 0; i < p->n_current; i++)
        node_append_text(p->a, keys, p->current[i].key, p->current[i].value);
    node_append(p->a, p->candidates, NULL, map);
    return map;
}

static void reject(planner *p, nrl_node *map, const char *reason)
{
    node_set(p->a, map, "fits", node_bool(p->a, false));
    node_set(p->a, map, "reason", node_string(p->a, reason, strcspn(reason, "\n")));
    if (p->request->progress) p->request->progress(p->request->user, map);
}

static bool is_late(const planner *p)
{
    return p->request->seconds > 0 && clock_seconds() - p->begun > LATE * p->request->seconds;
}

/* What the tensors of a rank can take on this machine now. */
static double free_memory(const planner *p)
{
    const nrl_device_info *f = p->m->measures ? &p->m->measures->info : NULL;
    int64_t total, left;
    if (f && !f->host_memory) return OF_FREE * (double)f->memory_bytes;
    nrl_host_memory(&total, &left);
    double bytes = (double)(left < 0 ? total : left) / p->setup.ranks;
    if (f && (double)f->memory_bytes < bytes) bytes = (double)f->memory_bytes; /* a limit of the backend */
    return bytes > 0 ? OF_FREE * bytes : 0;
}

/* Whether an error is about this candidate, not about the config as a whole. */
static bool is_of_candidate(nrl_status st)
{
    return st == NRL_ERR_CONFIG || st == NRL_ERR_DATA || st == NRL_ERR_PLUGIN || st == NRL_ERR_MEMORY;
}

static void push(planner *p, const char *key, const char *value)
{
    p->current[p->n_current++] = (setting){key, value};
}

/* Adds the measured milliseconds of each unit, for the costs that say `auto`. A candidate that cannot run gets none. */
static nrl_status add_costs(planner *p)
{
    prediction found;
    const char *key, *text = "[";
    if (!has_costs(p)) return NRL_OK;
    nrl_status st = predict(&p->setup, candidate_config, p, p->m, true, &found);
    if (st != NRL_OK) return is_of_candidate(st) ? NRL_OK : st;
    for (int32_t u = 0; u < found.n_units && found.unit_seconds; u++)
        text = arena_printf(p->a, "%s%s%.3g", text, u ? ", " : "", 1e3 * found.unit_seconds[u]);
    text = arena_printf(p->a, "%s]", text);
    for (size_t i = 0; (key = nrl_config_auto(p->base, i)) && found.unit_seconds; i++)
        if (is_costs(key)) push(p, key, text);
    return NRL_OK;
}

/* Memory, and where it suffices the time. *fits: within the limit. *whole: a micro-batch holds all that a rank has of a
 * step. */
static nrl_status try_current(planner *p, int64_t tokens, bool *fits, bool *whole)
{
    prediction found;
    char need[SIZE_TEXT], limit[SIZE_TEXT];
    nrl_status st = predict(&p->setup, candidate_config, p, p->m, false, &found);
    if (st != NRL_OK && !is_of_candidate(st)) return st;
    nrl_node *map = new_candidate(p);
    node_append(p->a, p->configs, NULL, st == NRL_OK ? node_copy(p->a, found.config) : node_new(p->a, NRL_NODE_NULL));
    if (st != NRL_OK) {
        if (p->first == NRL_OK) p->first_text = arena_strdup(p->a, nrl_error_text());
        if (p->first == NRL_OK) p->first = st;
        reject(p, map, nrl_error_text());
        return NRL_OK;
    }
    if (!p->any_walked && p->request->only_auto && !(p->limit > 0)) p->limit = free_memory(p);
    p->any_walked = true;
    put_bytes(p->a, map, &found.memory);
    node_append_int(p->a, map, "tokens", found.tokens);
    *whole = tokens >= found.tokens;
    const double bytes = (double)found.memory.reserved_peak_bytes, most = p->limit;
    if (most > 0 && bytes > most) {
        reject(p, map,
               arena_printf(p->a, "needs %s of memory, more than %s", size_text(bytes, need), size_text(most, limit)));
        return NRL_OK;
    }
    *fits = true;
    st = predict(&p->setup, candidate_config, p, p->m, true, &found);
    if (st != NRL_OK && p->scales && is_of_candidate(st)) { /* such as an operation that the file does not have */
        reject(p, map, nrl_error_text());
        *fits = false;
        return NRL_OK;
    }
    NRL_TRY(st);
    node_set(p->a, map, "fits", node_bool(p->a, true));
    if (found.has_time) {
        node_append(p->a, map, "step_seconds", node_f64(p->a, found.seconds));
        node_append(p->a, map, "tokens_per_s", node_f64(p->a, (double)found.tokens / found.seconds));
        node_append(p->a, map, "compute_seconds", node_f64(p->a, found.compute));
        node_append(p->a, map, "wait_seconds", node_f64(p->a, found.waiting));
        node_append(p->a, map, "host_seconds", node_f64(p->a, found.host));
        node_append(p->a, map, "busy_seconds", node_f64(p->a, found.busy));
        node_append(p->a, map, "sent_bytes", node_f64(p->a, found.sent_bytes));
        node_append(p->a, map, "sent_messages", node_f64(p->a, found.sent_messages));
        node_append(p->a, map, "calls", found.calls);
        node_append(p->a, map, "traffic", found.traffic);
    }
    if (p->request->progress) p->request->progress(p->request->user, map);
    return NRL_OK;
}

static nrl_status walk(planner *p, int64_t tokens, bool *fits, bool *whole)
{
    const size_t depth = p->n_current;
    *fits = *whole = false;
    nrl_status st = add_costs(p);
    if (st == NRL_OK) st = try_current(p, tokens, fits, whole);
    p->n_current = depth;
    return st;
}

/* ---- the dimensions, outermost first ---- */

/* Recomputation and a place outside memory only ever cost time: they are tried where memory does not suffice. */
static nrl_status vary_memory(planner *p, int64_t tokens, bool *fits, bool *whole)
{
    static const char *const recomputed[] = {"none", "{ratio: 0.5}", "all"};
    static const char recompute[] = "train.activation_checkpointing", offload[] = "train.offload";
    const size_t depth = p->n_current;
    if (is_kept(p, recompute)) {
        NRL_TRY(walk(p, tokens, fits, whole));
    } else {
        *fits = false;
        for (size_t i = 0; i < sizeof recomputed / sizeof *recomputed && !*fits; i++) {
            push(p, recompute, recomputed[i]);
            NRL_TRY(walk(p, tokens, fits, whole));
            const nrl_node *last = nrl_node_at(p->candidates, nrl_node_size(p->candidates) - 1);
            if (!*fits && !nrl_node_find(last, "total_bytes")) { /* refused for a reason other than memory */
                p->n_current = depth;
                return NRL_OK;
            }
            if (*fits || i + 1 < sizeof recomputed / sizeof *recomputed) p->n_current = depth;
        }
    }
    if (!*fits && !is_kept(p, offload) && p->limit > 0) {
        push(p, offload,
             p->m->measures && !p->m->measures->info.host_memory ? "{optimizer: host}" : "{optimizer: disk}");
        NRL_TRY(walk(p, tokens, fits, &(bool){false}));
    }
    p->n_current = depth;
    return NRL_OK;
}

static nrl_status vary_tokens(planner *p, bool *any)
{
    static const char key[] = "train.micro_batch_tokens";
    bool fits = false, whole = false, did = false;
    const char *refusal = ""; /* of the size before, if its memory is not known */
    double best = 0;
    int slower = 0; /* sizes in a row: larger ones only need more memory */
    if (is_kept(p, key) || p->by_samples) return vary_memory(p, LARGEST_TOKENS, any, &whole);
    for (int64_t n = SMALLEST_TOKENS; n <= LARGEST_TOKENS && !whole && !(did && !fits); n *= 2) {
        if (p->request->only_auto && (slower == SLOWER || (did && is_late(p)))) break;
        push(p, key, arena_printf(p->a, "%lld", (long long)n));
        NRL_TRY(vary_memory(p, n, &fits, &whole));
        p->n_current--;
        did |= fits;
        *any |= fits;
        const nrl_node *last = nrl_node_at(p->candidates, nrl_node_size(p->candidates) - 1);
        const char *why = nrl_node_string(nrl_node_find(last, "reason"), "");
        const double speed = number(last, "tokens_per_s");
        slower = speed > best / AS_FAST ? 0 : slower + fits;
        best = speed > best ? speed : best;
        if (fits) continue;
        if (nrl_node_find(last, "total_bytes") || !strcmp(why, refusal))
            break; /* larger ones need more, or are refused */
        refusal = why;
    }
    return NRL_OK;
}

static bool is_strategy(const char *also)
{
    return !strncmp(also, "parallel=", strlen("parallel="));
}

static nrl_status vary_also(planner *p, size_t i, bool *any)
{
    const nrl_plan_request *r = p->request;
    if (i == r->n_also) return vary_tokens(p, any);
    NRL_TRY(vary_also(p, i + 1, any));
    if (is_strategy(r->also[i]) && p->n_strategies) return NRL_OK; /* one of them */
    const char *equals = strchr(r->also[i], '=');
    push(p, arena_strndup(p->a, r->also[i], (size_t)(equals - r->also[i])), equals + 1);
    nrl_status st = vary_also(p, i + 1, any);
    p->n_current--;
    return st;
}

static nrl_status vary_strategy(planner *p)
{
    bool any = false;
    const size_t depth = p->n_current;
    if (!p->n_strategies) {
        if (is_auto(p, "parallel")) push(p, "parallel", "null"); /* one rank has none */
        nrl_status st = vary_also(p, 0, &any);
        p->n_current = depth;
        return st;
    }
    for (int32_t i = 0; i < p->n_strategies && !(any && is_late(p)); i++) {
        p->current[p->n_current++] = p->strategies[i];
        NRL_TRY(vary_also(p, 0, &any));
        p->n_current--;
    }
    return NRL_OK;
}

static void add_strategy(planner *p, const char *value)
{
    if (p->n_strategies < MOST_STRATEGIES) p->strategies[p->n_strategies++] = (setting){"parallel", value};
}

/* "ddp", "{data: ddp, tensor: 2}", "{tensor: 4}": `rest` beside `size` ranks of another axis. */
static const char *strategy_text(const planner *p, const nrl_parallel *rest, const nrl_parallel *other, int32_t size)
{
    if (size == 1) return arena_strdup(p->a, rest->plugin.name);
    if (size == p->setup.ranks) return arena_printf(p->a, "{%s: %d}", other->axis->name, (int)size);
    return arena_printf(p->a, "{%s: %s, %s: %d}", rest->axis->name, rest->plugin.name, other->axis->name, (int)size);
}

/* Each strategy of an axis that takes the remaining ranks, alone and with each size of each other axis; for several
 * numbers of ranks with the ranks of a node on each other axis, and with these on two of them if one divides the width
 * and the other the depth. Then the values of the request. */
static nrl_status find_strategies(planner *p)
{
    const nrl_environment *env = &p->setup.env;
    const nrl_plan_request *request = p->request;
    const int32_t n = p->setup.ranks;
    const plugin **list;
    p->n_strategies = 0;
    if (n == 1 || is_kept(p, "parallel")) return NRL_OK;
    plugin_host *h = component_host(env, NULL);
    const size_t n_found = plugin_defaults(h, p->a, NRL_KIND_PARALLEL, &list);
    const int32_t node = p->scales ? predict_node(&p->setup, p->m) : 0;
    const nrl_parallel *width = NULL, *depth = NULL;
    for (int32_t other = 1; other <= n; other++)
        for (size_t k = 0; k < n_found && n % other == 0 && (!p->scales || other == 1 || other == node); k++) {
            const nrl_parallel *divides = (const nrl_parallel *)list[k]->table;
            if (other > 1 && divides->axis->takes_rest) continue;
            if (divides->axis->divides == NRL_DIVIDES_WIDTH) width = divides;
            if (divides->axis->divides == NRL_DIVIDES_DEPTH) depth = divides;
            for (size_t i = 0; i < n_found; i++) {
                const nrl_parallel *rest = (const nrl_parallel *)list[i]->table;
                if (!rest->axis->takes_rest || (other == 1 && i != k)) continue;
                add_strategy(p, strategy_text(p, rest, divides, other));
                if (other == n) break; /* no ranks are left for it */
            }
        }
    for (size_t i = 0; i < n_found && p->scales && width && depth && node > 1 && n % (2 * node) == 0; i++) {
        const nrl_parallel *rest = (const nrl_parallel *)list[i]->table;
        if (!rest->axis->takes_rest) continue;
        add_strategy(p, arena_printf(p->a, "{%s: %s, %s: %d, %s: 2}", rest->axis->name, rest->plugin.name,
                                     width->axis->name, (int)node, depth->axis->name));
    }
    plugin_host_destroy(h);
    for (size_t i = 0; i < request->n_also; i++)
        if (is_strategy(request->also[i])) add_strategy(p, strchr(request->also[i], '=') + 1);
    return NRL_OK;
}

/* ---- the choice ---- */

/* The fastest; with a target the one that needs least memory of those that reach it. */
static int64_t choose(const planner *p)
{
    int64_t best = -1;
    double target = p->request->target_tokens_per_s;
    for (size_t i = 0; p->request->only_auto && i < nrl_node_size(p->candidates); i++)
        target = fmax(target, AS_FAST * number(nrl_node_at(p->candidates, i), "tokens_per_s"));
    for (size_t i = 0; i < nrl_node_size(p->candidates); i++) {
        const nrl_node *c = nrl_node_at(p->candidates, i),
                       *b = best < 0 ? NULL : nrl_node_at(p->candidates, (size_t)best);
        const double speed = number(c, "tokens_per_s");
        if (isnan(speed) || speed < target) continue;
        if (!b ||
            (target > 0 ? number(c, "total_bytes") < number(b, "total_bytes") : speed > number(b, "tokens_per_s")))
            best = (int64_t)i;
    }
    return best;
}

static void remove_cache(const char *folder)
{
    DIR *d = opendir(folder);
    for (const struct dirent *e; d && (e = readdir(d));)
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, "..")) unlinkat(dirfd(d), e->d_name, 0);
    if (d) closedir(d);
    rmdir(folder);
}

static nrl_status check_request(const planner *p)
{
    const nrl_plan_request *r = p->request;
    const char *key;
    for (size_t i = 0; (key = nrl_config_auto(p->base, i)); i++)
        if (is_kept(p, key))
            return nrl_fail(NRL_ERR_CONFIG, "%s: auto: there is no value to keep; expected a value in the config", key);
    if (r->only_auto && !nrl_config_auto(p->base, 0))
        return nrl_fail(NRL_ERR_CONFIG, "there is nothing to choose: no key is `auto`");
    if (p->by_samples && is_auto(p, "train.micro_batch_tokens"))
        return nrl_fail(NRL_ERR_CONFIG, "train.micro_batch_tokens: auto and train.micro_batch are both set; expected "
                                        "one of them");
    for (size_t i = 0; i < r->n_also; i++)
        if (!strchr(r->also[i], '=') || *r->also[i] == '=')
            return nrl_fail(NRL_ERR_CONFIG, "'%s' is not a value to try; expected KEY=VALUE", r->also[i]);
    if (r->n_also > 8) return nrl_fail(NRL_ERR_CONFIG, "%zu values to try; expected at most 8", r->n_also);
    if (r->save_machine && !access(r->save_machine, F_OK))
        return nrl_fail(NRL_ERR_CONFIG, "%s exists; expected a new file", r->save_machine);
    return NRL_OK;
}

static nrl_node *describe_link(arena *a, const link_cost *link)
{
    nrl_node *map = node_new(a, NRL_NODE_MAP);
    node_append(a, map, "alpha", node_f64(a, link->alpha));
    node_append(a, map, "beta", node_f64(a, link->beta));
    return map;
}

static void describe_machine(const planner *p, nrl_node *tree)
{
    arena *a = p->a;
    const machine *m = p->m;
    nrl_node *about = node_new(a, NRL_NODE_MAP);
    link_cost link;
    double share;
    node_append(a, tree, "memory_bytes", node_f64(a, p->limit));
    node_append(a, tree, "seconds", node_f64(a, clock_seconds() - p->begun));
    node_append(a, tree, "machine", about);
    node_append_text(a, about, "device", m->device);
    node_append_int(a, about, "threads", m->threads);
    node_append_int(a, about, "processors", m->processors);
    node_append(a, about, "measured_seconds", node_f64(a, m->measured_seconds));
    if (!p->scales) return;
    node_append_int(a, about, "ranks_per_node", predict_node(&p->setup, m));
    const bool fits = !m->ranks_per_node && machine_fit(m, CALL_ALL_REDUCE, &link, &share);
    if (!fits && !m->ranks_per_node) return;
    node_append(a, about, "inside", describe_link(a, fits ? &link : &m->inside));
    node_append(a, about, "between", describe_link(a, fits ? &link : &m->between));
}

static void put_candidates(const planner *p, nrl_node *tree)
{
    const int64_t best = choose(p);
    node_append(p->a, tree, "candidates", p->candidates);
    node_append(p->a, tree, "chosen", best < 0 ? node_new(p->a, NRL_NODE_NULL) : node_int(p->a, best));
}

/* The config of the chosen candidate. Its token cache is gone; `cluster` is not a part of a run. */
static void put_config(const planner *p, nrl_node *tree)
{
    const nrl_node *cluster = nrl_node_find(p->base->root, "cluster"), *chosen = nrl_node_find(tree, "chosen");
    if (nrl_node_kind(chosen) != NRL_NODE_INT) return;
    nrl_node *config = node_copy(p->a, nrl_node_at(p->configs, (size_t)nrl_node_int(chosen, 0)));
    if (p->cache) node_set(p->a, (nrl_node *)nrl_node_find(config, "data"), "cache", node_text(p->a, ""));
    if (cluster) node_set(p->a, config, "cluster", node_as_written(p->a, cluster));
    node_append(p->a, tree, "config", config);
}

/* The candidates of p->setup.ranks. */
static nrl_status search(planner *p)
{
    p->candidates = node_new(p->a, NRL_NODE_LIST);
    p->configs = node_new(p->a, NRL_NODE_LIST);
    NRL_TRY(find_strategies(p));
    return vary_strategy(p);
}

static bool same_keys(const nrl_node *a, const nrl_node *b)
{
    bool same = nrl_node_size(a) == nrl_node_size(b);
    for (size_t i = 0; same && i < nrl_node_size(a); i++)
        same = !strcmp(nrl_node_key(a, i), nrl_node_key(b, i)) &&
               !strcmp(nrl_node_string(nrl_node_at(a, i), ""), nrl_node_string(nrl_node_at(b, i), ""));
    return same;
}

/* Tokens per second and rank, beside those of the same keys with the least ranks. */
static void put_efficiency(const planner *p, const nrl_node *counts)
{
    for (size_t i = 0; i < nrl_node_size(p->candidates); i++) {
        nrl_node *c = (nrl_node *)nrl_node_at(p->candidates, i);
        const double own = number(c, "tokens_per_s") / p->setup.ranks;
        double first = own;
        for (size_t k = nrl_node_size(counts); k-- > 0;) {
            const nrl_node *count = nrl_node_at(counts, k), *others = nrl_node_find(count, "candidates");
            for (size_t j = 0; j < nrl_node_size(others); j++) {
                const nrl_node *o = nrl_node_at(others, j);
                const double speed = number(o, "tokens_per_s") / number(count, "ranks");
                if (!isnan(speed) && same_keys(nrl_node_find(o, "keys"), nrl_node_find(c, "keys"))) first = speed;
            }
        }
        if (!isnan(own)) node_append(p->a, c, "efficiency", node_f64(p->a, own / first));
    }
}

static nrl_status search_counts(planner *p, const int32_t *counts, size_t n, bool fixed_batch, nrl_node *list)
{
    const nrl_node *train = nrl_node_find(p->base->root, "train");
    const int64_t batch = (int64_t)nrl_node_f64(nrl_node_find(train, "global_batch"), 0);
    for (size_t i = 0; i < n; i++) {
        if (batch < 1)
            return nrl_fail(NRL_ERR_CONFIG,
                            "several numbers of ranks: there is no train.global_batch; expected that of %d ranks",
                            (int)counts[0]);
        nrl_node *map = node_new(p->a, NRL_NODE_MAP);
        p->setup.ranks = counts[i];
        p->global_batch = fixed_batch ? batch : batch * counts[i] / counts[0];
        NRL_TRY(search(p));
        const int32_t node = predict_node(&p->setup, p->m);
        node_append_int(p->a, map, "ranks", counts[i]);
        node_append_int(p->a, map, "nodes", (counts[i] + node - 1) / node);
        node_append_int(p->a, map, "global_batch", p->global_batch);
        put_efficiency(p, list);
        put_candidates(p, map);
        node_append(p->a, list, NULL, map);
    }
    return NRL_OK;
}

static nrl_status plan(planner *p, const nrl_environment *env, const int32_t *counts, size_t n, bool fixed_batch,
                       nrl_node **result)
{
    const nrl_plan_request *own = p->request;
    memcpy(&p->setup.env, env, env->size < sizeof p->setup.env ? env->size : sizeof p->setup.env);
    p->setup.memory = p->a;
    p->limit = own->memory_bytes;
    p->begun = clock_seconds();
    p->by_samples = nrl_node_f64(nrl_node_find(nrl_node_find(p->base->root, "train"), "micro_batch"), 0) > 0;
    p->setup.opens_device = own->only_auto;
    p->m->most_seconds = own->seconds;
    NRL_TRY(check_request(p));
    if (own->machine) NRL_TRY(machine_read(p->m, own->machine));
    char *folder = arena_printf(p->a, "%s/nrl-plan-XXXXXX", file_temporary_folder());
    const nrl_node *cache = nrl_node_find(nrl_node_find(p->base->root, "data"), "cache");
    nrl_node *tree = *result = node_new(p->a, NRL_NODE_MAP), *list = node_new(p->a, NRL_NODE_LIST);
    if (!cache && mkdtemp(folder)) p->cache = folder;
    nrl_status st = p->scales ? search_counts(p, counts, n, fixed_batch, list) : search(p);
    if (p->cache) remove_cache(p->cache);
    if (st == NRL_OK && !p->any_walked) st = nrl_fail(p->first, "%s", p->first_text);
    if (st == NRL_OK && own->save_machine) st = machine_write(p->m, own->save_machine);
    if (st == NRL_OK && p->scales) node_append(p->a, tree, "counts", list);
    if (st == NRL_OK && !p->scales) put_candidates(p, tree);
    if (st == NRL_OK && !p->scales) put_config(p, tree);
    if (st == NRL_OK) describe_machine(p, tree);
    return st;
}

nrl_status nrl_plan_search(nrl_arena *memory, const nrl_config *config, const nrl_environment *env,
                           const nrl_plan_request *request, nrl_node **result)
{
    nrl_plan_request own = {0};
    machine m = {0};
    memcpy(&own, request, request->size < sizeof own ? request->size : sizeof own);
    planner p = {.base = config, .request = &own, .a = memory, .m = &m, .setup.ranks = own.ranks};
    nrl_status st = plan(&p, env, NULL, 0, false, result);
    machine_close(&m);
    return st;
}

nrl_status nrl_plan_scale(nrl_arena *memory, const nrl_config *config, const nrl_environment *env,
                          const nrl_plan_request *request, const int32_t *counts, size_t n, bool fixed_batch,
                          nrl_node **result)
{
    nrl_plan_request own = {0};
    machine m = {0};
    memcpy(&own, request, request->size < sizeof own ? request->size : sizeof own);
    planner p = {.base = config, .request = &own, .a = memory, .m = &m, .scales = true, .setup.on_nodes = true};
    nrl_status st = n && counts[0] > 0
                        ? plan(&p, env, counts, n, fixed_batch, result)
                        : nrl_fail(NRL_ERR_CONFIG, "no numbers of ranks to compare; expected ascending numbers from 1");
    machine_close(&m);
    return st;
}
