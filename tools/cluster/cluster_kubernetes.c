/*
 * cluster_kubernetes.c - the manifest of a run: a headless Service, which gives each Pod a name, and an Indexed Job
 * with a Pod for each machine. In a Pod `nrl launch` starts the ranks; rank 0's Pod, of index 0, has the store.
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

/* Every launcher runs the same command; each knows its place by the index of its Pod. */
static const char *command(arena *a, const cluster_job *job)
{
    buffer b = {0};
    buffer_print(&b, "exec %s launch --nodes ", cluster_quote(a, job->nrl));
    for (int64_t i = 0; i < job->nodes; i++)
        buffer_print(&b, "%s%s-%lld.%s:%lld", i ? "," : "", job->name, (long long)i, job->name,
                     (long long)job->ranks_per_node);
    buffer_print(&b, " --node-rank \"$JOB_COMPLETION_INDEX\" -- run %s", cluster_quote(a, job->file));
    for (int i = 0; i < job->n_words; i++)
        buffer_print(&b, " %s", cluster_quote(a, job->words[i]));
    buffer_puts(&b, " resume=auto");
    char *text = buffer_take(&b), *setup = NULL;
    buffer s = {0};
    for (size_t i = 0; i < nrl_node_size(job->setup); i++)
        buffer_print(&s, "%s; ", nrl_node_string(nrl_node_at(job->setup, i), ""));
    setup = buffer_take(&s);
    const char *all = arena_printf(a, "%s%s", setup ? setup : "", text);
    free(setup);
    free(text);
    return all;
}

static void put_environment(arena *a, buffer *b, const cluster_job *job)
{
    if (!nrl_node_size(job->environment) && !job->secret) return;
    buffer_puts(b, "          env:\n");
    for (size_t i = 0; i < nrl_node_size(job->environment); i++) {
        const nrl_node *n = nrl_node_at(job->environment, i);
        char *json = nrl_node_kind(n) == NRL_NODE_STRING ? NULL : json_write(n, 0);
        buffer_print(b, "            - {name: %s, value: %s}\n", nrl_node_key(job->environment, i),
                     quoted(a, json ? json : nrl_node_string(n, "")));
        free(json);
    }
    if (job->secret) buffer_puts(b, "            - {name: NRL_JOB_SECRET_FILE, value: /etc/nrl/secret}\n");
}

static void put_resources(arena *a, buffer *b, const cluster_job *job)
{
    const char *list = "";
    if (job->cpus_per_rank) list = arena_printf(a, "cpu: %lld", (long long)(job->cpus_per_rank * job->ranks_per_node));
    if (job->memory) {
        size_t n = strlen(job->memory);
        bool short_unit = n && strchr("KMGT", job->memory[n - 1]); /* Slurm's G are GiB */
        list = arena_printf(a, "%s%smemory: %s%s", list, *list ? ", " : "", job->memory, short_unit ? "i" : "");
    }
    if (job->gpus_per_node)
        list = arena_printf(a, "%s%snvidia.com/gpu: %lld", list, *list ? ", " : "", (long long)job->gpus_per_node);
    if (*list) buffer_print(b, "          resources: {limits: {%s}, requests: {%s}}\n", list, list);
}

/* CLAIM:PATH, and memory that the ranks of a Pod share. */
static void put_volumes(arena *a, buffer *b, const cluster_job *job)
{
    buffer_puts(b, "          volumeMounts:\n            - {name: shm, mountPath: /dev/shm}\n");
    if (job->secret) buffer_puts(b, "            - {name: secret, mountPath: /etc/nrl, readOnly: true}\n");
    for (size_t i = 0; i < nrl_node_size(job->mounts); i++) {
        const char *text = nrl_node_string(nrl_node_at(job->mounts, i), ""), *colon = strchr(text, ':');
        buffer_print(b, "            - {name: volume-%zu, mountPath: %s}\n", i, quoted(a, colon ? colon + 1 : "/data"));
    }
    buffer_puts(b, "      volumes:\n        - {name: shm, emptyDir: {medium: Memory}}\n");
    if (job->secret)
        buffer_print(b, "        - {name: secret, secret: {secretName: %s, defaultMode: 256}}\n",
                     job->secret); /* 0400 */
    for (size_t i = 0; i < nrl_node_size(job->mounts); i++) {
        const char *text = nrl_node_string(nrl_node_at(job->mounts, i), "");
        buffer_print(b, "        - {name: volume-%zu, persistentVolumeClaim: {claimName: %.*s}}\n", i,
                     (int)strcspn(text, ":"), text);
    }
}

static char *kubernetes_manifest(arena *a, const cluster_job *job)
{
    buffer b = {0};
    const char *space = job->namespace ? arena_printf(a, ", namespace: %s", job->namespace) : "";
    buffer_print(&b,
                 "# Written by `nrl cluster script %s`.\n"
                 "apiVersion: v1\nkind: Service\nmetadata: {name: %s%s}\n"
                 "spec:\n  clusterIP: None # a name for each Pod\n  publishNotReadyAddresses: true\n"
                 "  selector: {batch.kubernetes.io/job-name: %s}\n---\n"
                 "apiVersion: batch/v1\nkind: Job\nmetadata: {name: %s%s}\nspec:\n"
                 "  completionMode: Indexed\n  completions: %lld\n  parallelism: %lld\n  backoffLimit: %lld\n",
                 job->file, job->name, space, job->name, job->name, space, (long long)job->nodes, (long long)job->nodes,
                 (long long)(job->nodes * job->max_restarts));
    if (job->seconds) buffer_print(&b, "  activeDeadlineSeconds: %lld\n", (long long)job->seconds);
    buffer_print(&b,
                 "  template:\n    spec:\n      subdomain: %s\n      restartPolicy: Never\n"
                 "      terminationGracePeriodSeconds: %lld # to save\n      containers:\n"
                 "        - name: nrl\n          image: %s\n          workingDir: %s\n"
                 "          command: [sh, -c, %s]\n",
                 job->name, (long long)job->save_before, quoted(a, job->image), quoted(a, job->directory),
                 quoted(a, command(a, job)));
    put_environment(a, &b, job);
    put_resources(a, &b, job);
    put_volumes(a, &b, job);
    return buffer_take(&b);
}

/* ---- calls ---- */

static nrl_status kubernetes_submit(arena *a, const cluster_job *job, const char **id)
{
    const char *const argv[] = {"kubectl", "create", "-f", job->script_path, NULL};
    *id = job->name;
    return cluster_command(a, argv, NULL);
}

static nrl_status kubernetes_state(arena *a, const cluster_job *job, const char *id, cluster_state *state)
{
    const char *const argv[] = {"kubectl", "get",
                                "job",     id,
                                "-o",      "jsonpath={.status.active} {.status.succeeded} {.status.failed}",
                                "-n",      job->namespace ? job->namespace : "default",
                                NULL};
    /* is_over, as far as it is known here: `kubectl create` itself refuses a second Job of the name */
    *state =
        (cluster_state){.from = "kubectl", .elapsed = "", .left = "", .reason = "", .restarts = "", .is_over = true};
    return cluster_command(a, argv, &state->state);
}

static nrl_status kubernetes_logs(arena *a, const cluster_job *job, const char *id, bool follow, const char **argv)
{
    const char *const words[] = {
        "kubectl", "logs", arena_printf(a, "job/%s", id), "--all-pods=true", follow ? "-f" : "--tail=50", NULL};
    (void)job;
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
