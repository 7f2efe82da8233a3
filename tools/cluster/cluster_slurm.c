/*
 * cluster_slurm.c - the batch script of a run. Before its time limit Slurm signals the ranks, which save and exit with
 * code 75; the script then queues the job again, and the run continues from its newest checkpoint. The same happens
 * after a machine is lost, by --requeue. A job that is cancelled gets SIGTERM and is not queued again.
 */
#include "cluster.h"
#include <stdlib.h>

static void put_option(buffer *b, const char *name, const char *value)
{
    if (value) buffer_print(b, "#SBATCH --%s=%s\n", name, value);
}

static void put_count(buffer *b, const char *name, int64_t value)
{
    if (value) buffer_print(b, "#SBATCH --%s=%lld\n", name, (long long)value);
}

static void put_head(arena *a, buffer *b, const cluster_job *job)
{
    put_option(b, "job-name", job->name);
    put_count(b, "nodes", job->nodes);
    put_count(b, "ntasks-per-node", job->ranks_per_node);
    put_count(b, "cpus-per-task", job->cpus_per_rank);
    put_count(b, "gpus-per-node", job->gpus_per_node);
    put_option(b, "mem", job->memory);
    put_option(b, "time", job->time);
    put_option(b, "partition", job->partition);
    put_option(b, "account", job->account);
    put_option(b, "qos", job->qos);
    put_option(b, "reservation", job->reservation);
    put_option(b, "chdir", job->directory);
    put_option(b, "output", arena_printf(a, "%s/%s-%%j.log", job->logs, job->name));
    buffer_puts(b, "#SBATCH --open-mode=append\n");
    if (job->seconds) buffer_print(b, "#SBATCH --signal=USR1@%lld\n", (long long)job->save_before);
    buffer_puts(b, job->requeue ? "#SBATCH --requeue\n" : "#SBATCH --no-requeue\n");
    for (size_t i = 0; i < nrl_node_size(job->options); i++)
        buffer_print(b, "#SBATCH %s\n", nrl_node_string(nrl_node_at(job->options, i), ""));
}

static const char *value_text(arena *a, const nrl_node *n)
{
    if (nrl_node_kind(n) == NRL_NODE_INT) return arena_printf(a, "%lld", (long long)nrl_node_int(n, 0));
    if (nrl_node_kind(n) == NRL_NODE_BOOL) return nrl_node_bool(n, false) ? "true" : "false";
    if (nrl_node_kind(n) == NRL_NODE_FLOAT) return arena_printf(a, "%.15g", nrl_node_f64(n, 0));
    return nrl_node_string(n, "");
}

char *slurm_script(arena *a, const cluster_job *job)
{
    buffer b = {0};
    buffer_print(&b, "#!/bin/sh\n# Written by `nrl cluster script %s`.\n", job->file);
    put_head(a, &b, job);
    buffer_puts(&b, "set -u\n");
    for (size_t i = 0; i < nrl_node_size(job->environment); i++)
        buffer_print(&b, "export %s=%s\n", nrl_node_key(job->environment, i),
                     cluster_quote(a, value_text(a, nrl_node_at(job->environment, i))));
    for (size_t i = 0; i < nrl_node_size(job->setup); i++)
        buffer_print(&b, "%s\n", nrl_node_string(nrl_node_at(job->setup, i), ""));
    buffer_puts(&b, "stopped=\ntrap 'stopped=1' TERM # scancel, or the time limit itself\n"
                    "echo \"job $SLURM_JOB_ID, start ${SLURM_RESTART_COUNT:-0}, nodes $SLURM_JOB_NODELIST\"\n"
                    "srun --kill-on-bad-exit=1");
    if (job->image) buffer_print(&b, " --container-image=%s", cluster_quote(a, job->image));
    for (size_t i = 0; i < nrl_node_size(job->mounts); i++)
        buffer_print(&b, "%s%s", i ? "," : " --container-mounts=",
                     cluster_quote(a, nrl_node_string(nrl_node_at(job->mounts, i), "")));
    buffer_print(&b, " %s run %s", cluster_quote(a, job->nrl), cluster_quote(a, job->file));
    for (int i = 0; i < job->n_words; i++)
        buffer_print(&b, " %s", cluster_quote(a, job->words[i]));
    buffer_puts(&b, " resume=auto\ncode=$?\n");
    if (job->requeue)
        buffer_puts(&b, "if [ $code -eq 75 ] && [ -z \"$stopped\" ]; then\n"
                        "    echo 'the state is saved; the job is queued again'\n"
                        "    scontrol requeue \"$SLURM_JOB_ID\" && exit 0\n"
                        "fi\n");
    buffer_puts(&b, "exit $code\n");
    return buffer_take(&b);
}
