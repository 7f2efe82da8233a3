/*
 * cluster.c - `nrl cluster script|submit|status|logs|cancel|autoscaler FILE`: a run as a job of a cluster, by the
 * section `cluster` of its config, and `keys` and `autoscaler`. The id of the newest job of a name is in
 * LOGS/NAME.json.
 */
#include "cluster.h"
#include "base/json.h"
#include "cli/common/cli.h"
#include "cluster_rows.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { MAX_RECORD = 65536 };

/* ---- files ---- */

/* The file is not there, or it has `mark` near its beginning, so that an earlier submit wrote it. */
static nrl_status check_own(const char *path, const char *mark)
{
    char head[256];
    FILE *f = fopen(path, "re");
    if (!f && errno == ENOENT) return NRL_OK;
    size_t n = f ? fread(head, 1, sizeof head - 1, f) : 0;
    head[n] = '\0';
    if (f) fclose(f);
    if (strstr(head, mark)) return NRL_OK;
    return nrl_fail(NRL_ERR_CONFIG,
                    "'%s' exists, and `nrl cluster` did not write it\nhint: cluster.name or cluster.logs gives the job "
                    "other files",
                    path);
}

static nrl_status write_text(const char *path, const char *text)
{
    FILE *f = fopen(path, "we");
    bool ok = f && fputs(text, f) >= 0;
    if (f && fclose(f)) ok = false;
    return ok ? NRL_OK : nrl_fail(errno == ENOSPC ? NRL_ERR_FULL : NRL_ERR_IO, "%s: %s", path, strerror(errno));
}

static nrl_status make_logs(const cluster_job *job)
{
    if (!mkdir(job->logs, 0777) || errno == EEXIST) return NRL_OK;
    return nrl_fail(NRL_ERR_IO, "cluster.logs: %s: %s", job->logs, strerror(errno));
}

/* The id of the newest job of this name; NULL = none was submitted from here. */
static const char *newest_job(arena *a, const cluster_job *job)
{
    nrl_node *root;
    if (json_read_file(a, job->record_path, MAX_RECORD, &root) != NRL_OK) return NULL;
    return nrl_node_kind(root) == NRL_NODE_MAP ? nrl_node_string(nrl_node_find(root, "job"), NULL) : NULL;
}

static nrl_status expect_job(arena *a, const cluster_job *job, const char **id)
{
    *id = newest_job(a, job);
    if (*id) return NRL_OK;
    return nrl_fail(NRL_ERR_CONFIG, "no job '%s' was submitted from this directory (%s)\nhint: nrl cluster submit %s",
                    job->name, job->record_path, job->arguments);
}

static nrl_status write_record(arena *a, const cluster_job *job, const char *id)
{
    nrl_node *map = node_new(a, NRL_NODE_MAP);
    node_append_text(a, map, "job", id);
    node_append_text(a, map, "type", job->type);
    node_append_text(a, map, "config", job->file);
    node_append_text(a, map, "out", job->out);
    node_append_int(a, map, "submitted", (int64_t)time(NULL));
    char *text = json_write(map, 2);
    nrl_status st = write_text(job->record_path, text);
    free(text);
    return st;
}

/* The newest step in the run's records; -1 = none. */
static int64_t newest_step(arena *a, const cluster_job *job)
{
    FILE *f = fopen(arena_printf(a, "%s/metrics.jsonl", job->out), "re");
    char line[4096], *at;
    int64_t step = -1;
    while (f && fgets(line, sizeof line, f))
        if ((at = strstr(line, "\"step\":")) != NULL) step = strtoll(at + 7, NULL, 10);
    if (f) fclose(f);
    return step;
}

/* ---- verbs ---- */

const cluster_system *cluster_find(const char *type)
{
    static const cluster_system *const systems[] = {&cluster_slurm, &cluster_kubernetes, &cluster_ray};
    for (size_t i = 0; i < sizeof systems / sizeof *systems; i++)
        if (!strcmp(systems[i]->type, type)) return systems[i];
    return NULL;
}

