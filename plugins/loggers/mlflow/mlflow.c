/*
 * mlflow.c - values as metrics of an MLflow tracking server, and the options of the config as parameters.
 *
 * A thread sends records in batches, so that neither a slow server nor an absent one delays a step. While the server
 * cannot be reached, records wait in a bounded queue; MLflow keeps a value twice if its answer was lost.
 * OUT/mlflow.json holds the id of the run, with which a resumed run continues; MLflow cannot remove values, so steps
 * that are computed again appear twice.
 */
#include "base/file.h"
#include "log_file.h"
#include "rest.h"
#include <errno.h>
#include <math.h>
#include <nrl/nrl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* MLflow's own limits of a batch and of names. */
enum { MAX_METRICS = 1000, MAX_PARAMS = 100, MAX_KEY = 250, MAX_PARAM = 500, MAX_STATE = 4096, ERROR_SIZE = 400 };

typedef struct {
    const char *url, *experiment, *user, *password, *token;
    int64_t queue;
    double close_seconds;
} mlflow_options;

static const nrl_option mlflow_rows[] = {
    NRL_OPT_STR(mlflow_options, url, "http://127.0.0.1:5000", "the tracking server, http://HOST:PORT or https://HOST"),
    NRL_OPT_STR(mlflow_options, experiment, "nrl", "name of the experiment; it is created if it does not exist"),
    NRL_OPT_STR(mlflow_options, user, "", "user name for the server"),
    NRL_OPT_STR(mlflow_options, password, "", "password of the user: ${env:MLFLOW_TRACKING_PASSWORD}"),
    NRL_OPT_STR(mlflow_options, token, "", "bearer token instead of a user: ${env:MLFLOW_TRACKING_TOKEN}"),
    NRL_OPT_INT(mlflow_options, queue, "10000", 1, 1e7,
                "maximum number of records that wait while the server is unavailable"),
    NRL_OPT_F64(mlflow_options, close_seconds, "20", 0, 3600, "seconds that the end of a run waits for the server"),
};

typedef struct {
    const mlflow_options *options;
    record_queue *queue;
    log_file state; /* OUT/mlflow.json; never open */
    char *run_name, *config;
    rest server;
    char run_id[MAX_KEY + 1];                  /* empty = not known yet */
    bool is_reopened, has_params, is_finished; /* is_reopened: the server was told that the run continues */
    int64_t n_refused;                         /* records that the server does not accept */
    char params_error[ERROR_SIZE];             /* why it refused parameters; empty = it did not */
} mlflow;

static nrl_status mlflow_check(const void *options)
{
    const mlflow_options *o = options;
    if (strncmp(o->url, "http://", 7) && strncmp(o->url, "https://", 8))
        return nrl_fail(NRL_ERR_CONFIG, "url: '%s' is not a server; expected http://HOST:PORT or https://HOST", o->url);
    if (o->url[strlen(o->url) - 1] == '/') return nrl_fail(NRL_ERR_CONFIG, "url: expected no '/' at the end");
    if (*o->token && *o->user) return nrl_fail(NRL_ERR_CONFIG, "token: expected a token or a user, not both");
    return NRL_OK;
}

/* ---- the run on the server ---- */

static void put_text(arena *a, nrl_node *map, const char *key, const char *text)
{
    node_append_text(a, map, key, text);
}

static nrl_node *key_value(arena *a, nrl_node *list, const char *key, const char *value)
{
    nrl_node *pair = node_new(a, NRL_NODE_MAP);
    put_text(a, pair, "key", key);
    put_text(a, pair, "value", value);
    node_append(a, list, NULL, pair);
    return pair;
}

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static nrl_status find_experiment(mlflow *m, arena *a, const char **id)
{
    const nrl_node *answer;
    const char *refusal, *name = rest_escape(&m->server, a, m->options->experiment);
    if (!name) return nrl_fail(NRL_ERR_MEMORY, "out of memory for an HTTP client");
    nrl_status st = rest_call(&m->server, a, arena_printf(a, "experiments/get-by-name?experiment_name=%s", name), NULL,
                              &answer, &refusal);
    if (st == NRL_OK) {
        *id = nrl_node_string(nrl_node_find(nrl_node_find(answer, "experiment"), "experiment_id"), "");
        return NRL_OK;
    }
    if (!refusal || strcmp(refusal, "RESOURCE_DOES_NOT_EXIST")) return st;
    nrl_node *body = node_new(a, NRL_NODE_MAP);
    put_text(a, body, "name", m->options->experiment);
    NRL_TRY(rest_call(&m->server, a, "experiments/create", body, &answer, NULL));
    *id = nrl_node_string(nrl_node_find(answer, "experiment_id"), "");
    return NRL_OK;
}

