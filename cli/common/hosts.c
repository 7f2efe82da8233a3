/*
 * hosts.c - see hosts.h. `nrl run` and `nrl check` read the list, too, to report its mistakes with all others.
 */
#include "cli/common/hosts.h"
#include <string.h>

enum { SLOTS_MAX = 1 << 16 };

static void check_gpus(nrl_config *config, const launch_host *h)
{
    const bool is_list = nrl_node_kind(h->gpus) == NRL_NODE_LIST;
    if (!h->gpus) return;
    if (!is_list || (int64_t)nrl_node_size(h->gpus) != h->slots)
        nrl_config_mistake(config, h->gpus, "launch.nodes: gpus: expected a list of device numbers, one per slot");
    for (size_t i = 0; is_list && i < nrl_node_size(h->gpus); i++)
        if (nrl_node_int(nrl_node_at(h->gpus, i), -1) < 0)
            nrl_config_mistake(config, nrl_node_at(h->gpus, i), "launch.nodes: gpus: expected whole numbers from 0");
}

static launch_host host_read(arena *a, nrl_config *config, const nrl_node *map)
{
    const nrl_node *slots = nrl_node_find(map, "slots"), *gpus = nrl_node_find(map, "gpus");
    const launch_host h = {.address = nrl_node_string(nrl_node_find(map, "address"), NULL),
                           .slots = slots ? nrl_node_int(slots, 0) : 1,
                           .gpus = nrl_node_kind(gpus) > NRL_NODE_NULL ? gpus : NULL};
    for (size_t i = 0; i < nrl_node_size(map); i++) {
        const char *key = nrl_node_key(map, i);
        if (key && strcmp(key, "address") && strcmp(key, "slots") && strcmp(key, "gpus"))
            nrl_config_mistake(config, nrl_node_at(map, i),
                               arena_printf(a, "launch.nodes.%s: unknown key; expected address, slots or gpus", key));
    }
    if (!h.address) nrl_config_mistake(config, map, "launch.nodes.address: required, the name or address of the host");
    if (h.slots < 1 || h.slots > SLOTS_MAX)
        nrl_config_mistake(config, slots, arena_printf(a, "launch.nodes.slots: expected 1 to %d ranks", SLOTS_MAX));
    check_gpus(config, &h);
    return h;
}

size_t hosts_read(arena *a, nrl_config *config, launch_host **hosts)
{
    const nrl_node *list = nrl_node_find(nrl_node_find(nrl_config_root(config), "launch"), "nodes");
    size_t n = 0;
    *hosts = arena_alloc(a, (nrl_node_size(list) + 1) * sizeof **hosts);
    if (nrl_node_kind(list) > NRL_NODE_NULL && nrl_node_kind(list) != NRL_NODE_LIST)
        nrl_config_mistake(config, list, "launch.nodes: expected a list of {address, slots, gpus}");
    for (size_t i = 0; nrl_node_kind(list) == NRL_NODE_LIST && i < nrl_node_size(list); i++) {
        (*hosts)[n] = host_read(a, config, nrl_node_at(list, i));
        n += (*hosts)[n].address != NULL;
    }
    return n;
}
