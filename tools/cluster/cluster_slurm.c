/*
 * cluster_slurm.c - the batch script of a run. Machines of several groups or sizes are components of a heterogeneous
 * job, and the ranks of one run are one step over its components. Before its time limit Slurm signals the ranks, which
 * save and exit with code 75; the script then queues the job again, and the run continues from its newest checkpoint.
 * The same happens after a machine is lost, by --requeue. A job that is cancelled gets SIGTERM and is not queued again.
 */
#include "cluster.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* sbatch splits these lines at blanks, begins a comment at # and takes what stands in double quotes as one word;
 * cluster_section.c refuses the characters that have a meaning there. */
static void put_option(buffer *b, const char *name, const char *value)
{
    if (!value) return;
    const char *quote = strpbrk(value, " \t#'") ? "\"" : "";
    buffer_print(b, "#SBATCH --%s=%s%s%s\n", name, quote, value, quote);
}

static void put_count(buffer *b, const char *name, int64_t value)
{
    if (value) buffer_print(b, "#SBATCH --%s=%lld\n", name, (long long)value);
}

/* A machine of the run has a task for each rank, one of another group has one for its command. */
static void put_component(buffer *b, const cluster_job *job, const cluster_part *part)
{
    const cluster_group *g = part->group;
    const bool trains = cluster_trains(job, part);
    put_count(b, "nodes", part->nodes);
    put_count(b, "ntasks-per-node", trains ? part->ranks : 1);
    put_count(b, "cpus-per-task", trains ? g->cpus_per_rank : g->cpus_per_rank * part->ranks);
    put_count(b, "gpus-per-node", part->gpus);
    put_option(b, "mem", g->memory);
    put_option(b, "time", job->time);
    put_option(b, "partition", g->partition);
    put_option(b, "account", job->account);
    put_option(b, "qos", job->qos);
    put_option(b, "reservation", job->reservation);
    if (job->seconds) buffer_print(b, "#SBATCH --signal=USR1@%lld\n", (long long)job->save_before);
    for (size_t i = 0; i < nrl_node_size(g->options); i++)
        buffer_print(b, "#SBATCH %s\n", nrl_node_string(nrl_node_at(g->options, i), ""));
}

static void put_head(arena *a, buffer *b, const cluster_job *job)
{
    put_option(b, "job-name", job->name);
    put_option(b, "chdir", job->directory);
    put_option(b, "output", arena_printf(a, "%s/%s-%%j.log", job->logs, job->name));
    buffer_puts(b, "#SBATCH --open-mode=append\n");
    buffer_puts(b, job->requeue ? "#SBATCH --requeue\n" : "#SBATCH --no-requeue\n");
    for (size_t i = 0; i < job->n_parts; i++) {
        if (i) buffer_puts(b, "#SBATCH hetjob\n");
        put_component(b, job, &job->parts[i]);
    }
}

static const char *value_text(arena *a, const nrl_node *n)
{
    if (nrl_node_kind(n) == NRL_NODE_INT) return arena_printf(a, "%lld", (long long)nrl_node_int(n, 0));
    if (nrl_node_kind(n) == NRL_NODE_BOOL) return nrl_node_bool(n, false) ? "true" : "false";
    if (nrl_node_kind(n) == NRL_NODE_FLOAT) return arena_printf(a, "%.15g", nrl_node_f64(n, 0));
    return nrl_node_string(n, "");
}

/* A step on the components of a group, up to what runs in it. Since Slurm 22.05 a step does not inherit cpus-per-task;
 * the task of a machine of another group may use all of its processors without it. */
static void put_step(arena *a, buffer *b, const cluster_job *job, const cluster_group *g, const char *options)
{
    buffer_print(b, "NRL_GROUP=%s srun%s", g->name, options);
    for (size_t i = 0, n = 0; i < job->n_parts && job->n_parts > 1; i++)
        if (job->parts[i].group == g) buffer_print(b, "%s%zu", n++ ? "," : " --het-group=", i);
    if (g == job->group_list && g->cpus_per_rank) buffer_print(b, " --cpus-per-task=%lld", (long long)g->cpus_per_rank);
    if (g->image) buffer_print(b, " --container-image=%s", cluster_quote(a, g->image));
    for (size_t i = 0; i < nrl_node_size(job->mounts); i++)
        buffer_print(b, "%s%s", i ? "," : " --container-mounts=",
                     cluster_quote(a, nrl_node_string(nrl_node_at(job->mounts, i), "")));
}

static char *slurm_script(arena *a, const cluster_job *job)
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
                    "echo \"job $SLURM_JOB_ID, start ${SLURM_RESTART_COUNT:-0}, nodes $SLURM_JOB_NODELIST\"\n");
    if (job->n_groups > 1) buffer_puts(&b, "others=\n");
    for (size_t i = 1; i < job->n_groups; i++) {
        put_step(a, &b, job, &job->group_list[i], "");
        buffer_print(&b, " sh -c %s &\nothers=\"$others $!\"\n", cluster_quote(a, job->group_list[i].command));
    }
    /* --kill-on-bad-exit would kill ranks that are still saving when the first one exits with 75, and the code of a
     * killed rank hides the 75. Ranks notice a lost rank by themselves; --wait ends those that do not. */
    put_step(a, &b, job, job->group_list, " --kill-on-bad-exit=0 --wait=120");
    buffer_print(&b, " %s run %s resume=auto\ncode=$?\n", cluster_quote(a, job->nrl), job->arguments);
    if (job->n_groups > 1) buffer_puts(&b, "kill $others 2>/dev/null # the other groups end with the run\nwait\n");
    if (job->requeue)
        buffer_puts(&b, "if [ $code -eq 75 ] && [ -z \"$stopped\" ]; then\n"
                        "    echo 'the state is saved; the job is requeued'\n"
                        "    scontrol requeue \"$SLURM_JOB_ID\" && exit 0\n"
                        "fi\n");
    buffer_puts(&b, "exit $code\n");
    return buffer_take(&b);
}

