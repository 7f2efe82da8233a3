/*
 * cluster_ray.c - a run on a Ray cluster: `ray job submit` starts ray_driver.py on it, with the job as JSON before its
 * first line. The driver reserves the machines, starts `nrl launch` on each, and starts all again if one is lost. It
 * writes the state of the job to the file `state_path`, on the disk that all machines share.
 */
#include "base/json.h"
#include "cluster.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_STATE = 65536 };

/* ray_driver.py; CMake writes its bytes */
static const char ray_driver[] = {
#include "ray_driver.py.inc"
};

/* A group for the driver: its machines, each with the number of its ranks, and what they run. */
static nrl_node *group_node(arena *a, const cluster_job *job, const cluster_group *g)
{
    nrl_node *map = node_new(a, NRL_NODE_MAP), *ranks = node_new(a, NRL_NODE_LIST);
    for (size_t i = 0; i < job->n_parts; i++)
        for (int64_t k = 0; k < job->parts[i].nodes && job->parts[i].group == g; k++)
            node_append(a, ranks, NULL, node_int(a, job->parts[i].ranks));
    node_append_text(a, map, "name", g->name);
    node_append(a, map, "ranks", ranks);
    node_append_int(a, map, "gpus", g->gpus_per_node ? 1 : 0);
    node_append_int(a, map, "cpus_per_rank", g->cpus_per_rank ? g->cpus_per_rank : 1);
    node_append(a, map, "resources", g->resources ? node_copy(a, g->resources) : node_new(a, NRL_NODE_MAP));
    node_append_text(a, map, "command", g->command ? g->command : "");
    return map;
}

static int64_t n_machines(const cluster_job *job, const cluster_group *g)
{
    int64_t n = 0;
    for (size_t i = 0; i < job->n_parts; i++)
        if (job->parts[i].group == g) n += job->parts[i].nodes;
    return n;
}

static nrl_node *environment_node(arena *a, const nrl_node *map)
{
    nrl_node *texts = node_new(a, NRL_NODE_MAP);
    for (size_t i = 0; i < nrl_node_size(map); i++) {
        const nrl_node *n = nrl_node_at(map, i);
        char *json = nrl_node_kind(n) == NRL_NODE_STRING ? NULL : json_write(n, 0);
        node_append_text(a, texts, nrl_node_key(map, i), json ? json : nrl_node_string(n, ""));
        free(json);
    }
    return texts;
}

/* The lines of the shell as one text. */
static const char *setup_text(arena *a, const cluster_job *job)
{
    const char *all = "";
    for (size_t i = 0; i < nrl_node_size(job->setup); i++)
        all = arena_printf(a, "%s%s\n", all, nrl_node_string(nrl_node_at(job->setup, i), ""));
    return all;
}

static char *ray_script(arena *a, const cluster_job *job)
{
    nrl_node *map = node_new(a, NRL_NODE_MAP);
    nrl_node *groups = node_new(a, NRL_NODE_LIST);
    const int64_t n = n_machines(job, job->group_list);
    for (size_t i = 0; i < job->n_groups; i++)
        node_append(a, groups, NULL, group_node(a, job, &job->group_list[i]));
    node_append(a, map, "groups", groups); /* that of the run first */
    node_append_int(a, map, "min_nodes", job->min_nodes && job->min_nodes < n ? job->min_nodes : n);
    node_append_int(a, map, "wait_for_nodes", job->wait_for_nodes);
    node_append_int(a, map, "max_restarts", job->max_restarts);
    node_append_int(a, map, "save_before", job->save_before);
    node_append(a, map, "environment", environment_node(a, job->environment));
    node_append_text(a, map, "setup", setup_text(a, job));
    node_append_text(a, map, "nrl", cluster_quote(a, job->nrl));
    node_append_text(a, map, "words", job->arguments);
    node_append_text(a, map, "directory", job->directory);
    node_append_text(a, map, "state", job->state_path);
    char *json = json_write(map, 0), *quoted = json_quote(json, strlen(json));
    buffer b = {0};
    /* a string of JSON is one of Python too */
    buffer_print(&b,
                 "#!/usr/bin/env python3\n# Written by `nrl cluster script %s`.\nimport json\n\nJOB = json.loads(%s)\n",
                 job->file, quoted);
    buffer_add(&b, ray_driver, sizeof ray_driver - 1);
    free(quoted);
    free(json);
    return buffer_take(&b);
}

