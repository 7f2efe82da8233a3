/*
 * cluster_kubernetes.c - the manifest of a run: a headless Service, which gives each Pod a name, and an Indexed Job
 * with a Pod for each machine; or, for machines of several groups or sizes, a JobSet with a Job for each of them. In a
 * Pod `nrl launch` starts the ranks; rank 0's Pod, of index 0, has the store.
 */
#include "cluster.h"
#include "base/json.h"
#include <stdlib.h>
#include <string.h>

/* A text of YAML, which takes JSON's. */
static const char *quoted(arena *a, const char *text)
{
    char *json = json_quote(text, strlen(text));
    const char *kept = arena_strdup(a, json);
    free(json);
    return kept;
}

static bool is_set(const cluster_job *job)
{
    return job->n_parts > 1;
}

/* The nodes of the run, all by the names that their Pods have. */
static void put_nodes(buffer *b, const cluster_job *job)
{
    for (size_t k = 0; k < job->n_parts && cluster_trains(job, &job->parts[k]); k++) {
        const cluster_part *part = &job->parts[k];
        for (int64_t i = 0; i < part->nodes; i++) {
            buffer_print(b, "%s%s", k || i ? "," : "", job->name);
            if (is_set(job)) buffer_print(b, "-%s-0", part->name); /* the only Job of its kind */
            buffer_print(b, "-%lld.%s:%lld", (long long)i, job->name, (long long)part->ranks);
        }
    }
}

/* The command of the Pods of a part. Launchers of all parts have the same command, except for the number of the first
 * machine of the part; each adds the index of its Pod. */
static const char *command(arena *a, const cluster_job *job, const cluster_part *part)
{
    buffer b = {0};
    int64_t first = 0;
    for (size_t i = 0; i < nrl_node_size(job->setup); i++)
        buffer_print(&b, "%s; ", nrl_node_string(nrl_node_at(job->setup, i), ""));
    for (const cluster_part *before = job->parts; before < part; before++)
        first += before->nodes;
    if (cluster_trains(job, part)) {
        buffer_print(&b, "exec %s launch --nodes ", cluster_quote(a, job->nrl));
        put_nodes(&b, job);
        if (first)
            buffer_print(&b, " --node-rank \"$((JOB_COMPLETION_INDEX + %lld))\"", (long long)first);
        else
            buffer_puts(&b, " --node-rank \"$JOB_COMPLETION_INDEX\"");
        buffer_print(&b, " -- run %s resume=auto", job->arguments);
    } else {
        buffer_puts(&b, part->group->command);
    }
    char *text = buffer_take(&b);
    const char *kept = arena_strdup(a, text);
    free(text);
    return kept;
}

/* Pods are printed as in a Job; in a JobSet they are indented by `in` more spaces. */
static void put_environment(arena *a, buffer *b, const cluster_job *job, const cluster_group *g, int in)
{
    buffer_print(b, "%*s          env:\n%*s            - {name: NRL_GROUP, value: %s}\n", in, "", in, "", g->name);
    for (size_t i = 0; i < nrl_node_size(job->environment); i++) {
        const nrl_node *n = nrl_node_at(job->environment, i);
        char *json = nrl_node_kind(n) == NRL_NODE_STRING ? NULL : json_write(n, 0);
        buffer_print(b, "%*s            - {name: %s, value: %s}\n", in, "", nrl_node_key(job->environment, i),
                     quoted(a, json ? json : nrl_node_string(n, "")));
        free(json);
    }
    if (job->secret) /* a file would belong to root, and need mode 600 */
        buffer_print(b, "%*s            - {name: NRL_JOB_SECRET, valueFrom: {secretKeyRef: {name: %s, key: secret}}}\n",
                     in, "", job->secret);
}

static void put_resources(arena *a, buffer *b, const cluster_part *part, int in)
{
    const cluster_group *g = part->group;
    const char *list = "";
    if (g->cpus_per_rank) list = arena_printf(a, "cpu: %lld", (long long)(g->cpus_per_rank * part->ranks));
    if (g->memory) {
        size_t n = strlen(g->memory);
        bool short_unit = n && strchr("KMGT", g->memory[n - 1]); /* Slurm's G are GiB */
        list = arena_printf(a, "%s%smemory: %s%s", list, *list ? ", " : "", g->memory, short_unit ? "i" : "");
    }
    if (part->gpus) list = arena_printf(a, "%s%snvidia.com/gpu: %lld", list, *list ? ", " : "", (long long)part->gpus);
    if (*list) buffer_print(b, "%*s          resources: {limits: {%s}, requests: {%s}}\n", in, "", list, list);
}

