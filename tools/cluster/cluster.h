/*
 * cluster.h - `nrl cluster`: a run as a job of Slurm or Kubernetes. Reading order: cluster.c (verbs), cluster_section.c
 * (the section `cluster` of a config), cluster_slurm.c, cluster_kubernetes.c (texts of jobs), cluster_call.c (other
 * programs). [main]
 */
#ifndef CLUSTER_H
#define CLUSTER_H
#include "base/arena.h"
#include "base/buffer.h"
#include <nrl/node.h>
#include <nrl/status.h>
#include <stdbool.h>

typedef struct {
    /* what runs */
    const char *file, *out; /* the config, and its directory */
    char **words;           /* key=value of the command line, [n_words] */
    int n_words;
    /* the section */
    const char *type, *name;
    int64_t nodes, gpus_per_node, ranks_per_node, cpus_per_rank, save_before, max_restarts;
    const char *memory, *time, *partition, *account, *qos, *reservation, *logs, *nrl, *directory;
    const char *image, *namespace, *secret;
    const nrl_node *environment, *setup, *options, *mounts;
    bool requeue;
    /* made of it */
    int64_t seconds; /* of `time`; 0 = no limit is known */
    const char *script_path, *record_path;
} cluster_job;

/* cluster_section.c: reads FILE and its section; NRL_ERR_CONFIG with all mistakes. */
nrl_status cluster_read(arena *a, int argc, char **argv, cluster_job *job);
const char *cluster_quote(arena *a, const char *text); /* one word of a shell */

/* cluster_slurm.c, cluster_kubernetes.c: the text of the job, malloc'd. */
char *slurm_script(arena *a, const cluster_job *job);
char *kubernetes_manifest(arena *a, const cluster_job *job);

/* cluster_call.c: runs a program without a shell; its output is malloc'd. NRL_ERR_IO if it cannot be started. */
typedef struct {
    char *out, *err;
    int code;
} cluster_output;
nrl_status cluster_call(const char *const *argv, const char *input, cluster_output *output);
void cluster_output_free(cluster_output *output);

#endif
