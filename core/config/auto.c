/*
 * auto.c - keys with the value `auto`: settings that a program chooses for the memory and the speed of the machine
 * before the run is opened, by nrl_plan_search (nrl/plan.h) or `nrl plan`. A run itself has values alone, so that its
 * checkpoints say what it ran with.
 */
#include "config/rules.h"
#include "config/tree.h"
#include <nrl/run.h>
#include <string.h>

static const struct {
    const char *name, *section, *key;
} auto_keys[] = {
    {"train.micro_batch_tokens", "train", "micro_batch_tokens"},
    {"train.activation_checkpointing", "train", "activation_checkpointing"},
    {"parallel", NULL, "parallel"},
};

/* The value of a key if it is `auto`, as a word or as a component without options; else NULL. */
static const nrl_node *auto_value(const nrl_node *root, size_t k)
{
    const nrl_node *map = auto_keys[k].section ? nrl_node_find(root, auto_keys[k].section) : root;
    const nrl_node *at = nrl_node_find(map, auto_keys[k].key);
    const nrl_node *word = nrl_node_kind(at) == NRL_NODE_MAP && nrl_node_size(at) == 1 ? nrl_node_find(at, "name") : at;
    return strcmp(nrl_node_string(word, ""), "auto") ? NULL : at;
}

const char *nrl_config_auto(const nrl_config *config, size_t i)
{
    for (size_t k = 0; k < sizeof auto_keys / sizeof *auto_keys; k++)
        if (auto_value(config->root, k) && !i--) return auto_keys[k].name;
    return NULL;
}

const nrl_node *rules_auto(arena *a, config_problems *problems, const nrl_node *root)
{
    for (size_t k = 0; k < sizeof auto_keys / sizeof *auto_keys; k++) {
        const nrl_node *at = auto_value(root, k);
        if (!at) continue;
        problems_add(problems, at,
                     "%s: auto: `nrl run FILE.yaml` and `nrl launch` choose the value for the ranks of one machine; a "
                     "script, another program, another launcher and several machines need a value\n"
                     "hint: `nrl plan FILE.yaml --ranks N --write planned.yaml` chooses one",
                     auto_keys[k].name);
        const char *section = auto_keys[k].section;
        nrl_node *rest = section ? node_copy(a, root) : node_without(a, root, auto_keys[k].key);
        if (section) node_set(a, rest, section, node_without(a, nrl_node_find(root, section), auto_keys[k].key));
        root = rest;
    }
    return root;
}
