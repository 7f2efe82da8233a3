/*
 * launch_nodes.h - the machines of a launch: an address each, how many ranks it gets, its GPUs. From
 * a list on the command line, a host file, or the config's launch.nodes. Ranks are numbered through
 * the nodes in their order. [main]
 */
#ifndef CLI_LAUNCH_NODES_H
#define CLI_LAUNCH_NODES_H
#include "base/arena.h"
#include "config/schema.h"

typedef struct {
    const char *address;
    int32_t slots; /* ranks */
    int32_t *gpus; /* one a rank; NULL = the backend chooses */
    int32_t n_gpus;
} launch_node;

typedef struct {
    launch_node *list;
    size_t n, room;
} launch_nodes;

/* `slots` is for nodes that say none; 0: then they must, or have GPUs. Errors name where it stands. */
nrl_status launch_nodes_words(arena *a, const char *list, int32_t slots, launch_nodes *out); /* "a:2,b:4" */
/* A line a node: "host slots=4 gpus=0,1,2,3"; # begins a comment. */
nrl_status launch_nodes_file(arena *a, const char *path, int32_t slots, launch_nodes *out);
nrl_status launch_nodes_config(arena *a, const config_launch *config, launch_nodes *out);

/* The node whose address is this machine's: its host name, or an address of an interface of it. */
nrl_status launch_nodes_own(const launch_nodes *nodes, size_t *own);

#endif
