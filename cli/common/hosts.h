/*
 * hosts.h - launch.nodes of a config: the hosts of a run, for `nrl launch`. [main]
 */
#ifndef CLI_HOSTS_H
#define CLI_HOSTS_H
#include "base/arena.h"
#include <nrl/run.h>

typedef struct {
    const char *address;
    int64_t slots;        /* ranks on the host */
    const nrl_node *gpus; /* list of whole numbers, one per slot, or NULL */
} launch_host;

/* Returns the number of hosts, in `a`, and adds everything else in the list to the config's mistakes. */
size_t hosts_read(arena *a, nrl_config *config, launch_host **hosts);

#endif
