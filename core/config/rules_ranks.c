/*
 * rules_ranks.c - options about ranks: the hosts of `launch`, and `debug`.
 */
#include "config/rules.h"
#include <string.h>

enum { DEBUG_EVERY = 10, SLOTS_MAX = 1 << 16 };

/* ---- launch ---- */

static const nrl_option host_rows[] = {
    NRL_OPT_STR(config_host, address, NULL, "name or address of the host"),
    NRL_OPT_INT(config_host, slots, "1", 1, SLOTS_MAX, "ranks on the host"),
    NRL_OPT_NODE(config_host, gpus, "", "device numbers, one per slot"),
};

static void check_gpus(config_problems *problems, const config_host *h)
{
    if (!h->gpus) return;
    bool is_list = nrl_node_kind(h->gpus) == NRL_NODE_LIST;
    if (!is_list || (int64_t)nrl_node_size(h->gpus) != h->slots)
        problems_add(problems, h->gpus, "launch.nodes: gpus: expected a list of %lld device numbers, one per slot",
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