/* `ray job VERB [--address A] MORE...` */
static void ray_words(const cluster_job *job, const char *verb, const char *const *more, const char **argv)
{
    size_t n = 0;
    argv[n++] = "ray";
    argv[n++] = "job";
    argv[n++] = verb;
    if (job->address) {
        argv[n++] = "--address";
        argv[n++] = job->address;
    }
    while (*more)
        argv[n++] = *more++;
    argv[n] = NULL;
}

static nrl_status ray_submit(arena *a, const cluster_job *job, const char **id)
{
    char stamp[32];
    const char *argv[CLUSTER_MAX_WORDS];
    struct tm now;
    time_t seconds = time(NULL);
    localtime_r(&seconds, &now);
    strftime(stamp, sizeof stamp, "%Y%m%d-%H%M%S", &now);
    *id = arena_printf(a, "%s-%s", job->name, stamp);
    const char *const more[] = {"--no-wait", "--submission-id", *id, "--", "python3", job->script_path, NULL};
    ray_words(job, "submit", more, argv);
    return cluster_command(a, argv, NULL);
}

static nrl_status ray_state(arena *a, const cluster_job *job, const char *id, cluster_state *state)
{
    /* "Status for job 'ID': RUNNING", and for one that is over "Job 'ID' succeeded" */
    static const char *const words[][2] = {{"': PENDING", "PENDING"},
                                           {"': RUNNING", "RUNNING"},
                                           {"' succeeded", "SUCCEEDED"},
                                           {"' was stopped", "STOPPED"},
                                           {"' failed", "FAILED"}};
    const char *argv[CLUSTER_MAX_WORDS], *const more[] = {id, NULL}, *text;
    nrl_node *seen;
    ray_words(job, "status", more, argv);
    NRL_TRY(cluster_command(a, argv, &text));
    *state = (cluster_state){
        .state = "unknown", .from = "ray", .elapsed = "", .left = "", .reason = "", .restarts = "", .is_over = true};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strstr(text, words[i][0])) state->state = words[i][1];
    state->is_over = strcmp(state->state, "PENDING") && strcmp(state->state, "RUNNING");
    if (json_read_file(a, job->state_path, MAX_STATE, &seen) != NRL_OK) return NRL_OK;
    state->reason = nrl_node_string(nrl_node_find(seen, "state"), "");
    state->restarts = arena_printf(a, "%lld", (long long)nrl_node_int(nrl_node_find(seen, "starts"), 0));
    state->resources = nrl_node_find(seen, "resources");
    return NRL_OK;
}

static nrl_status ray_logs(arena *a, const cluster_job *job, const char *id, bool follow, const char **argv)
{
    const char *const more[] = {id, follow ? "--follow" : NULL, NULL};
    (void)a;
    ray_words(job, "logs", more, argv);
    return NRL_OK;
}

static nrl_status ray_cancel(arena *a, const cluster_job *job, const char *id)
{
    const char *argv[CLUSTER_MAX_WORDS], *const more[] = {id, NULL};
    ray_words(job, "stop", more, argv);
    return cluster_command(a, argv, NULL);
}

const cluster_system cluster_ray = {
    .type = "ray",
    .suffix = "py",
    .text = ray_script,
    .submit = ray_submit,
    .state = ray_state,
    .logs = ray_logs,
    .cancel = ray_cancel,
};

/* ---- the machines of a cloud ---- */

/* What Ray's providers need, and where they expect the type of a machine. */
static const struct {
    const char *type, *machine; /* printed with the name of the type of machine */
    const char *needs[4];
} providers[] = {
    {"aws", "{InstanceType: %s}", {"region"}},
    {"gcp", "{machineType: %s}", {"region", "availability_zone", "project_id"}},
    {"azure", "{azure_arm_parameters: {vmSize: %s}}", {"location", "resource_group"}},
};

static size_t find_provider(const nrl_node *provider)
{
    size_t i = 0;
    const char *type = nrl_node_string(nrl_node_find(provider, "type"), "");
    while (i < sizeof providers / sizeof *providers && strcmp(providers[i].type, type) != 0)
        i++;
    return i;
}