/* ---- calls ---- */

/* Whether the program answers; its first line. */
static bool ask(arena *a, const char *const *argv, const char **out)
{
    const char *text = "";
    if (cluster_command(a, argv, &text) != NRL_OK || !*text) return false;
    *out = arena_strndup(a, text, strcspn(text, "\n"));
    return true;
}

/* What stands after "NAME=" in the output of scontrol. */
static const char *field(arena *a, const char *text, const char *name)
{
    const char *at = strstr(text, name);
    return at ? arena_strndup(a, at + strlen(name), strcspn(at + strlen(name), " \n")) : "";
}

static bool is_over(const char *state)
{
    static const char *const going[] = {"PENDING",   "RUNNING",      "REQUEUED", "COMPLETING", "CONFIGURING",
                                        "SUSPENDED", "REQUEUE_HOLD", "RESIZING", "SIGNALING",  "STAGE_OUT"};
    for (size_t i = 0; i < sizeof going / sizeof *going; i++)
        if (!strncmp(state, going[i], strlen(going[i]))) return false;
    return true;
}

/* squeue knows jobs that wait and run, sacct those that have ended, if the cluster keeps accounts; scontrol also knows
 * jobs that ended a moment ago. */
static nrl_status slurm_state(arena *a, const cluster_job *job, const char *id, cluster_state *s)
{
    const char *line, *const squeue[] = {"squeue", "-h", "-j", id, "-o", "%T|%M|%L|%r", NULL};
    const char *const sacct[] = {"sacct", "-n", "-X", "-P", "-j", id, "-o", "State,Elapsed,Restarts", NULL};
    const char *const scontrol[] = {"scontrol", "-o", "show", "job", id, NULL};
    *s = (cluster_state){.elapsed = "", .left = "", .reason = "", .restarts = ""};
    char *save = NULL;
    (void)job;
    if (ask(a, squeue, &line)) {
        char *text = arena_strdup(a, line);
        *s = (cluster_state){.state = strsep(&text, "|"), .from = "squeue", .restarts = ""};
        s->elapsed = text ? strsep(&text, "|") : "";
        s->left = text ? strsep(&text, "|") : "";
        s->reason = text ? text : "";
        if (ask(a, scontrol, &line)) s->restarts = field(a, line, " Restarts=");
    } else if (ask(a, sacct, &line)) {
        char *text = arena_strdup(a, line);
        s->state = strtok_r(text, "|", &save);
        s->from = "sacct";
        const char *elapsed = strtok_r(NULL, "|", &save), *restarts = strtok_r(NULL, "|", &save);
        s->elapsed = elapsed ? elapsed : "";
        s->restarts = restarts ? restarts : "";
    } else if (ask(a, scontrol, &line)) {
        s->state = field(a, line, " JobState=");
        s->from = "scontrol";
        s->elapsed = field(a, line, " RunTime=");
        s->restarts = field(a, line, " Restarts=");
    } else {
        return nrl_fail(NRL_ERR_IO, "neither squeue nor sacct knows job %s: %s", id, nrl_error_text());
    }
    s->is_over = is_over(s->state);
    return NRL_OK;
}

static nrl_status slurm_submit(arena *a, const cluster_job *job, const char **id)
{
    const char *out, *const argv[] = {"sbatch", "--parsable", job->script_path, NULL};
    NRL_TRY(cluster_command(a, argv, &out));
    *id = arena_strndup(a, out, strcspn(out, ";\n")); /* ID;CLUSTER */
    return NRL_OK;
}

static nrl_status slurm_logs(arena *a, const cluster_job *job, const char *id, bool follow, const char **argv)
{
    const char *path = arena_printf(a, "%s/%s-%s.log", job->logs, job->name, id);
    const char *const tail[] = {"tail", "-n", "50", follow ? "-F" : "--", path, NULL};
    if (access(path, R_OK))
        return nrl_fail(NRL_ERR_IO, "%s: %s\nhint: a waiting job has no output yet: nrl cluster status %s", path,
                        strerror(errno), job->arguments);
    memcpy(argv, tail, sizeof tail);
    return NRL_OK;
}

static nrl_status slurm_cancel(arena *a, const cluster_job *job, const char *id)
{
    const char *const argv[] = {"scancel", id, NULL};
    (void)job;
    return cluster_command(a, argv, NULL);
}

const cluster_system cluster_slurm = {
    .type = "slurm",
    .suffix = "sh",
    .text = slurm_script,
    .submit = slurm_submit,
    .state = slurm_state,
    .logs = slurm_logs,
    .cancel = slurm_cancel,
};
