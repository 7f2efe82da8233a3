/*
 * prometheus.c - the newest value of each name at http://127.0.0.1:PORT/metrics, in Prometheus' text format.
 *
 * A value `rewards/chosen` is the gauge nrl_rewards_chosen{run="NAME"}; eval_loss is nrl_eval_loss. The HTTP server has
 * a thread of its own, so a scrape never delays a step, and answers at most CONNECTIONS clients at the same time. It
 * listens on the loopback interface only: a Prometheus on another machine needs a tunnel or a proxy. All runs that a
 * process has open with the same port share one server.
 */
#include "base/arena.h"
#include "base/buffer.h"
#include <arpa/inet.h>
#include <errno.h>
#include <math.h>
#include <microhttpd.h>
#include <nrl/nrl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_GAUGES = 2048, MAX_NAME = 128, CONNECTIONS = 32, PATIENCE_SECONDS = 10 };

typedef struct {
    int64_t port;
} prometheus_options;

static const nrl_option prometheus_rows[] = {
    NRL_OPT_INT(prometheus_options, port, "9464", 1, 65535, "port of http://127.0.0.1:PORT/metrics"),
};

typedef struct {
    char name[MAX_NAME]; /* with the prefix nrl_ */
    char *help;          /* the name and unit of the record */
    double value;
} gauge;

typedef struct prometheus prometheus;
struct prometheus {
    prometheus *next;         /* another run of the server */
    char *run;                /* as a label value */
    gauge gauges[MAX_GAUGES]; /* n_gauges used; the first N_OWN are not values of records */
    size_t n_gauges;
    int64_t port;
};

/* The servers of this process. The lock protects them and their runs, also from the threads of the servers. */
typedef struct server server;
struct server {
    server *next;
    int64_t port;
    struct MHD_Daemon *daemon;
    prometheus *runs;
};
static server *servers;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

enum { STEP, TOTAL_STEPS, ETA, TIME, OMITTED, N_OWN };
static const char *const own_gauges[N_OWN][2] = {
    [STEP] = {"nrl_step", "finished optimizer steps"},
    [TOTAL_STEPS] = {"nrl_total_steps", "steps of the run, 0 if unknown"},
    [ETA] = {"nrl_eta_seconds", "estimated time to the last step, NaN if unknown"},
    [TIME] = {"nrl_record_time_seconds", "Unix time of the newest record"},
    [OMITTED] = {"nrl_omitted_values", "number of values that were dropped because there are too many names"},
};

/* ---- the page ---- */

static void add_value(buffer *page, double v)
{
    if (isfinite(v))
        buffer_print(page, "%.17g\n", v);
    else
        buffer_puts(page, isnan(v) ? "NaN\n" : v > 0 ? "+Inf\n" : "-Inf\n");
}

static const gauge *find_gauge(const prometheus *p, const char *name)
{
    for (size_t i = 0; i < p->n_gauges; i++)
        if (!strcmp(p->gauges[i].name, name)) return &p->gauges[i];
    return NULL;
}

/* The values of one name stand together. Of several runs with the same name the newest is shown. */
static void add_gauges(const prometheus *runs, buffer *page, const gauge *g)
{
    buffer_print(page, "# HELP %s %s\n# TYPE %s gauge\n", g->name, g->help, g->name);
    for (const prometheus *p = runs; p; p = p->next) {
        const gauge *of_run = find_gauge(p, g->name);
        bool is_hidden = false;
        for (const prometheus *newer = runs; newer != p; newer = newer->next)
            is_hidden = is_hidden || !strcmp(newer->run, p->run);
        if (!of_run || is_hidden) continue;
        buffer_print(page, "%s{run=\"%s\"} ", g->name, p->run);
        add_value(page, of_run->value);
    }
}

static void add_page(const server *s, buffer *page)
{
    pthread_mutex_lock(&lock);
    for (const prometheus *p = s->runs; p; p = p->next)
        for (size_t i = 0; i < p->n_gauges; i++) {
            bool is_done = false;
            for (const prometheus *newer = s->runs; newer != p; newer = newer->next)
                is_done = is_done || find_gauge(newer, p->gauges[i].name);
            if (!is_done) add_gauges(p, page, &p->gauges[i]);
        }
    pthread_mutex_unlock(&lock);
}