/* A resumed run needs the id; without the file it begins another run on the server. */
static void keep_run_id(mlflow *m, arena *a)
{
    nrl_node *state = node_new(a, NRL_NODE_MAP);
    put_text(a, state, "url", m->options->url);
    put_text(a, state, "run_id", m->run_id);
    char *text = json_write(state, 0);
    FILE *f = fopen(m->state.path, "we");
    if (f) {
        fprintf(f, "%s\n", text);
        fclose(f);
    }
    free(text);
}

static nrl_status create_run(mlflow *m, arena *a)
{
    const nrl_node *answer;
    const char *experiment;
    nrl_node *body = node_new(a, NRL_NODE_MAP), *tags = node_new(a, NRL_NODE_LIST);
    NRL_TRY(find_experiment(m, a, &experiment));
    put_text(a, body, "experiment_id", experiment);
    put_text(a, body, "run_name", m->run_name);
    node_append_int(a, body, "start_time", (int64_t)now_ms());
    key_value(a, tags, "mlflow.runName", m->run_name);
    key_value(a, tags, "mlflow.source.name", "nrl");
    node_append(a, body, "tags", tags);
    NRL_TRY(rest_call(&m->server, a, "runs/create", body, &answer, NULL));
    const nrl_node *info = nrl_node_find(nrl_node_find(answer, "run"), "info");
    const char *id = nrl_node_string(nrl_node_find(info, "run_id"), "");
    if (!*id || strlen(id) > MAX_KEY) return nrl_fail(NRL_ERR_IO, "%s: created no run", m->options->url);
    snprintf(m->run_id, sizeof m->run_id, "%s", id);
    m->has_params = false;
    keep_run_id(m, a);
    return NRL_OK;
}

static nrl_status update_run(mlflow *m, arena *a, const char *status, bool has_ended, const char **refusal)
{
    nrl_node *body = node_new(a, NRL_NODE_MAP);
    put_text(a, body, "run_id", m->run_id);
    put_text(a, body, "status", status);
    if (has_ended) node_append_int(a, body, "end_time", (int64_t)now_ms());
    return rest_call(&m->server, a, "runs/update", body, NULL, refusal);
}

/* A name as MLflow accepts it: letters, digits, and _ - . / and spaces; as a path it must have no parts that are empty,
 * `.` or `..`. NULL: it has. */
