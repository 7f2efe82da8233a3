/*
 * fold_adapter.c - a section that is named after an adapter plugin, as the component `adapter`.
 */
#include "config/config.h"
#include "config/schema.h"
#include <string.h>

static const nrl_node *fold_one(arena *a, config_problems *problems, const char *name, const nrl_node *root)
{
    nrl_node *own = node_copy(a, nrl_node_find(root, name)), *tree = node_without(a, root, name);
    const nrl_node *adapter = nrl_node_find(tree, "adapter");
    const nrl_node *word = nrl_node_kind(adapter) == NRL_NODE_MAP ? nrl_node_find(adapter, "name") : adapter;
    const char *other = nrl_node_string(word, NULL);
    bool is_other = other && strcmp(other, name);
    if (own->kind == NRL_NODE_NULL) { /* switched off */
        if (!is_other) node_set(a, tree, "adapter", own);
        return tree;
    }
    if (own->kind != NRL_NODE_MAP || is_other) {
        if (!problems) return tree;
        if (is_other)
            problems_add(problems, own,
                         "%s: the config has the adapter '%s' too, expected one\nhint: %s=null switches this one off",
                         name, other, name);
        else
            problems_add(problems, own, "%s: expected a map of options, found %s", name, node_kind_name(own->kind));
        return tree;
    }
    nrl_node *map = node_new(a, NRL_NODE_MAP);
    map->source = own->source;
    map->line = own->line;
    map->column = own->column;
    node_append_text(a, map, "name", name);
    if (nrl_node_kind(adapter) == NRL_NODE_MAP) map = config_merge(a, map, node_copy(a, adapter));
    node_set(a, tree, "adapter", config_merge(a, map, own));
    return tree;
}

const nrl_node *config_fold_adapter(arena *a, config_problems *problems, const char *const *names, size_t n,
                                    const nrl_node *root, const char **section)
{
    *section = "adapter";
    for (size_t i = 0; i < n; i++) {
        if (!nrl_node_find(root, names[i])) continue;
        root = fold_one(a, problems, names[i], root);
        *section = names[i];
    }
    return root;
}