static nrl_status cluster_script(arena *a, const cluster_job *job, bool json)
{
    char *text = job->system->text(a, job);
    (void)json;
    cli_print(text);
    free(text);
    return NRL_OK;
}

/* A second job of the same run would wait for the first one's directory, or destroy it. */
static nrl_status refuse_second(arena *a, const cluster_job *job)
{
    cluster_state s = {0};
    const char *id = newest_job(a, job);
    if (!id || job->system->state(a, job, id, &s) != NRL_OK || s.is_over) return NRL_OK;
    return nrl_fail(NRL_ERR_CONFIG,
                    "job %s of this run is %s\nhint: nrl cluster cancel %s, or another cluster.name and out", id,
                    s.state, job->arguments);
}

static nrl_status cluster_submit(arena *a, const cluster_job *job, bool json)
{
    const char *id = NULL;
    NRL_TRY(make_logs(job));
    NRL_TRY(check_own(job->script_path, "# Written by `nrl cluster"));
    NRL_TRY(check_own(job->record_path, "{\n  \"job\":"));
    NRL_TRY(refuse_second(a, job));
    char *text = job->system->text(a, job);
    nrl_status st = write_text(job->script_path, text);
    free(text);
    NRL_TRY(st);
    NRL_TRY(job->system->submit(a, job, &id));
    NRL_TRY(write_record(a, job, id));
    if (json)
        printf("{\"job\": \"%s\", \"script\": \"%s\"}\n", id, job->script_path);
    else
        cli_page("submitted job %s (%s); next:\n  nrl cluster status %s\n  nrl cluster logs %s\n", id, job->script_path,
                 job->arguments, job->arguments);
    return NRL_OK;
}

static void print_resources(const nrl_node *resources)
{
    for (size_t i = 0; i < nrl_node_size(resources); i++) {
        const nrl_node *n = nrl_node_at(resources, i);
        cli_page("%s: %g of %g in use (%g %%)\n", nrl_node_key(resources, i),
                 nrl_node_f64(nrl_node_find(n, "total"), 0) - nrl_node_f64(nrl_node_find(n, "available"), 0),
                 nrl_node_f64(nrl_node_find(n, "total"), 0), nrl_node_f64(nrl_node_find(n, "percent"), 0));
    }
}

static nrl_status cluster_status(arena *a, const cluster_job *job, bool json)
{
    cluster_state s = {.elapsed = "", .left = "", .reason = "", .restarts = ""};
    const char *id;
    NRL_TRY(expect_job(a, job, &id));
    NRL_TRY(job->system->state(a, job, id, &s));
    const int64_t step = newest_step(a, job);
    if (json) {
        nrl_node *map = node_new(a, NRL_NODE_MAP);
        node_append_text(a, map, "job", id);
        node_append_text(a, map, "state", s.state);
        node_append_text(a, map, "from", s.from);
        node_append_text(a, map, "elapsed", s.elapsed);
        node_append_text(a, map, "left", s.left);
        node_append_text(a, map, "reason", s.reason);
        node_append_text(a, map, "restarts", s.restarts);
        node_append(a, map, "step", step >= 0 ? node_int(a, step) : node_new(a, NRL_NODE_NULL));
        if (s.resources) node_append(a, map, "resources", node_copy(a, s.resources));
        char *text = json_write(map, 2);
        printf("%s\n", text);
        free(text);
        return NRL_OK;
    }
    cli_page("job %s: %s%s%s%s%s%s%s%s%s\n", id, s.state, *s.elapsed ? ", ran " : "", s.elapsed,
             *s.left ? ", left " : "", s.left, *s.reason && strcmp(s.reason, "None") ? ", " : "",
             *s.reason && strcmp(s.reason, "None") ? s.reason : "",
             *s.restarts && strcmp(s.restarts, "0") ? ", restarts " : "",
             *s.restarts && strcmp(s.restarts, "0") ? s.restarts : "");
    print_resources(s.resources);
    if (step >= 0) cli_page("run %s: step %lld\n", job->out, (long long)step);
    return NRL_OK;
}