void cluster_check_provider(config_problems *p, const nrl_node *provider)
{
    const size_t which = find_provider(provider);
    if (which == sizeof providers / sizeof *providers) {
        problems_add(p, provider, "cluster.provider.type: expected aws, gcp or azure");
        return;
    }
    for (size_t i = 0; i < 4; i++) {
        const char *key = i ? providers[which].needs[i - 1] : "machine";
        if (key && nrl_node_kind(nrl_node_find(provider, key)) != NRL_NODE_STRING)
            problems_add(p, provider, "cluster.provider.%s: required for %s, as text", key, providers[which].type);
    }
}

static char *yaml_text(const nrl_node *n)
{
    const char *text = nrl_node_string(n, "");
    return json_quote(text, strlen(text));
}

static void put_machine(buffer *b, const char *name, const char *form, const char *machine, int64_t workers)
{
    buffer_print(b, "  %s:\n    resources: {}\n    node_config: ", name);
    const char *at = strstr(form, "%s");
    buffer_print(b, "%.*s%s%s\n    min_workers: 0\n    max_workers: %lld\n", (int)(at - form), form, machine, at + 2,
                 (long long)workers);
}

nrl_status cluster_autoscaler(const cluster_job *job, char **text)
{
    static const char *const own[] = {"machine", "head_machine", "ssh_user"}; /* nrl's keys */
    const nrl_node *p = job->provider;
    if (!p)
        return nrl_fail(NRL_ERR_CONFIG,
                        "%s: cluster.provider: required by `nrl cluster autoscaler`\n"
                        "hint: provider: {type: aws, region: us-west-2, machine: p4d.24xlarge, head_machine: m5.large}",
                        job->file);
    const size_t which = find_provider(p);
    int64_t nodes = 0;
    for (size_t i = 0; i < job->n_groups; i++)
        nodes += n_machines(job, &job->group_list[i]);
    const nrl_node *head = nrl_node_find(p, "head_machine");
    char *machine = yaml_text(nrl_node_find(p, "machine")), *head_machine = head ? yaml_text(head) : NULL;
    buffer b = {0};
    buffer_print(
        &b,
        "# Written by `nrl cluster autoscaler %s`; use: ray up FILE\ncluster_name: %s\nmax_workers: %lld\nprovider:\n",
        job->file, job->name, (long long)nodes);
    for (size_t i = 0; i < nrl_node_size(p); i++) {
        const char *key = nrl_node_key(p, i);
        bool mine = false;
        for (size_t k = 0; k < sizeof own / sizeof *own; k++)
            mine |= !strcmp(own[k], key);
        if (mine) continue;
        char *json = json_write(nrl_node_at(p, i), 0); /* YAML takes JSON's texts */
        buffer_print(&b, "  %s: %s\n", key, json);
        free(json);
    }
    buffer_print(&b, "auth: {ssh_user: %s}\n", nrl_node_string(nrl_node_find(p, "ssh_user"), "ubuntu"));
    if (job->common.image) {
        char *image = json_quote(job->common.image, strlen(job->common.image));
        buffer_print(&b, "docker: {image: %s, container_name: nrl}\n", image);
        free(image);
    }
    buffer_puts(&b, "head_node_type: head\navailable_node_types:\n");
    put_machine(&b, "head", providers[which].machine, head_machine ? head_machine : machine, 0);
    for (size_t i = 0; i < job->n_groups; i++) {
        const cluster_group *g = &job->group_list[i];
        char *named = g->machine ? json_quote(g->machine, strlen(g->machine)) : NULL;
        put_machine(&b, g->name, providers[which].machine, named ? named : machine, n_machines(job, g));
        free(named);
    }
    buffer_puts(&b, nrl_node_size(job->setup) ? "setup_commands:\n" : "");
    for (size_t i = 0; i < nrl_node_size(job->setup); i++) {
        char *line = yaml_text(nrl_node_at(job->setup, i));
        buffer_print(&b, "  - %s\n", line);
        free(line);
    }
    free(machine);
    free(head_machine);
    *text = buffer_take(&b);
    return NRL_OK;
}
