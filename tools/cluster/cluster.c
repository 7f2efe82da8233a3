/*
 * cluster.c - `nrl cluster script|submit|status|logs|cancel FILE`: a run as a job of a cluster, by the section
 * `cluster` of its config. Calls sbatch, squeue, sacct, scontrol, scancel and kubectl. The id of the newest job of a
 * name is in LOGS/NAME.json.
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

enum { MAX_RECORD = 65536, LAST_LINES = 50 };

static bool is_slurm(const cluster_job *job)
{
    return !strcmp(job->type, "slurm");
}

static char *job_text(arena *a, const cluster_job *job)
{
    return is_slurm(job) ? slurm_script(a, job) : kubernetes_manifest(a, job);
}

/* ---- other programs ---- */

/* The output without line ends at its end; NRL_ERR_IO with what the program printed on standard error. */
static nrl_status call(arena *a, const char *const *argv, const char *input, const char **out)
{
    cluster_output output;
    nrl_status st = cluster_call(argv, input, &output);
    if (st == NRL_OK && output.code)
        st = nrl_fail(NRL_ERR_IO, "%s failed with exit code %d: %s", argv[0], output.code,
                      output.err && *output.err ? output.err : "it printed no reason");
    if (st == NRL_OK && out) {
        char *text = arena_strdup(a, output.out ? output.out : "");
        text[strlen(text) - (strlen(text) && text[strlen(text) - 1] == '\n')] = 0;
        *out = text;
    }
    cluster_output_free(&output);
    return st;
}

/* Whether the program answers; its first line. */
static bool ask(arena *a, const char *const *argv, const char **out)
{
    const char *text = "";
    if (call(a, argv, NULL, &text) != NRL_OK || !*text) return false;
    *out = arena_strndup(a, text, strcspn(text, "\n"));
    return true;
}

/* ---- files ---- */

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
    return nrl_fail(NRL_ERR_CONFIG, "no job '%s' was submitted from here (%s)\nhint: nrl cluster submit %s", job->name,
                    job->record_path, job->file);
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

/* ---- the state of a job ---- */

