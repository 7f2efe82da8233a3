/*
 * cluster_section.c - the section `cluster` of a config. A run ignores it; its keys and their types are the table here,
 * which `nrl cluster keys` prints.
 */
#include "base/problems.h"
#include "base/suggest.h"
#include "cli/common/cli.h"
#include "cluster.h"
#include <ctype.h>
#include <errno.h>
#include <nrl/run.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cluster_rows.h"

/* ---- values ---- */

/* `at` is the section or a group: "cluster", "cluster.groups.sampler". */
static void read_value(arena *a, config_problems *p, const char *at, const cluster_row *row, const nrl_node *n,
                       void *to)
{
    int64_t x = nrl_node_int(n, -1);
    const char *text = nrl_node_string(n, NULL);
    switch (row->type) {
    case ROW_COUNT:
        if (x < row->min)
            problems_add(p, n, "%s.%s: expected a whole number of at least %lld", at, row->name, (long long)row->min);
        else
            *(int64_t *)to = x;
        return;
    case ROW_TEXT:
        if (!text && nrl_node_kind(n) == NRL_NODE_INT) text = arena_printf(a, "%lld", (long long)x);
        if (!text || strpbrk(text, "\n\r"))
            problems_add(p, n, "%s.%s: expected text on one line", at, row->name);
        else
            *(const char **)to = arena_strdup(a, text);
        return;
    case ROW_BOOL:
        if (nrl_node_kind(n) != NRL_NODE_BOOL)
            problems_add(p, n, "%s.%s: expected true or false", at, row->name);
        else
            *(bool *)to = nrl_node_bool(n, false);
        return;
    case ROW_MAP:
    case ROW_LIST:
        if (nrl_node_kind(n) != (row->type == ROW_MAP ? NRL_NODE_MAP : NRL_NODE_LIST))
            problems_add(p, n, "%s.%s: expected a %s", at, row->name, row->type == ROW_MAP ? "map" : "list");
        else
            *(const nrl_node **)to = n;
        return;
    }
}

/* The keys of the section, with `job`, or those of a group, without. */
static void read_rows(arena *a, config_problems *p, const char *at, const nrl_node *map, cluster_job *job,
                      cluster_group *group)
{
    const cluster_row_place absent = job ? ROW_OF_GROUP : ROW_OF_JOB;
    for (size_t i = 0; nrl_node_kind(map) == NRL_NODE_MAP && i < nrl_node_size(map); i++) {
        const nrl_node *n = nrl_node_at(map, i);
        suggestion near = {.word = nrl_node_key(map, i)};
        const cluster_row *row = NULL;
        char *values = NULL; /* of the job or the group */
        for (size_t k = 0; k < cluster_n_rows && !row; k++) {
            if (cluster_rows[k].place == absent) continue;
            suggest_offer(&near, cluster_rows[k].name);
            if (!strcmp(cluster_rows[k].name, near.word)) row = &cluster_rows[k];
        }
        if (row) values = row->place == ROW_OF_JOB ? (char *)job : (char *)group;
        if (!values)
            problems_add(p, n, "%s.%s: unknown key%s%s%s", at, near.word,
                         near.best ? "; did you mean '" : "; `nrl cluster keys` lists them", near.best ? near.best : "",
                         near.best ? "'?" : "");
        else if (nrl_node_kind(n) != NRL_NODE_NULL)
            read_value(a, p, at, row, n, values + row->offset);
    }
}

/* ---- rules ---- */

/* Seconds of 30, 30:00, 2:30:00, 1-12, 1-12:00:00: minutes, or days, hours, minutes and seconds; -1 = malformed. */
static int64_t time_seconds(const char *text)
{
    const char *dash = strchr(text, '-');
    long long part[3] = {0}, days = 0;
    int n = 0;
    char *end;
    if (dash) {
        days = strtoll(text, &end, 10);
        if (end != dash || days < 0) return -1;
        text = dash + 1;
    }
    for (; n < 3; n++) {
        part[n] = strtoll(text, &end, 10);
        if (end == text || part[n] < 0 || part[n] > 1000000) return -1;
        text = end + (*end == ':');
        if (*end != ':') {
            n++;
            break;
        }
    }
    if (*end) return -1;
    if (dash) return days * 86400 + part[0] * 3600 + part[1] * 60 + part[2];
    return n == 1 ? part[0] * 60 : n == 2 ? part[0] * 60 + part[1] : part[0] * 3600 + part[1] * 60 + part[2];
}