/* CLAIM:PATH, and memory that the ranks of a Pod share. */
static void put_volumes(arena *a, buffer *b, const cluster_job *job, int in)
{
    buffer_print(b, "%*s          volumeMounts:\n%*s            - {name: shm, mountPath: /dev/shm}\n", in, "", in, "");
    for (size_t i = 0; i < nrl_node_size(job->mounts); i++) {
        const char *text = nrl_node_string(nrl_node_at(job->mounts, i), ""), *colon = strchr(text, ':');
        buffer_print(b, "%*s            - {name: volume-%zu, mountPath: %s}\n", in, "", i,
                     quoted(a, colon ? colon + 1 : "/data"));
    }
    buffer_print(b, "%*s      volumes:\n%*s        - {name: shm, emptyDir: {medium: Memory}}\n", in, "", in, "");
    for (size_t i = 0; i < nrl_node_size(job->mounts); i++) {
        const char *text = nrl_node_string(nrl_node_at(job->mounts, i), "");
        buffer_print(b, "%*s        - {name: volume-%zu, persistentVolumeClaim: {claimName: %.*s}}\n", in, "", i,
                     (int)strcspn(text, ":"), text);
    }
}

/* The spec of the Job of a part. A JobSet restarts all of its Jobs itself, when one of them fails. */
static void put_job(arena *a, buffer *b, const cluster_job *job, const cluster_part *part, int in)
{
    const int64_t failures = is_set(job) ? 0 : part->nodes * job->max_restarts;
    buffer_print(b,
                 "%*s  completionMode: Indexed\n%*s  completions: %lld\n%*s  parallelism: %lld\n"
                 "%*s  backoffLimit: %lld\n",
                 in, "", in, "", (long long)part->nodes, in, "", (long long)part->nodes, in, "", (long long)failures);
    if (job->seconds) buffer_print(b, "%*s  activeDeadlineSeconds: %lld\n", in, "", (long long)job->seconds);
    buffer_print(b, "%*s  template:\n%*s    spec:\n", in, "", in, "");
    if (!is_set(job)) buffer_print(b, "      subdomain: %s\n", job->name);
    buffer_print(b,
                 "%*s      restartPolicy: Never\n%*s      terminationGracePeriodSeconds: %lld # to save\n"
                 "%*s      containers:\n%*s        - name: nrl\n%*s          image: %s\n%*s          workingDir: %s\n"
                 "%*s          command: [sh, -c, %s]\n",
                 in, "", in, "", (long long)job->save_before, in, "", in, "", in, "", quoted(a, part->group->image), in,
                 "", quoted(a, job->directory), in, "", quoted(a, command(a, job, part)));
    put_environment(a, b, job, part->group, in);
    put_resources(a, b, part, in);
    put_volumes(a, b, job, in);
}

static char *kubernetes_manifest(arena *a, const cluster_job *job)
{
    enum { DEEPER = 8 }; /* from `spec:` of a Job to that in a JobSet */
    buffer b = {0};
    const char *space = job->namespace ? arena_printf(a, ", namespace: %s", job->namespace) : "";
    buffer_print(&b, "# Written by `nrl cluster script %s`.\n", job->file);
    if (!is_set(job)) {
        buffer_print(&b,
                     "apiVersion: v1\nkind: Service\nmetadata: {name: %s%s}\n"
                     "spec:\n  clusterIP: None # a name for each Pod\n  publishNotReadyAddresses: true\n"
                     "  selector: {batch.kubernetes.io/job-name: %s}\n---\n"
                     "apiVersion: batch/v1\nkind: Job\nmetadata: {name: %s%s}\nspec:\n",
                     job->name, space, job->name, job->name, space);
        put_job(a, &b, job, job->parts, 0);
        return buffer_take(&b);
    }
    buffer_print(&b,
                 "apiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\nmetadata: {name: %s%s}\nspec:\n"
                 "  network: {enableDNSHostnames: true, subdomain: %s, publishNotReadyAddresses: true}\n"
                 "  failurePolicy: {maxRestarts: %lld}\n"
                 "  successPolicy: {operator: All, targetReplicatedJobs: [",
                 job->name, space, job->name, (long long)job->max_restarts);
    for (size_t i = 0; i < job->n_parts && cluster_trains(job, &job->parts[i]); i++)
        buffer_print(&b, "%s%s", i ? ", " : "", job->parts[i].name);
    buffer_puts(&b, "]} # the other groups end with the run\n  replicatedJobs:\n");
    for (size_t i = 0; i < job->n_parts; i++) {
        buffer_print(&b, "    - name: %s\n      replicas: 1\n      template:\n        spec:\n", job->parts[i].name);
        put_job(a, &b, job, &job->parts[i], DEEPER);
    }
    return buffer_take(&b);
}

