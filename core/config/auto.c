/*
 * auto.c - keys with the value `auto`: settings that a program chooses for the memory and the speed of the machine
 * before the run is opened, by nrl_plan_search (nrl/plan.h) or `nrl plan`. The run itself has only values, so its
 * checkpoints record the settings that it used.
 */
#include "config/rules.h"
#include "config/tree.h"
#include <nrl/run.h>
#include <string.h>

enum { DEEPEST = 3 };

/* The keys from the outermost to that of the value, then NULL. */
typedef struct {
    const char *of[DEEPEST];
} auto_keys;

static const auto_keys always[] = {
    {{"train", "micro_batch_tokens"}},
    {{"train", "activation_checkpointing"}},
    {{"parallel"}},
};
enum { N_ALWAYS = sizeof always / sizeof *always };

static const nrl_node *value_of(const nrl_node *root, const auto_keys *keys)
{
    for (int i = 0; i < DEEPEST && keys->of[i]; i++)
        root = nrl_node_find(root, keys->of[i]);
    return root;
}

/* Whether the value is `auto`, as a word or as a component without options. */
static bool says_auto(const nrl_node *root, const auto_keys *keys)
{
    const nrl_node *at = value_of(root, keys);
    if (nrl_node_kind(at) == NRL_NODE_MAP && nrl_node_size(at) == 1) at = nrl_node_find(at, "name");
    return !strcmp(nrl_node_string(at, ""), "auto");
}

/* The i-th key whose value is `auto`: of the keys above, and then of the `costs` of each axis. */
static bool find_auto(const nrl_node *root, size_t i, auto_keys *keys)
{
    const nrl_node *axes = nrl_node_find(root, "parallel");
    const size_t n_axes = nrl_node_kind(axes) == NRL_NODE_MAP ? nrl_node_size(axes) : 0;
    for (size_t k = 0; k < N_ALWAYS + n_axes; k++) {
        *keys = k < N_ALWAYS ? always[k] : (auto_keys){{"parallel", nrl_node_key(axes, k - N_ALWAYS), "costs"}};
        if (says_auto(root, keys) && !i--) return true;
    }
    return false;
}

/* "train.micro_batch_tokens" */
static const char *dotted(arena *a, const auto_keys *keys)
{
    const char *text = keys->of[0];
    for (int i = 1; i < DEEPEST && keys->of[i]; i++)
        text = arena_printf(a, "%s.%s", text, keys->of[i]);
    return text;
}

const char *nrl_config_auto(const nrl_config *config, size_t i)
{
    auto_keys keys;
    return find_auto(config->root, i, &keys) ? dotted(config->memory, &keys) : NULL;
}

/* A copy of the map at this depth of the keys, without the value. */
static nrl_node *without(arena *a, const nrl_node *map, const auto_keys *keys, int depth)
{
    const char *key = keys->of[depth];
    if (depth + 1 == DEEPEST || !keys->of[depth + 1]) return node_without(a, map, key);
    nrl_node *rest = node_copy(a, map);
    node_set(a, rest, key, without(a, nrl_node_find(map, key), keys, depth + 1));
    return rest;
}

const nrl_node *rules_auto(arena *a, config_problems *problems, const nrl_node *root)
{
    auto_keys keys;
    while (find_auto(root, 0, &keys)) {
        problems_add(problems, value_of(root, &keys),
                     "%s: auto is only supported by `nrl run FILE.yaml` and `nrl launch` on one machine; expected a "
                     "value in scripts, other programs, with other launchers and on several machines\n"
                     "hint: `nrl plan FILE.yaml --ranks N --write planned.yaml` chooses one",
                     dotted(a, &keys));
        root = without(a, root, &keys, 0);
    }
    return root;
}
