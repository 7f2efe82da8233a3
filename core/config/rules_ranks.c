/*
 * rules_ranks.c - what is said about ranks: axes of `parallel`, hosts of `launch`, `debug`.
 */
#include "config/rules.h"
#include <string.h>

enum { DEBUG_EVERY = 10, SLOTS_MAX = 1 << 16, RANKS_MAX = 1 << 20 };

/* ---- parallel ---- */

typedef struct {
    const nrl_node *data, *tensor, *pipeline;
} axes;

const nrl_option config_axes_rows[] = {
    NRL_OPT_NODE(axes, data, "", "ddp or fsdp, a number of ranks, or {name, size, options}; unset: ddp, on the ranks that are left"),
    NRL_OPT_NODE(axes, tensor, "1", "ranks that share each layer, or {size, options}"),
    NRL_OPT_NODE(axes, pipeline, "1", "ranks that share the list of layers, or {size, options}"),
};
const size_t config_n_axes_rows = sizeof config_axes_rows / sizeof *config_axes_rows;

static bool read_size(config_problems *problems, const char *axis, const nrl_node *at, int64_t *size)
{
    *size = nrl_node_kind(at) == NRL_NODE_INT ? nrl_node_int(at, 0) : 0;
    bool good = *size >= 1 && *size <= RANKS_MAX;
    if (!good) problems_add(problems, at, "parallel.%s: expected a number of ranks from 1", axis);
    if (!good) *size = 1;
    return good;
}

/* Takes `size` out of {name, size, options}. */
static const nrl_node *without_size(arena *a, config_problems *problems, const char *axis, const nrl_node *map,
                                    int64_t *size)
{
    const nrl_node *at = nrl_node_find(map, "size");
    if (!at) return map;
    read_size(problems, arena_printf(a, "%s.size", axis), at, size);
    return node_without(a, map, "size");
}

/* {name: ddp, tensor: 2}: an axis among the options of a strategy. */
static const nrl_node *without_axes(arena *a, config_problems *problems, const nrl_node *map)
{
    for (size_t i = 0; i < config_n_axes_rows; i++) {
        const char *axis = config_axes_rows[i].name;
        const nrl_node *at = nrl_node_find(map, axis);
        if (!at) continue;
        problems_add(problems, at, "parallel.%s: an axis, which does not stand beside the name of a strategy: "
                                   "expected parallel: {data: {name: %s, ...}, %s: ...}",
                     axis, nrl_node_string(nrl_node_find(map, "name"), "ddp"), strcmp(axis, "data") ? axis : "tensor");
        map = node_without(a, map, axis);
    }
    return map;
}

/* A size, or a map; 1 is no strategy at all. The plugin is called like the axis unless the map names one. */
static void read_axis(arena *a, config_problems *problems, const nrl_node *node, config_axis *out)
{
    nrl_node_type kind = nrl_node_kind(node);
    out->size = 1;
    if (!node || kind == NRL_NODE_NULL) return;
    if (kind != NRL_NODE_INT && kind != NRL_NODE_MAP) {
        problems_add(problems, node, "parallel.%s: expected a number of ranks or {size: RANKS, OPTION: VALUE}", out->name);
        return;
    }
    if (kind == NRL_NODE_INT && (!read_size(problems, out->name, node, &out->size) || out->size == 1)) return;
    if (kind == NRL_NODE_MAP && !nrl_node_find(node, "size"))
        problems_add(problems, node, "parallel.%s.size: required, a number of ranks", out->name);
    if (kind == NRL_NODE_MAP) node = without_size(a, problems, out->name, node, &out->size);
    component_read(a, problems, arena_printf(a, "parallel.%s", out->name), kind == NRL_NODE_MAP ? node : NULL, out->name,
                   &out->strategy);
    out->strategy.at = node;
    if (out->strategy.resolved) node_append(a, out->strategy.resolved, "size", node_int(a, out->size));
}

/* `auto` stands for itself in the resolved config: another number of ranks may resume it. */
static void read_data(arena *a, config_problems *problems, const nrl_node *node, bool names_axes, config_run *run)
{
    config_axis *axis = &run->axes[CONFIG_DATA];
    config_component *c = &axis->strategy;
    if (nrl_node_kind(node) == NRL_NODE_INT) {
        read_size(problems, "data", node, &axis->size);
        node = NULL;
    } else if (nrl_node_kind(node) == NRL_NODE_MAP) {
        node = without_size(a, problems, "data", node, &axis->size);
    }
    component_read(a, problems, names_axes ? "parallel.data" : "parallel", node, "auto", c);
    run->parallel_unset = c->name && !strcmp(c->name, "auto");
    if (!c->name || !(run->parallel_unset || !strcmp(c->name, "none"))) return;
    const char *word = c->name;
    c->name = NULL;
    if (!nrl_node_size(c->options)) return;
    run->parallel_unset = false; /* else the strategy that is chosen complains too */
    if (nrl_node_find(node, "name"))
        problems_add(problems, c->at, "parallel: %s has no options", word);
    else
        problems_add(problems, node, "parallel.%s: no axis (data, tensor, pipeline); an option stands beside a name: expected "
                     "{name: STRATEGY, OPTION: VALUE} or {data: STRATEGY}",
                     nrl_node_key(c->options, 0));
}