/* ---- calls ---- */

static nrl_status kubernetes_submit(arena *a, const cluster_job *job, const char **id)
{
    const char *const argv[] = {"kubectl", "create", "-f", job->script_path, NULL};
    *id = job->name;
    return cluster_command(a, argv, NULL);
}

/* Ends `argv`, [n] words, with the namespace; kubectl itself has a default. */
static void end_words(const cluster_job *job, const char **argv, size_t n)
{
    if (job->namespace) {
        argv[n++] = "-n";
        argv[n++] = job->namespace;
    }
    argv[n] = NULL;
}

/* "active 2, succeeded 0, failed 0" of "2,,": kubectl prints nothing for a count of 0. */
static const char *counts_text(arena *a, const char *counts)
{
    static const char *const names[] = {"active", "succeeded", "failed"};
    char *rest = arena_strdup(a, counts);
    const char *text = "";
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *count = strsep(&rest, ",");
        text = arena_printf(a, "%s%s%s %s", text, i ? ", " : "", names[i], count && *count ? count : "0");
    }
    return text;
}

static nrl_status kubernetes_state(arena *a, const cluster_job *job, const char *id, cluster_state *state)
{
    static const char of_job[] = "jsonpath={.status.active},{.status.succeeded},{.status.failed}";
    const char *argv[CLUSTER_MAX_WORDS] = {"kubectl", "get", is_set(job) ? "jobset" : "job",
                                           id,        "-o",  is_set(job) ? "jsonpath={.status.terminalState}" : of_job};
    const char *text;
    end_words(job, argv, 6);
    /* is_over, as far as it is known here: `kubectl create` itself refuses a second Job of the name */
    *state =
        (cluster_state){.from = "kubectl", .elapsed = "", .left = "", .reason = "", .restarts = "", .is_over = true};
    NRL_TRY(cluster_command(a, argv, &text));
    state->state = !is_set(job) ? counts_text(a, text) : *text ? text : "running"; /* no terminal state yet */
    return NRL_OK;
}

static nrl_status kubernetes_logs(arena *a, const cluster_job *job, const char *id, bool follow, const char **argv)
{
    const char *label = is_set(job) ? "jobset.sigs.k8s.io/jobset-name" : "batch.kubernetes.io/job-name";
    int64_t pods = 0;
    for (size_t i = 0; i < job->n_parts; i++)
        pods += job->parts[i].nodes * (1 + job->max_restarts); /* failed Pods stay */
    const char *words[CLUSTER_MAX_WORDS] = {
        "kubectl",
        "logs",
        "-l",
        arena_printf(a, "%s=%s", label, id),
        "--prefix",
        follow ? "-f" : "--tail=50",
        arena_printf(a, "--max-log-requests=%lld", (long long)pods)}; /* kubectl's default, 5, is too few for -f */
    end_words(job, words, 7);
    memcpy(argv, words, sizeof words);
    return NRL_OK;
}

static nrl_status kubernetes_cancel(arena *a, const cluster_job *job, const char *id)
{
    const char *const argv[] = {"kubectl", "delete", "-f", job->script_path, NULL};
    (void)id;
    return cluster_command(a, argv, NULL);
}

const cluster_system cluster_kubernetes = {
    .type = "kubernetes",
    .suffix = "yaml",
    .needs_image = true,
    .text = kubernetes_manifest,
    .submit = kubernetes_submit,
    .state = kubernetes_state,
    .logs = kubernetes_logs,
    .cancel = kubernetes_cancel,
};