static bool is_name(const char *text, const char *more)
{
    bool ok = isalnum((unsigned char)*text);
    for (; *text && ok; text++)
        ok = isalnum((unsigned char)*text) || strchr(more, *text);
    return ok;
}

static void check_environment(config_problems *p, const nrl_node *map)
{
    for (size_t i = 0; i < nrl_node_size(map); i++) {
        const nrl_node *n = nrl_node_at(map, i);
        const char *key = nrl_node_key(map, i);
        if (!is_name(key, "_") && *key != '_')
            problems_add(p, n, "cluster.environment: '%.60s' is not the name of a variable", key);
        if (nrl_node_kind(n) == NRL_NODE_MAP || nrl_node_kind(n) == NRL_NODE_LIST)
            problems_add(p, n, "cluster.environment.%.60s: expected a text or a number", key);
    }
}

static void check_texts(config_problems *p, const char *at, const char *name, const nrl_node *list, bool is_option)
{
    for (size_t i = 0; i < nrl_node_size(list); i++) {
        const char *text = nrl_node_string(nrl_node_at(list, i), NULL);
        if (!text || strpbrk(text, "\n\r") || (is_option && strncmp(text, "--", 2)))
            problems_add(p, nrl_node_at(list, i), "%s.%s: expected %s", at, name,
                         is_option ? "an option such as --constraint=a100" : "a line of text");
    }
}

static bool is_given(const nrl_node *section, const char *key)
{
    const nrl_node *n = nrl_node_find(section, key);
    return n && nrl_node_kind(n) != NRL_NODE_NULL;
}

/* A value of a line #SBATCH, which may stand in double quotes there (cluster_slurm.c). */
static void check_sbatch(config_problems *p, const char *at, const nrl_node *map, const char *key, const char *value)
{
    if (value && strpbrk(value, "\"\\\n\r"))
        problems_add(p, nrl_node_find(map, key),
                     "%s.%s: '%s'; expected a value for sbatch without double quotes, backslashes and line ends", at,
                     key, value);
}

static void check_sbatch_job(config_problems *p, const nrl_node *section, const cluster_job *job)
{
    const char *const values[][2] = {{"account", job->account},
                                     {"qos", job->qos},
                                     {"reservation", job->reservation},
                                     {"directory", job->directory},
                                     {"logs", job->logs}};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        check_sbatch(p, "cluster", section, values[i][0], values[i][1]);
}

/* What holds of the section's own machines and of those of each group; `map` is where they stand. */
static void check_machines(config_problems *p, const char *at, const nrl_node *map, const cluster_group *g,
                           bool is_slurm)
{
    if (is_given(map, "ranks") && (is_given(map, "nodes") || is_given(map, "ranks_per_node")))
        problems_add(p, g->ranks, "%s.ranks: not together with nodes or ranks_per_node", at);
    for (size_t i = 0; i < nrl_node_size(g->ranks); i++)
        if (nrl_node_int(nrl_node_at(g->ranks, i), 0) < 1)
            problems_add(p, nrl_node_at(g->ranks, i), "%s.ranks: expected numbers of at least 1", at);
    for (size_t i = 0; i < nrl_node_size(g->resources); i++)
        if (nrl_node_f64(nrl_node_at(g->resources, i), -1) <= 0)
            problems_add(p, nrl_node_at(g->resources, i), "%s.resources: expected numbers above 0", at);
    check_texts(p, at, "options", g->options, true);
    if (is_slurm && is_given(map, "memory")) check_sbatch(p, at, map, "memory", g->memory);
    if (is_slurm && is_given(map, "partition")) check_sbatch(p, at, map, "partition", g->partition);
}