static enum MHD_Result answer(struct MHD_Connection *connection, unsigned status, const char *type, char *text,
                              size_t size)
{
    struct MHD_Response *r = MHD_create_response_from_buffer(size, text, MHD_RESPMEM_MUST_FREE);
    if (!r) {
        free(text);
        return MHD_NO;
    }
    MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    enum MHD_Result queued = MHD_queue_response(connection, status, r);
    MHD_destroy_response(r);
    return queued;
}

static enum MHD_Result answer_line(struct MHD_Connection *connection, unsigned status, const char *line)
{
    char *text = strdup(line);
    return text ? answer(connection, status, "text/plain; charset=utf-8", text, strlen(text)) : MHD_NO;
}

static enum MHD_Result handle(void *user, struct MHD_Connection *connection, const char *url, const char *method,
                              const char *version, const char *upload, size_t *upload_size, void **state)
{
    buffer page = {.what = "metrics"};
    (void)version, (void)upload, (void)state;
    if (*upload_size) { /* a body is ignored */
        *upload_size = 0;
        return MHD_YES;
    }
    if (strcmp(method, "GET") && strcmp(method, "HEAD"))
        return answer_line(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "expected GET\n");
    if (strcmp(url, "/metrics")) return answer_line(connection, MHD_HTTP_NOT_FOUND, "expected /metrics\n");
    add_page(user, &page);
    size_t size = page.size;
    char *text = buffer_take(&page);
    if (!text) return answer_line(connection, MHD_HTTP_INTERNAL_SERVER_ERROR, "out of memory\n");
    return answer(connection, MHD_HTTP_OK, "text/plain; version=0.0.4; charset=utf-8", text, size);
}

/* ---- values ---- */

/* Letters, digits and underscores; NAME_MAX bytes. */
static void metric_name(const char *name, char out[MAX_NAME])
{
    size_t n = (size_t)snprintf(out, MAX_NAME, "nrl_");
    for (; *name && n < MAX_NAME - 1; name++) {
        bool plain = (*name >= 'a' && *name <= 'z') || (*name >= 'A' && *name <= 'Z') || (*name >= '0' && *name <= '9');
        out[n++] = plain ? *name : '_';
    }
    out[n] = 0;
}

/* Text for a help line or a label: ASCII without control characters; labels escape \ and ". Malloc'd; NULL = no memory.
 */
static char *plain_text(const char *text, bool is_label)
{
    buffer b = {.what = "metrics"};
    buffer_puts(&b, "");
    for (; *text && b.size < (size_t)4 * MAX_NAME; text++) {
        if (*text == '\\' || (*text == '"' && is_label)) buffer_puts(&b, "\\");
        buffer_add(&b, *text < ' ' || *text > '~' ? "?" : text, 1);
    }
    return buffer_take(&b);
}

static nrl_status add_gauge(prometheus *p, const char *name, const char *help)
{
    gauge *g = &p->gauges[p->n_gauges];
    g->help = plain_text(help, false);
    if (!g->help) return NRL_ERR_MEMORY;
    snprintf(g->name, sizeof g->name, "%s", name);
    g->value = 0;
    p->n_gauges++;
    return NRL_OK;
}

static nrl_status set_value(prometheus *p, const nrl_value *v)
{
    char name[MAX_NAME];
    metric_name(v->name, name);
    gauge *g = (gauge *)find_gauge(p, name);
    if (!g && p->n_gauges == MAX_GAUGES) {
        p->gauges[OMITTED].value++;
        return NRL_OK;
    }
    if (!g) {
        char *help = mem_printf("%s%s%s", v->name, v->unit && *v->unit ? ", " : "", v->unit ? v->unit : "");
        nrl_status st = add_gauge(p, name, help);
        free(help);
        NRL_TRY(st);
        g = &p->gauges[p->n_gauges - 1];
    }
    g->value = v->value;
    return NRL_OK;
}

static nrl_status prometheus_write(void *self, const nrl_record *r)
{
    prometheus *p = self;
    nrl_status st = NRL_OK;
    pthread_mutex_lock(&lock);
    p->gauges[STEP].value = (double)r->step;
    p->gauges[TOTAL_STEPS].value = (double)r->total_steps;
    p->gauges[ETA].value = r->eta_seconds >= 0 && isfinite(r->eta_seconds) ? r->eta_seconds : NAN;
    p->gauges[TIME].value = r->time;
    for (size_t i = r->n_values; i-- > 0 && st == NRL_OK;) /* of values of one name, the first one counts */
        if (r->values[i].name) st = set_value(p, &r->values[i]);
    pthread_mutex_unlock(&lock);
    return st;
}