bool rules_names_axes(const nrl_node *node)
{
    return nrl_node_kind(node) == NRL_NODE_MAP && !nrl_node_find(node, "name") &&
           (nrl_node_find(node, "data") || nrl_node_find(node, "tensor") || nrl_node_find(node, "pipeline"));
}

static void resolve_axes(arena *a, config_run *run)
{
    nrl_node *data = run->axes[CONFIG_DATA].strategy.resolved, *map = data;
    bool alone = !run->axes[CONFIG_TENSOR].strategy.name && !run->axes[CONFIG_PIPELINE].strategy.name;
    if (!alone) map = node_new(a, NRL_NODE_MAP);
    for (int i = 0; i < CONFIG_N_AXES && !alone; i++)
        if (run->axes[i].strategy.resolved) node_append(a, map, run->axes[i].name, run->axes[i].strategy.resolved);
    if (map) node_set(a, run->resolved, "parallel", map);
}

void rules_axes(arena *a, config_problems *problems, const nrl_node *node, config_run *run)
{
    static const char *const names[CONFIG_N_AXES] = {"pipeline", "data", "tensor"};
    axes x = {0};
    const option_part part = OPTION_PART(config_axes_rows, &x);
    bool names_axes = rules_names_axes(node);
    for (int i = 0; i < CONFIG_N_AXES; i++) run->axes[i].name = names[i];
    if (names_axes) options_fill(a, problems, "parallel", node, &part, 1);
    else if (nrl_node_find(node, "name")) node = without_axes(a, problems, node);
    read_data(a, problems, names_axes ? x.data : node, names_axes, run);
    read_axis(a, problems, x.tensor, &run->axes[CONFIG_TENSOR]);
    read_axis(a, problems, x.pipeline, &run->axes[CONFIG_PIPELINE]);
    resolve_axes(a, run);
}

/* ---- launch ---- */

static const nrl_option host_rows[] = {
    NRL_OPT_STR(config_host, address, NULL, "name or address of the host"),
    NRL_OPT_INT(config_host, slots, "1", 1, SLOTS_MAX, "ranks on it"),
    NRL_OPT_NODE(config_host, gpus, "", "device numbers, one a slot"),
};

static void check_gpus(config_problems *problems, const config_host *h)
{
    if (!h->gpus) return;
    bool is_list = nrl_node_kind(h->gpus) == NRL_NODE_LIST;
    if (!is_list || (int64_t)nrl_node_size(h->gpus) != h->slots)
        problems_add(problems, h->gpus, "launch.nodes: gpus: expected a list of %lld device numbers, one a slot",
                     (long long)h->slots);
    for (size_t i = 0; is_list && i < nrl_node_size(h->gpus); i++)
        if (nrl_node_int(nrl_node_at(h->gpus, i), -1) < 0)
            problems_add(problems, nrl_node_at(h->gpus, i), "launch.nodes: gpus: expected whole numbers from 0");
}

void rules_hosts(arena *a, config_problems *problems, config_launch *launch)
{
    const nrl_node *list = launch->nodes;
    if (!list) return;
    if (nrl_node_kind(list) != NRL_NODE_LIST) {
        problems_add(problems, list, "launch.nodes: expected a list of {address, slots, gpus}");
        return;
    }
    launch->hosts = arena_alloc(a, (nrl_node_size(list) + 1) * sizeof *launch->hosts);
    for (size_t i = 0; i < nrl_node_size(list); i++) {
        config_host *h = &launch->hosts[launch->n_hosts];
        const option_part part = OPTION_PART(host_rows, h);
        options_fill(a, problems, "launch.nodes", nrl_node_at(list, i), &part, 1);
        check_gpus(problems, h);
        if (h->address) launch->n_hosts++;
    }
}

/* ---- debug ---- */

typedef struct {
    int64_t every;
} debug_map;

static const nrl_option debug_rows[] = {
    NRL_OPT_INT(debug_map, every, "10", 1, 1e9, "steps between comparisons of the ranks"),
};

int64_t rules_debug(arena *a, config_problems *problems, const nrl_node *node)
{
    debug_map m = {0};
    const option_part part = OPTION_PART(debug_rows, &m);
    if (nrl_node_kind(node) == NRL_NODE_MAP) {
        options_fill(a, problems, "debug", node, &part, 1);
        return m.every;
    }
    const char *word = nrl_node_string(node, NULL);
    bool on = word ? !strcmp(word, "true") || !strcmp(word, "yes") || !strcmp(word, "on") : nrl_node_bool(node, false);
    bool off = !node || (word ? !strcmp(word, "false") || !strcmp(word, "no") || !strcmp(word, "off")
                              : nrl_node_kind(node) == NRL_NODE_BOOL && !on);
    if (!on && !off) problems_add(problems, node, "debug: expected true, false or {every: 10}");
    return on ? DEBUG_EVERY : 0;
}