typedef struct {
    const char *state, *from, *elapsed, *left, *reason, *restarts;
    bool is_over;
} job_state;

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
static bool slurm_state(arena *a, const char *id, job_state *s)
{
    const char *line, *const squeue[] = {"squeue", "-h", "-j", id, "-o", "%T|%M|%L|%r", NULL};
    const char *const sacct[] = {"sacct", "-n", "-X", "-P", "-j", id, "-o", "State,Elapsed,Restarts", NULL};
    const char *const scontrol[] = {"scontrol", "-o", "show", "job", id, NULL};
    *s = (job_state){.elapsed = "", .left = "", .reason = "", .restarts = ""};
    char *save = NULL;
    if (ask(a, squeue, &line)) {
        char *text = arena_strdup(a, line);
        *s = (job_state){.state = strsep(&text, "|"), .from = "squeue", .restarts = ""};
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
        return false;
    }
    s->is_over = is_over(s->state);
    return true;
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

static nrl_status cluster_script(arena *a, const cluster_job *job, bool json)
{
    char *text = job_text(a, job);
    (void)json;
    cli_print(text);
    free(text);
    return NRL_OK;
}

/* A second job of the same run would wait for the first one's directory, or destroy it. */
static nrl_status refuse_second(arena *a, const cluster_job *job)
{
    job_state s;
    const char *id = newest_job(a, job);
    if (!id || !is_slurm(job) || !slurm_state(a, id, &s) || s.is_over) return NRL_OK;
    return nrl_fail(NRL_ERR_CONFIG,
                    "job %s of this run is %s\nhint: nrl cluster cancel %s, or another cluster.name and out", id,
                    s.state, job->file);
}

static nrl_status cluster_submit(arena *a, const cluster_job *job, bool json)
{
    const char *id = job->name, *out = NULL;
    const char *const sbatch[] = {"sbatch", "--parsable", job->script_path, NULL};
    const char *const kubectl[] = {"kubectl", "create", "-f", job->script_path, NULL};
    NRL_TRY(make_logs(job));
    NRL_TRY(refuse_second(a, job));
    char *text = job_text(a, job);
    nrl_status st = write_text(job->script_path, text);
    free(text);
    NRL_TRY(st);
    NRL_TRY(call(a, is_slurm(job) ? sbatch : kubectl, NULL, &out));
    if (is_slurm(job)) id = arena_strndup(a, out, strcspn(out, ";\n")); /* ID;CLUSTER */
    NRL_TRY(write_record(a, job, id));
    if (json)
        printf("{\"job\": \"%s\", \"script\": \"%s\"}\n", id, job->script_path);
    else
        cli_page("submitted job %s (%s); next:\n  nrl cluster status %s\n  nrl cluster logs %s\n", id, job->script_path,
                 job->file, job->file);
    return NRL_OK;
}

static nrl_status cluster_status(arena *a, const cluster_job *job, bool json)
{
    job_state s = {.from = "kubectl", .elapsed = "", .left = "", .reason = "", .restarts = ""};
    const char *id, *const kubectl[] = {"kubectl", "get",
                                        "job",     job->name,
                                        "-o",      "jsonpath={.status.active} {.status.succeeded} {.status.failed}",
                                        "-n",      job->namespace ? job->namespace : "default",
                                        NULL};
    NRL_TRY(expect_job(a, job, &id));
    if (!is_slurm(job))
        NRL_TRY(call(a, kubectl, NULL, &s.state));
    else if (!slurm_state(a, id, &s))
        return nrl_fail(NRL_ERR_IO, "neither squeue nor sacct knows job %s: %s", id, nrl_error_text());
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
    if (step >= 0) cli_page("run %s: step %lld\n", job->out, (long long)step);
    return NRL_OK;
}

static nrl_status cluster_logs(arena *a, const cluster_job *job, bool follow)
{
    const char *id, *path;
    NRL_TRY(expect_job(a, job, &id));
    path = arena_printf(a, "%s/%s/%s-%s.log", *job->logs == '/' ? "" : job->directory, job->logs, job->name, id);
    fflush(stdout);
    if (!is_slurm(job))
        execlp("kubectl", "kubectl", "logs", arena_printf(a, "job/%s", job->name), "--all-pods=true",
               follow ? "-f" : "--tail=50", (char *)NULL);
    else if (access(path, R_OK))
        return nrl_fail(NRL_ERR_IO, "%s: %s\nhint: a job that waits has no output yet: nrl cluster status %s", path,
                        strerror(errno), job->file);
    else
        execlp("tail", "tail", "-n", arena_printf(a, "%d", LAST_LINES), follow ? "-F" : "--", path, (char *)NULL);
    return nrl_fail(NRL_ERR_IO, "cannot start %s: %s", is_slurm(job) ? "tail" : "kubectl", strerror(errno));
}

static nrl_status cluster_cancel(arena *a, const cluster_job *job, bool json)
{
    const char *id;
    NRL_TRY(expect_job(a, job, &id));
    const char *const scancel[] = {"scancel", id, NULL}, *const kubectl[] = {"kubectl", "delete", "-f",
                                                                             job->script_path, NULL};
    NRL_TRY(call(a, is_slurm(job) ? scancel : kubectl, NULL, NULL));
    if (json)
        printf("{\"job\": \"%s\", \"cancelled\": true}\n", id);
    else
        cli_page("job %s: cancelled; the run saves its state, and `nrl cluster submit` continues it\n", id);
    return NRL_OK;
}

static void list_keys(void)
{
    static const char *const types[] = {"number", "text", "bool", "map", "list"};
    printf("cluster - the job that `nrl cluster` makes of a run\n");
    for (size_t i = 0; i < cluster_n_rows; i++)
        printf("  %-16s %-7s %s\n", cluster_rows[i].name, types[cluster_rows[i].type], cluster_rows[i].help);
}

static nrl_status cluster(arena *a, int argc, char **argv)
{
    static const struct {
        const char *name;
        nrl_status (*run)(arena *a, const cluster_job *job, bool flag);
    } verbs[] = {{"script", cluster_script},
                 {"submit", cluster_submit},
                 {"status", cluster_status},
                 {"logs", cluster_logs},
                 {"cancel", cluster_cancel}};
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
    return nrl_fail(NRL_ERR_CONFIG, "nrl cluster %s: expected script, submit, status, logs, cancel or keys", argv[1]);
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