static void check_rules(config_problems *p, const nrl_node *section, cluster_job *job)
{
    const bool kubernetes = job->system == &cluster_kubernetes, slurm = job->system == &cluster_slurm;
    if (!job->system)
        problems_add(p, nrl_node_find(section, "type"), "cluster.type: '%s' is not one of: slurm, kubernetes, ray",
                     job->type);
    job->seconds = job->time ? time_seconds(job->time) : 0;
    if (job->seconds < 0)
        problems_add(p, nrl_node_find(section, "time"),
                     "cluster.time: '%s'; expected minutes, HOURS:MINUTES:SECONDS or DAYS-HOURS", job->time);
    if (job->seconds > 0 && job->save_before >= job->seconds)
        problems_add(p, nrl_node_find(section, "save_before"),
                     "cluster.save_before: %lld seconds; expected less than cluster.time", (long long)job->save_before);
    if (!is_name(job->name, kubernetes ? "-" : "-_."))
        problems_add(p, nrl_node_find(section, "name"), "cluster.name: '%s'; expected letters, digits and -",
                     job->name);
    const size_t longest = job->groups || job->common.ranks ? 30 : 50; /* of 63 in the name of a Pod */
    if (kubernetes && strlen(job->name) > longest)
        problems_add(p, nrl_node_find(section, "name"), "cluster.name: more than %zu characters", longest);
    check_environment(p, job->environment);
    check_texts(p, "cluster", "setup", job->setup, false);
    check_texts(p, "cluster", "mounts", job->mounts, false);
    if (job->provider) cluster_check_provider(p, job->provider);
    check_machines(p, "cluster", section, &job->common, slurm);
    if (slurm) check_sbatch_job(p, section, job);
}

/* ---- groups ---- */

/* Without `groups` the section is the only one, whose name is that of the default. */
static void read_groups(arena *a, config_problems *p, const nrl_node *section, cluster_job *job)
{
    static const char trainer[] = "trainer";
    const size_t n = nrl_node_size(job->groups);
    const char *wanted = job->group ? job->group : n == 1 ? nrl_node_key(job->groups, 0) : trainer;
    if (job->groups && !n) problems_add(p, job->groups, "cluster.groups: expected {NAME: {nodes: 2, ...}, ...}");
    if (job->group && !job->groups)
        problems_add(p, nrl_node_find(section, "group"), "cluster.group: there are no groups");
    job->group_list = arena_alloc(a, (n + 1) * sizeof *job->group_list);
    *job->group_list = job->common;
    job->group_list->name = trainer;
    job->n_groups = 1;
    for (size_t i = 0; i < n; i++) {
        const nrl_node *map = nrl_node_at(job->groups, i);
        const char *name = nrl_node_key(job->groups, i), *at = arena_printf(a, "cluster.groups.%.60s", name);
        const bool trains = !strcmp(name, wanted);
        cluster_group *g = &job->group_list[trains ? 0 : job->n_groups++];
        *g = job->common;
        g->name = name;
        if (is_given(map, "nodes") || is_given(map, "ranks_per_node"))
            g->ranks = NULL; /* in the place of the section's */
        if (strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-") < strlen(name) || strlen(name) > 20 || *name == '-')
            problems_add(p, map, "%s: expected a name of at most 20 letters in lower case, digits and -", at);
        if (nrl_node_kind(map) != NRL_NODE_MAP && nrl_node_kind(map) != NRL_NODE_NULL)
            problems_add(p, map, "%s: expected a map", at);
        read_rows(a, p, at, map, NULL, g);
        check_machines(p, at, map, g, job->system == &cluster_slurm);
        if (trains && g->command)
            problems_add(p, nrl_node_find(map, "command"), "%s.command: the group that trains runs `nrl run`", at);
        if (!trains && !g->command)
            problems_add(p, map, "%s.command: required: the command that its machines run while '%s' trains", at,
                         wanted);
    }
    if (job->n_groups > n && n) /* the run's place is still the section's */
        problems_add(p, job->groups, "cluster.%s: there is no group '%s'; expected one of those in cluster.groups",
                     job->group ? "group" : "groups", wanted);
    bool has_images = true;
    for (size_t i = 0; i < job->n_groups; i++) {
        cluster_group *g = &job->group_list[i];
        if (!g->ranks_per_node) g->ranks_per_node = g->gpus_per_node ? g->gpus_per_node : 1;
        has_images = has_images && g->image;
    }
    if (job->system && job->system->needs_image && !has_images)
        problems_add(p, section, "cluster.image: required for type %s: a container image that has nrl", job->type);
}

/* Neighbours of one size are one part. */
static void make_parts(arena *a, cluster_job *job)
{
    size_t most = 0;
    for (size_t i = 0; i < job->n_groups; i++)
        most += 1 + nrl_node_size(job->group_list[i].ranks);
    job->parts = arena_alloc(a, most * sizeof *job->parts);
    for (size_t i = 0; i < job->n_groups; i++) {
        const cluster_group *g = &job->group_list[i];
        const size_t first = job->n_parts, n = nrl_node_size(g->ranks);
        if (!n) job->parts[job->n_parts++] = (cluster_part){g, g->name, g->nodes, g->ranks_per_node, g->gpus_per_node};
        for (size_t k = 0; k < n; k++) {
            const int64_t ranks = nrl_node_int(nrl_node_at(g->ranks, k), 1);
            if (job->n_parts == first || job->parts[job->n_parts - 1].ranks != ranks)
                job->parts[job->n_parts++] = (cluster_part){g, g->name, 0, ranks, g->gpus_per_node ? ranks : 0};
            job->parts[job->n_parts - 1].nodes++;
        }
        for (size_t k = first; k < job->n_parts && job->n_parts > first + 1; k++)
            job->parts[k].name = arena_printf(a, "%s-%zu", g->name, k - first);
    }
}

/* ---- all ---- */

const char *cluster_quote(arena *a, const char *text)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./+,:@%=-";
    if (*text && text[strspn(text, plain)] == 0) return text;
    buffer b = {0};
    buffer_puts(&b, "'");
    for (; *text; text++)
        buffer_puts(&b, *text == '\'' ? "'\\''" : (char[]){*text, 0});
    buffer_puts(&b, "'");
    char *quoted = buffer_take(&b);
    const char *kept = arena_strdup(a, quoted);
    free(quoted);
    return kept;
}