/* ---- servers ---- */

/* Signals are for the threads of the program. */
static nrl_status start_server(server *s)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)s->port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    errno = 0;
    s->daemon = MHD_start_daemon(MHD_USE_INTERNAL_POLLING_THREAD, (uint16_t)s->port, NULL, NULL, handle, s,
                                 MHD_OPTION_SOCK_ADDR, &address, MHD_OPTION_CONNECTION_LIMIT, (unsigned)CONNECTIONS,
                                 MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)PATIENCE_SECONDS, MHD_OPTION_END);
    int error = errno;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (s->daemon) return NRL_OK;
    return nrl_fail(NRL_ERR_IO, "cannot listen on 127.0.0.1:%lld: %s%s", (long long)s->port,
                    error ? strerror(error) : "libmicrohttpd does not start",
                    error == EADDRINUSE ? "\nhint: the option `port` of the logger selects another port" : "");
}

static nrl_status join_server(prometheus *p)
{
    nrl_status st = NRL_OK;
    pthread_mutex_lock(&lock);
    server *s = servers;
    while (s && s->port != p->port)
        s = s->next;
    if (!s) {
        s = calloc(1, sizeof *s);
        if (s) s->port = p->port;
        st = s ? start_server(s) : nrl_fail(NRL_ERR_MEMORY, "out of memory for logger 'prometheus'");
        if (st == NRL_OK) {
            s->next = servers;
            servers = s;
        } else {
            free(s);
        }
    }
    if (st == NRL_OK) {
        p->next = s->runs;
        s->runs = p;
    }
    pthread_mutex_unlock(&lock);
    return st;
}

/* The last run stops the server, outside of the lock, which a thread of the server may wait for. */
static void leave_server(const prometheus *p)
{
    server *stopped = NULL;
    pthread_mutex_lock(&lock);
    for (server **s = &servers; *s && !stopped; s = &(*s)->next) {
        for (prometheus **at = &(*s)->runs; *at; at = &(*at)->next)
            if (*at == p) {
                *at = p->next;
                break;
            }
        if ((*s)->runs) continue;
        stopped = *s;
        *s = stopped->next;
        break;
    }
    pthread_mutex_unlock(&lock);
    if (stopped) MHD_stop_daemon(stopped->daemon);
    free(stopped);
}

/* ---- the table's functions ---- */

static void prometheus_close(void *self)
{
    prometheus *p = self;
    leave_server(p);
    for (size_t i = 0; i < p->n_gauges; i++)
        free(p->gauges[i].help);
    free(p->run);
    free(p);
}

static nrl_status prometheus_open(const void *options, const nrl_logger_run *run, void **self)
{
    prometheus *p = calloc(1, sizeof *p);
    if (!p) return nrl_fail(NRL_ERR_MEMORY, "out of memory for logger 'prometheus'");
    p->port = ((const prometheus_options *)options)->port;
    p->run = plain_text(run->name ? run->name : "", true);
    nrl_status st = p->run ? NRL_OK : nrl_fail(NRL_ERR_MEMORY, "out of memory for logger 'prometheus'");
    for (size_t i = 0; i < N_OWN && st == NRL_OK; i++)
        st = add_gauge(p, own_gauges[i][0], own_gauges[i][1]);
    if (st == NRL_OK) {
        p->gauges[STEP].value = (double)run->resumed_step;
        p->gauges[TOTAL_STEPS].value = (double)run->total_steps;
        p->gauges[ETA].value = NAN;
        st = join_server(p);
    }
    if (st == NRL_OK)
        *self = p;
    else
        prometheus_close(p);
    return st;
}

static const nrl_logger prometheus_table = {
    NRL_PLUGIN(NRL_KIND_LOGGER, nrl_logger, prometheus_options, prometheus_rows, "prometheus", "0.1",
               "the newest values at http://127.0.0.1:PORT/metrics for Prometheus"),
    .open = prometheus_open,
    .write = prometheus_write,
    .close = prometheus_close,
};
NRL_EXPORT(prometheus_table)
