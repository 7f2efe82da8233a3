/*
 * cluster.h - `nrl cluster`: a run as a job of Slurm, Kubernetes or Ray. Reading order: cluster.c (verbs),
 * cluster_section.c (the section `cluster` of a config), cluster_slurm.c, cluster_kubernetes.c, cluster_ray.c (the
 * systems), cluster_call.c (other programs). [main]
 */
#ifndef CLUSTER_H
#define CLUSTER_H
#include "base/arena.h"
#include "base/buffer.h"
#include "base/problems.h"
#include <nrl/node.h>
#include <nrl/status.h>
#include <stdbool.h>

/* Machines with one role. The section itself has the same keys, as defaults of its groups. */
typedef struct {
    const char *name;
    int64_t nodes, gpus_per_node, ranks_per_node, cpus_per_rank;
    const char *memory, *partition, *image, *machine, *command;
    const nrl_node *ranks, *resources, *options;
} cluster_group;

/* Equal machines of a group: a component of a job of Slurm, a Job of Kubernetes. */
typedef struct {
    const cluster_group *group;
    const char *name; /* the group's, with a number if it has several parts */
    int64_t nodes, ranks, gpus;
} cluster_part;

typedef struct {
    /* what runs */
    const char *file, *out; /* the config, and its directory */
    const char *arguments;  /* the config and the key=value of the command line, quoted for a shell */
    /* the section */
    const char *type, *name;
    cluster_group common;
    int64_t save_before, max_restarts;
    const char *time, *account, *qos, *reservation, *logs, *nrl, *directory;
    const char *namespace, *secret, *address, *group;
    int64_t min_nodes, wait_for_nodes;
    const nrl_node *environment, *setup, *mounts, *provider, *groups;
    bool requeue;
    /* made of it */
    cluster_group *group_list; /* [n_groups], that of the run first */
    size_t n_groups;
    cluster_part *parts; /* [n_parts], those of the run first */
    size_t n_parts;
    int64_t seconds;                                    /* of `time`; 0 = no limit is known */
    const char *script_path, *record_path, *state_path; /* absolute */
    const struct cluster_system *system;                /* of `type` */
} cluster_job;

typedef struct {
    const char *state, *from, *elapsed, *left, *reason, *restarts; /* "" = not known */
    const nrl_node *resources; /* of the cluster: {NAME: {total, available, percent}}; NULL = not known */
    bool is_over;
} cluster_state;

/* One type of cluster. Texts live in the arena, but `text` returns a malloc'd one. */
typedef struct cluster_system {
    const char *type, *suffix; /* of the file that `script` prints */
    bool needs_image;
    char *(*text)(arena *a, const cluster_job *job);
    nrl_status (*submit)(arena *a, const cluster_job *job, const char **id);
    nrl_status (*state)(arena *a, const cluster_job *job, const char *id, cluster_state *state);
    /* argv, NULL-terminated; NRL_ERR_IO if there is no output yet */
    nrl_status (*logs)(arena *a, const cluster_job *job, const char *id, bool follow, const char **argv);
    nrl_status (*cancel)(arena *a, const cluster_job *job, const char *id);
} cluster_system;

enum { CLUSTER_MAX_WORDS = 12 }; /* of the argv of `logs`, with the NULL */

extern const cluster_system cluster_slurm, cluster_kubernetes, cluster_ray;
const cluster_system *cluster_find(const char *type); /* NULL = there is no such type */

/* cluster_section.c: reads FILE and its section; NRL_ERR_CONFIG with all mistakes. */
nrl_status cluster_read(arena *a, int argc, char **argv, cluster_job *job);
const char *cluster_quote(arena *a, const char *text); /* one word of a shell */
/* Whether the part belongs to the run; the machines of other groups run their command meanwhile. */
static inline bool cluster_trains(const cluster_job *job, const cluster_part *part)
{
    return part->group == job->group_list;
}

/* cluster_ray.c: the file of `ray up` for the machines of the section, malloc'd; NRL_ERR_CONFIG without `provider`. */
void cluster_check_provider(config_problems *p, const nrl_node *provider);
nrl_status cluster_autoscaler(const cluster_job *job, char **text);

/* cluster_call.c: runs a program without a shell or input; NRL_ERR_IO if it cannot be started, or with what it printed
 * on standard error if its exit code is not 0. `out`, if it is not NULL: its output without the last line end, in the
 * arena. */
nrl_status cluster_command(arena *a, const char *const *argv, const char **out);

#endif