static nrl_status cluster_logs(arena *a, const cluster_job *job, bool follow)
{
    const char *id, *argv[CLUSTER_MAX_WORDS] = {NULL};
    NRL_TRY(expect_job(a, job, &id));
    NRL_TRY(job->system->logs(a, job, id, follow, argv));
    fflush(stdout);
    execvp(argv[0], (char *const *)argv);
    return nrl_fail(NRL_ERR_IO, "cannot start %s: %s", argv[0], strerror(errno));
}

static nrl_status cluster_cancel(arena *a, const cluster_job *job, bool json)
{
    const char *id;
    NRL_TRY(expect_job(a, job, &id));
    NRL_TRY(job->system->cancel(a, job, id));
    if (json)
        printf("{\"job\": \"%s\", \"cancelled\": true}\n", id);
    else
        cli_page("job %s: cancelled; the run saves its state, and `nrl cluster submit` continues it\n", id);
    return NRL_OK;
}

static nrl_status cluster_scale(arena *a, const cluster_job *job, bool json)
{
    char *text;
    (void)a, (void)json;
    NRL_TRY(cluster_autoscaler(job, &text));
    cli_print(text);
    free(text);
    return NRL_OK;
}

static void list_keys(void)
{
    static const char *const types[] = {"number", "text", "bool", "map", "list"};
    printf("cluster - the cluster job of a run, for `nrl cluster`\n");
    for (size_t i = 0; i < cluster_n_rows; i++)
        if (cluster_rows[i].place != ROW_OF_GROUP)
            printf("  %-16s %-7s %s\n", cluster_rows[i].name, types[cluster_rows[i].type], cluster_rows[i].help);
    printf("groups.NAME - the machines of one role; default: the keys of the section\n ");
    for (size_t i = 0; i < cluster_n_rows; i++)
        if (cluster_rows[i].place == ROW_OF_BOTH) printf(" %s", cluster_rows[i].name);
    printf("\n");
    for (size_t i = 0; i < cluster_n_rows; i++)
        if (cluster_rows[i].place == ROW_OF_GROUP)
            printf("  %-16s %-7s %s\n", cluster_rows[i].name, types[cluster_rows[i].type], cluster_rows[i].help);
}

static nrl_status cluster(arena *a, int argc, char **argv)
{
    static const struct {
        const char *name;
        nrl_status (*run)(arena *a, const cluster_job *job, bool flag);
    } verbs[] = {{"script", cluster_script}, {"submit", cluster_submit}, {"status", cluster_status},
                 {"logs", cluster_logs},     {"cancel", cluster_cancel}, {"autoscaler", cluster_scale}};
    cluster_job job;
    bool json = cli_take_flag(&argc, argv, "--json"), follow = cli_take_flag(&argc, argv, "--follow");
    NRL_TRY(cli_expect(argc, argv, 1, -1));
    if (!strcmp(argv[1], "keys")) {
        NRL_TRY(cli_expect(argc, argv, 1, 1));
        list_keys();
        return NRL_OK;
    }
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++) {
        if (strcmp(argv[1], verbs[i].name)) continue;
        NRL_TRY(cli_expect(argc, argv, 2, -1));
        NRL_TRY(cluster_read(a, argc - 1, argv + 1, &job));
        return verbs[i].run(a, &job, verbs[i].run == cluster_logs ? follow : json);
    }
    return nrl_fail(NRL_ERR_CONFIG, "nrl cluster %s: expected script, submit, status, logs, cancel, autoscaler or keys",
                    argv[1]);
}

static nrl_status cluster_verb(int argc, char **argv)
{
    arena a = {0};
    nrl_status st = cluster(&a, argc, argv);
    arena_free(&a);
    return st;
}

int main(int argc, char **argv)
{
    return cli_tool_main(argc, argv, "cluster", cluster_verb);
}
