/*
 * cluster_rows.c - the keys of the section `cluster`.
 */
#include "cluster_rows.h"

/* clang-format off */
#define ROW(name, type, min, help) {#name, (type), ROW_OF_JOB, offsetof(cluster_job, name), (min), (help)}
#define BOTH(name, type, min, help) {#name, (type), ROW_OF_BOTH, offsetof(cluster_group, name), (min), (help)}
#define GROUP(name, type, min, help) {#name, (type), ROW_OF_GROUP, offsetof(cluster_group, name), (min), (help)}
/* clang-format on */

const cluster_row cluster_rows[] = {
    ROW(type, ROW_TEXT, 0, "slurm (the default), kubernetes or ray"),
    ROW(name, ROW_TEXT, 0, "name of the job; unset: the last part of out"),
    BOTH(nodes, ROW_COUNT, 1, "number of machines (1)"),
    BOTH(gpus_per_node, ROW_COUNT, 0, "GPUs of each machine (0)"),
    BOTH(ranks_per_node, ROW_COUNT, 1, "ranks of each machine; unset: one for each GPU, or one"),
    BOTH(ranks, ROW_LIST, 0,
         "ranks of each machine, if they differ, instead of nodes: [4, 8, 16]; with gpus_per_node each rank has a GPU"),
    BOTH(cpus_per_rank, ROW_COUNT, 1, "processors of each rank; unset: the default of the cluster"),
    BOTH(memory, ROW_TEXT, 0, "memory of each machine, such as 200G; unset: the default of the cluster"),
    ROW(groups, ROW_MAP, 0, "machines with several roles: {NAME: {nodes: 2, ...}}"),
    ROW(group, ROW_TEXT, 0, "the group that trains; unset: trainer, or the only one"),
    GROUP(command, ROW_TEXT, 0, "command that a group that does not train runs on each of its machines"),
    GROUP(machine, ROW_TEXT, 0, "for `nrl cluster autoscaler`: type of the machines; unset: provider.machine"),
    ROW(time, ROW_TEXT, 0, "limit: minutes, HOURS:MINUTES:SECONDS or DAYS-HOURS"),
    BOTH(partition, ROW_TEXT, 0, "Slurm: where the job runs"),
    ROW(account, ROW_TEXT, 0, "Slurm: account that is charged"),
    ROW(qos, ROW_TEXT, 0, "Slurm: quality of service"),
    ROW(reservation, ROW_TEXT, 0, "Slurm: reservation"),
    ROW(save_before, ROW_COUNT, 1, "seconds for saving: Slurm signals the run this long before the limit (120)"),
    ROW(requeue, ROW_BOOL, 0, "Slurm: requeue the job after that, and after a machine is lost (true)"),
    ROW(max_restarts, ROW_COUNT, 0, "Kubernetes, Ray: maximum number of restarts after a rank or machine is lost (3)"),
    ROW(min_nodes, ROW_COUNT, 1, "Ray: minimum number of machines; unset: all"),
    ROW(wait_for_nodes, ROW_COUNT, 1, "Ray: seconds to wait for more than min_nodes (60)"),
    BOTH(resources, ROW_MAP, 0, "Ray: other resources that each machine must have: {NAME: number}"),
    ROW(address, ROW_TEXT, 0, "Ray: its dashboard, such as http://head:8265; unset: RAY_ADDRESS, or this machine"),
    ROW(provider, ROW_MAP, 0,
        "for `nrl cluster autoscaler`: {type: aws, gcp or azure, machine, head_machine, ssh_user, ...}"),
    ROW(environment, ROW_MAP, 0, "variables of the job: {NAME: value}"),
    ROW(setup, ROW_LIST, 0, "lines of the shell before the run, such as 'module load cuda'"),
    BOTH(options, ROW_LIST, 0, "Slurm: further options of sbatch, such as --constraint=a100"),
    BOTH(image, ROW_TEXT, 0, "container image; Slurm needs the plugin pyxis; with Ray it is used by the autoscaler"),
    ROW(mounts, ROW_LIST, 0, "Slurm: HOST:CONTAINER; Kubernetes: CLAIM:PATH of volume claims"),
    ROW(namespace, ROW_TEXT, 0, "Kubernetes: namespace"),
    ROW(secret, ROW_TEXT, 0, "Kubernetes: a Secret whose key `secret` the ranks share"),
    ROW(directory, ROW_TEXT, 0, "where the job runs; unset: the working directory"),
    ROW(logs, ROW_TEXT, 0, "directory of scripts, records and output of jobs (jobs)"),
    ROW(nrl, ROW_TEXT, 0, "the program; unset: this one, or nrl in a container"),
};
const size_t cluster_n_rows = sizeof cluster_rows / sizeof *cluster_rows;
