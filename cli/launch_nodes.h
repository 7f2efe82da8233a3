/*
 * launch_nodes.h - the machines of a launch: address, number of ranks and GPUs of each. They come from
 * a list on the command line, a host file, or the config's launch.nodes. Ranks are numbered in the
 * order of the nodes. [main]
 */
#ifndef CLI_LAUNCH_NODES_H
#define CLI_LAUNCH_NODES_H
#include "base/arena.h"
#include "cli/common/hosts.h"

typedef struct {
    const char *address;
    int32_t slots; /* ranks */
    int32_t *gpus; /* one per rank; NULL = the backend chooses */
    int32_t n_gpus;
} launch_node;

typedef struct {
    launch_node *list;
    size_t n, room;
} launch_nodes;

/* `slots` applies to nodes without a number; 0: each node must have a number or GPUs. Errors name the source. */
nrl_status launch_nodes_words(arena *a, const char *list, int32_t slots, launch_nodes *out); /* "a:2,b:4" */
/* One node per line: "host slots=4 gpus=0,1,2,3"; # begins a comment. */
nrl_status launch_nodes_file(arena *a, const char *path, int32_t slots, launch_nodes *out);
nrl_status launch_nodes_config(arena *a, const launch_host *hosts, size_t n, launch_nodes *out);

/* The node with an address of this machine: its host name, or an address of one of its interfaces. */
nrl_status launch_nodes_own(const launch_nodes *nodes, size_t *own);

#endif
