/*
 * tree.h - the struct nrl_config: the tree of a config and the mistakes found while reading it.
 */
#ifndef CONFIG_TREE_H
#define CONFIG_TREE_H
#include "base/problems.h"

struct nrl_config {
    arena *memory;
    nrl_node *root; /* NULL = empty */
    config_problems problems;
};

#endif