/* Names of Kubernetes are in lower case. */
static const char *default_name(arena *a, const cluster_job *job)
{
    const char *slash = strrchr(job->out, '/');
    char *name = arena_strdup(a, slash && slash[1] ? slash + 1 : job->out);
    for (char *s = name; *s; s++)
        *s = isalnum((unsigned char)*s) ? (char)tolower((unsigned char)*s) : '-';
    return *name && *name != '-' ? name : "nrl";
}

nrl_status cluster_read(arena *a, int argc, char **argv, cluster_job *job)
{
    config_problems problems = {0};
    char here[4096];
    if (!getcwd(here, sizeof here)) return nrl_fail(NRL_ERR_IO, "the working directory: %s", strerror(errno));
    nrl_config *config = nrl_config_create(a);
    *job = (cluster_job){.file = argv[1],
                         .arguments = cluster_quote(a, argv[1]),
                         .type = "slurm",
                         .common.nodes = 1,
                         .save_before = 120,
                         .logs = "jobs",
                         .requeue = true,
                         .wait_for_nodes = 60,
                         .max_restarts = 3};
    nrl_status st = nrl_config_read(config, argv[1]);
    for (int i = 2; st == NRL_OK && i < argc; i++) {
        nrl_config_override(config, argv[i]);
        job->arguments = arena_printf(a, "%s %s", job->arguments, cluster_quote(a, argv[i]));
    }
    if (st == NRL_OK) nrl_config_substitute(config, cli_variable);
    const nrl_node *root = st == NRL_OK ? nrl_config_root(config) : NULL,
                   *section = root ? nrl_node_find(root, "cluster") : NULL;
    job->out = root ? nrl_node_string(nrl_node_find(root, "out"), NULL) : NULL;
    if (st == NRL_OK && nrl_node_kind(section) != NRL_NODE_MAP)
        st = nrl_fail(
            NRL_ERR_CONFIG,
            "%s has no section `cluster`\nhint: cluster: {type: slurm, nodes: 2, gpus_per_node: 8, time: 24:00:00}",
            argv[1]);
    if (st == NRL_OK && !job->out) st = nrl_fail(NRL_ERR_CONFIG, "%s: out: required, but not given", argv[1]);
    if (st != NRL_OK) return st;
    read_rows(a, &problems, "cluster", section, job, &job->common);
    if (!job->name) job->name = default_name(a, job);
    job->system = cluster_find(job->type);
    if (!job->nrl) /* that of a container is another one */
        job->nrl = job->system && !job->system->needs_image && cli_exe_dir(a)
                       ? arena_printf(a, "%s/nrl", cli_exe_dir(a))
                       : "nrl";
    if (!job->directory) job->directory = arena_strdup(a, here);
    if (*job->logs != '/') job->logs = arena_printf(a, "%s/%s", here, job->logs); /* the job runs in `directory` */
    check_rules(&problems, section, job);
    read_groups(a, &problems, section, job);
    NRL_TRY(problems_report(&problems));
    make_parts(a, job);
    job->script_path = arena_printf(a, "%s/%s.%s", job->logs, job->name, job->system->suffix);
    job->state_path = arena_printf(a, "%s/%s.state.json", job->logs, job->name);
    job->record_path = arena_printf(a, "%s/%s.json", job->logs, job->name);
    return NRL_OK;
}