static const char *plain_key(arena *a, const char *name)
{
    char *key = arena_strndup(a, name, strnlen(name, MAX_KEY));
    for (char *c = key; *c; c++)
        if (!((*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || (*c >= '0' && *c <= '9') || strchr("_-./ ", *c)))
            *c = '_';
    for (const char *part = key; part; part = strchr(part, '/') ? strchr(part, '/') + 1 : NULL) {
        const size_t n = strcspn(part, "/");
        if (n <= 2 && !strncmp(part, "..", n)) return NULL;
    }
    return key;
}

/* ---- parameters: the leaves of the config under their paths ---- */

static const char *leaf_text(arena *a, const nrl_node *n)
{
    const char *text = nrl_node_string(n, NULL);
    if (!text) {
        char *json = json_write(n, 0);
        text = arena_strdup(a, json);
        free(json);
    }
    return strlen(text) <= MAX_PARAM ? text : arena_strndup(a, text, MAX_PARAM);
}

static void add_params(arena *a, nrl_node *list, const char *path, const nrl_node *n)
{
    for (size_t i = 0; i < nrl_node_size(n); i++) {
        const nrl_node *child = nrl_node_at(n, i);
        const char *key = arena_printf(a, "%s%s%s", path, *path ? "." : "", nrl_node_key(n, i)), *plain;
        if (nrl_node_kind(child) == NRL_NODE_MAP && nrl_node_size(child))
            add_params(a, list, key, child);
        else if (nrl_node_kind(child) != NRL_NODE_NULL && strlen(key) <= MAX_KEY && (plain = plain_key(a, key)))
            key_value(a, list, plain, leaf_text(a, child));
    }
}

/* Parameters that the server refuses do not keep metrics from it. */
static nrl_status send_params(mlflow *m, arena *a)
{
    nrl_node *config, *all = node_new(a, NRL_NODE_LIST);
    const char *refusal;
    NRL_TRY(json_parse(a, "config", m->config, strlen(m->config), &config));
    add_params(a, all, "", config);
    for (size_t i = 0; i < nrl_node_size(all);) {
        nrl_node *body = node_new(a, NRL_NODE_MAP), *params = node_new(a, NRL_NODE_LIST);
        for (size_t n = 0; n < MAX_PARAMS && i < nrl_node_size(all); n++, i++)
            node_append(a, params, NULL, node_copy(a, nrl_node_at(all, i)));
        put_text(a, body, "run_id", m->run_id);
        node_append(a, body, "params", params);
        nrl_status st = rest_call(&m->server, a, "runs/log-batch", body, NULL, &refusal);
        if (st != NRL_OK && (!refusal || strcmp(refusal, "INVALID_PARAMETER_VALUE"))) return st;
        if (st != NRL_OK) snprintf(m->params_error, sizeof m->params_error, "%s", nrl_error_text());
    }
    m->has_params = true;
    return NRL_OK;
}

/* ---- metrics ---- */

static void add_metrics(arena *a, nrl_node *list, const nrl_record *r)
{
    for (size_t i = 0; i < r->n_values; i++) {
        const char *key = r->values[i].name ? plain_key(a, r->values[i].name) : NULL;
        if (!key) continue;
        nrl_node *metric = node_new(a, NRL_NODE_MAP);
        put_text(a, metric, "key", key);
        node_append(a, metric, "value", node_f64(a, r->values[i].value));
        node_append_int(a, metric, "timestamp", (int64_t)(fmin(fmax(r->time, 0), 1e11) * 1e3));
        node_append_int(a, metric, "step", r->step);
        node_append(a, list, NULL, metric);
    }
}

static nrl_status send_records(mlflow *m, arena *a, const nrl_record *const *records, size_t n, const char **refusal)
{
    nrl_node *body = node_new(a, NRL_NODE_MAP), *metrics = node_new(a, NRL_NODE_LIST);
    *refusal = NULL;
    for (size_t i = 0; i < n; i++)
        add_metrics(a, metrics, records[i]);
    if (!nrl_node_size(metrics)) return NRL_OK;
    put_text(a, body, "run_id", m->run_id);
    node_append(a, body, "metrics", metrics);
    return rest_call(&m->server, a, "runs/log-batch", body, NULL, refusal);
}

static nrl_status begin_run(mlflow *m, arena *a)
{
    const char *refusal = NULL;
    if (*m->run_id && !m->is_reopened) {
        nrl_status st = update_run(m, a, "RUNNING", false, &refusal);
        if (refusal && !strcmp(refusal, "RESOURCE_DOES_NOT_EXIST"))
            *m->run_id = 0; /* deleted: begin another one */
        else
            NRL_TRY(st);
    }
    if (!*m->run_id) NRL_TRY(create_run(m, a));
    m->is_reopened = true;
    return m->has_params ? NRL_OK : send_params(m, a);
}

static nrl_status mlflow_send(void *user, const nrl_record *const *records, size_t n, size_t *n_sent)
{
    mlflow *m = user;
    arena a = {0};
    const char *refusal;
    size_t n_values = 0, some = 0;
    while (some < n && (!some || n_values + records[some]->n_values <= MAX_METRICS))
        n_values += records[some++]->n_values;
    nrl_status st = begin_run(m, &a);
    if (st == NRL_OK) {
        st = send_records(m, &a, records, some, &refusal);
        bool is_refused = refusal && !strcmp(refusal, "INVALID_PARAMETER_VALUE");
        for (size_t i = 0; is_refused && i < some; i++) { /* the server keeps all or nothing of a batch */
            st = send_records(m, &a, records + i, 1, &refusal);
            if (st != NRL_OK && !refusal) break;
            m->n_refused += st != NRL_OK;
            st = NRL_OK;
            ++*n_sent;
        }
        if (refusal && !strcmp(refusal, "RESOURCE_DOES_NOT_EXIST")) *m->run_id = 0; /* deleted: begin another one */
        if (st == NRL_OK) *n_sent = some;
    }
    for (size_t i = 0; i < *n_sent; i++)
        m->is_finished = records[i]->kind == NRL_RECORD_END;
    arena_free(&a);
    return st;
}

static void mlflow_finish(void *user)
{
    mlflow *m = user;
    arena a = {0};
    if (*m->run_id && !record_queue_gives_up(m->queue))
        update_run(m, &a, m->is_finished ? "FINISHED" : "KILLED", true, NULL);
    rest_close(&m->server);
    arena_free(&a);
}

/* ---- the table's functions ---- */

/* The run on the server that an earlier part of this run began. */
static void read_run_id(mlflow *m)
{
    arena a = {0};
    nrl_node *state;
    if (json_read_file(&a, m->state.path, MAX_STATE, &state) == NRL_OK &&
        !strcmp(nrl_node_string(nrl_node_find(state, "url"), ""), m->options->url)) {
        snprintf(m->run_id, sizeof m->run_id, "%s", nrl_node_string(nrl_node_find(state, "run_id"), ""));
        m->has_params = true; /* parameters cannot change */
    }
    arena_free(&a);
}

static void mlflow_close(void *self)
{
    mlflow *m = self;
    record_queue_close(m->queue);
    if (*m->params_error) nrl_warn("logger 'mlflow': the server refused options of the config: %s", m->params_error);
    if (m->n_refused)
        nrl_warn("logger 'mlflow': the server refused %lld record%s", (long long)m->n_refused,
                 m->n_refused == 1 ? "" : "s");
    log_file_close(&m->state);
    free(m->run_name);
    free(m->config);
    free(m);
}

static nrl_status mlflow_begin(mlflow *m, const nrl_logger_run *run)
{
    arena a = {0};
    NRL_TRY(log_file_init(&m->state, run, "mlflow.json"));
    m->run_name = strdup(run->name ? run->name : "run");
    m->config = run->config ? json_write(node_as_written(&a, run->config), 0) : strdup("{}");
    arena_free(&a);
    if (!m->run_name || !m->config) return nrl_fail(NRL_ERR_MEMORY, "out of memory for logger 'mlflow'");
    m->server = (rest){.url = m->options->url,
                       .user = m->options->user,
                       .password = m->options->password,
                       .token = m->options->token,
                       .queue = &m->queue};
    if (run->resumed_step > 0) read_run_id(m);
    const record_queue_options queue = {.logger = "mlflow",
                                        .most = m->options->queue,
                                        .close_seconds = m->options->close_seconds,
                                        .send = mlflow_send,
                                        .finish = mlflow_finish,
                                        .user = m};
    return record_queue_open(&queue, &m->queue);
}

static nrl_status mlflow_open(const void *options, const nrl_logger_run *run, void **self)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    mlflow *m = calloc(1, sizeof *m);
    if (!m) return nrl_fail(NRL_ERR_MEMORY, "out of memory for logger 'mlflow'");
    m->options = options;
    m->state.fd = -1;
    pthread_once(&once, rest_prepare);
    nrl_status st = mlflow_begin(m, run);
    if (st == NRL_OK)
        *self = m;
    else
        mlflow_close(m);
    return st;
}

static nrl_status mlflow_write(void *self, const nrl_record *r)
{
    if (r->kind == NRL_RECORD_SAMPLES) return NRL_OK; /* it takes numbers */
    return record_queue_put(((mlflow *)self)->queue, r);
}

static const nrl_logger mlflow_table = {
    NRL_PLUGIN(NRL_KIND_LOGGER, nrl_logger, mlflow_options, mlflow_rows, "mlflow", "0.1",
               "metrics and parameters on an MLflow tracking server"),
    .plugin.check = mlflow_check,
    .open = mlflow_open,
    .write = mlflow_write,
    .close = mlflow_close,
};
NRL_EXPORT(mlflow_table)
