/*
 * http.c - connections, by libmicrohttpd in a thread of its own. A connection whose answer is not ready is suspended,
 * and the main thread wakes it.
 */
#include "base/json.h"
#include "cli/common/http_host.h"
#include "serve.h"
#include <errno.h>
#include <microhttpd.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    CONNECTIONS = 1000,
    IDLE_SECONDS = 120, /* of a connection that neither sends nor receives; waiting for an answer does not count */
    CONNECTION_BYTES = 65536, /* of the headers of a request, and of what waits to be sent */
    STREAM_BLOCK = 16384
};

struct http {
    struct MHD_Daemon *daemon;
};

static const char page[] = {
#include "page.html.inc"
};

/* A request on its way in. */
typedef struct {
    buffer body;
    job *job;
    bool is_refused;
} exchange;

void job_free(job *j)
{
    for (size_t i = 0; i < j->n_choices && j->choices; i++) {
        choice *c = &j->choices[i];
        buffer *all[] = {&c->text, &c->logprobs, &c->text_logps, &c->tops, &c->offsets, &c->calls};
        tool_parser_destroy(c->parser);
        for (size_t k = 0; k < sizeof all / sizeof *all; k++)
            buffer_free(all[k]);
    }
    buffer_free(&j->out);
    arena_free(&j->memory);
    free(j);
}

/* ---- answers ---- */

static enum MHD_Result send_response(const server *s, struct MHD_Connection *c, unsigned status, const char *type,
                                     struct MHD_Response *r)
{
    if (!r) return MHD_NO;
    if (type) MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    if (s->allow_origin) {
        MHD_add_response_header(r, MHD_HTTP_HEADER_ACCESS_CONTROL_ALLOW_ORIGIN, s->allow_origin);
        MHD_add_response_header(r, MHD_HTTP_HEADER_VARY, MHD_HTTP_HEADER_ORIGIN);
    }
    if (status == MHD_HTTP_TOO_MANY_REQUESTS || status == MHD_HTTP_SERVICE_UNAVAILABLE)
        MHD_add_response_header(r, MHD_HTTP_HEADER_RETRY_AFTER, "1");
    if (status == MHD_HTTP_UNAUTHORIZED) MHD_add_response_header(r, MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Bearer");
    enum MHD_Result done = MHD_queue_response(c, status, r);
    MHD_destroy_response(r);
    return done;
}

static enum MHD_Result send_text(const server *s, struct MHD_Connection *c, unsigned status, buffer *text)
{
    const size_t size = text->size;
    return send_response(s, c, status, "application/json",
                         MHD_create_response_from_buffer(size, buffer_take(text), MHD_RESPMEM_MUST_FREE));
}

static enum MHD_Result send_error(const server *s, struct MHD_Connection *c, unsigned status, const char *message,
                                  const char *param, const char *code)
{
    buffer b = {0};
    reply_error(&b, status, message, param, code);
    return send_text(s, c, status, &b);
}

/* With server.lock. The socket is valid until the connection is woken. */
static void suspend(job *j, struct MHD_Connection *c)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
    j->socket = info ? info->connect_fd : -1;
    j->connection = c;
    j->is_suspended = true;
    MHD_suspend_connection(c);
}

void http_wake(job *j)
{
    if (!j->is_suspended) return;
    j->is_suspended = false;
    MHD_resume_connection(j->connection);
}

bool http_is_gone(const job *j)
{
    char byte;
    if (!j->is_suspended || j->socket < 0) return false;
    const ssize_t n = recv(j->socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

/* The next bytes of a stream. */
static ssize_t read_stream(void *user, uint64_t at, char *room, size_t most)
{
    job *j = user;
    ssize_t n;
    (void)at;
    pthread_mutex_lock(&j->server->lock);
    const size_t left = j->out.size - j->n_sent;
    if (left) {
        n = (ssize_t)(left < most ? left : most);
        memcpy(room, j->out.text + j->n_sent, (size_t)n);
        j->n_sent += (size_t)n;
        if (j->n_sent == j->out.size) j->out.size = j->n_sent = 0;
    } else if (j->state == JOB_DONE) {
        n = MHD_CONTENT_READER_END_OF_STREAM;
    } else {
        n = 0;
        suspend(j, j->connection);
    }
    pthread_mutex_unlock(&j->server->lock);
    return n;
}

/* The answer to a job, or suspends the connection until there is one. */
static enum MHD_Result answer(job *j, struct MHD_Connection *c)
{
    pthread_mutex_lock(&j->server->lock);
    const unsigned status = j->http_status;
    j->connection = c;
    if (!status) suspend(j, c);
    pthread_mutex_unlock(&j->server->lock);
    if (!status) return MHD_YES;
    if (!j->is_stream || status != MHD_HTTP_OK) return send_text(j->server, c, status, &j->out); /* JOB_DONE */
    struct MHD_Response *r = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, STREAM_BLOCK, read_stream, j, NULL);
    if (r) MHD_add_response_header(r, MHD_HTTP_HEADER_CACHE_CONTROL, "no-cache");
    return send_response(j->server, c, status, "text/event-stream", r);
}

/* ---- requests ---- */

static const char *header(struct MHD_Connection *c, const char *name)
{
    return MHD_lookup_connection_value(c, MHD_HEADER_KIND, name);
}

/* Whether a browser has loaded the page from the address that it asks now; https is that of a proxy. */
static bool is_own_origin(const char *origin, const char *host)
{
    const size_t n = !strncmp(origin, "https://", 8) ? 8 : !strncmp(origin, "http://", 7) ? 7 : 0;
    return n && host && !strcasecmp(origin + n, host);
}

/* Without a key, the page of any site could use the server through the browser of a user of this machine. Its requests
 * have the Origin of the site, or if the name of the site resolves to this machine (DNS rebinding) its Host. Other
 * clients send no Origin. Writes what is wrong to `message`. */
static bool is_foreign(const server *s, struct MHD_Connection *c, char *message, size_t room)
{
    const char *host = header(c, MHD_HTTP_HEADER_HOST), *origin = header(c, MHD_HTTP_HEADER_ORIGIN);
    if (s->api_key) return false;
    if (s->is_local && !http_host_is_loopback(host)) {
        snprintf(message, room,
                 "header Host: found '%.100s', expected localhost, 127.0.0.1 or [::1], because the server has no "
                 "--api-key",
                 host ? host : "");
        return true;
    }
    const bool is_any = s->allow_origin && !strcmp(s->allow_origin, "*");
    if (!origin || is_any || (s->allow_origin && !strcmp(origin, s->allow_origin)) || is_own_origin(origin, host))
        return false;
    snprintf(message, room,
             "header Origin: found '%.100s', expected the address of this server or that of --allow-origin, because "
             "the server has no --api-key",
             origin);
    return true;
}

/* Compares in a time that does not depend on where the texts differ. */
static bool is_key(const char *given, const char *key)
{
    const size_t n = strlen(key), m = strlen(given);
    unsigned char different = n != m;
    for (size_t i = 0; i < m; i++)
        different |= (unsigned char)(given[i] ^ key[i % (n ? n : 1)]);
    return !different;
}

static bool is_allowed(const server *s, struct MHD_Connection *c)
{
    const char *given = header(c, MHD_HTTP_HEADER_AUTHORIZATION);
    return !s->api_key || (given && !strncmp(given, "Bearer ", 7) && is_key(given + 7, s->api_key));
}

static enum MHD_Result send_health(server *s, struct MHD_Connection *c)
{
    buffer b = {0};
    pthread_mutex_lock(&s->lock);
    const bool is_ending = s->is_ending;
    buffer_print(&b,
                 "{\"status\":\"%s\",\"queued\":%lld,\"running\":%lld,\"prompt_tokens_computed\":%lld,"
                 "\"prompt_tokens_reused\":%lld}\n",
                 is_ending ? "ending" : "ok", (long long)s->n_queued, (long long)s->n_active,
                 (long long)s->stats.prompt_tokens_computed, (long long)s->stats.prompt_tokens_reused);
    pthread_mutex_unlock(&s->lock);
    return send_text(s, c, is_ending ? MHD_HTTP_SERVICE_UNAVAILABLE : MHD_HTTP_OK, &b);
}

/* The page has no data of the model; its requests need the key. It loads nothing from elsewhere. */
static enum MHD_Result send_page(const server *s, struct MHD_Connection *c)
{
    struct MHD_Response *r =
        MHD_create_response_from_buffer(sizeof page - 1, (void *)(uintptr_t)page, MHD_RESPMEM_PERSISTENT);
    if (r)
        MHD_add_response_header(r, "Content-Security-Policy",
                                "default-src 'none'; connect-src 'self'; script-src 'unsafe-inline'; style-src "
                                "'unsafe-inline'; frame-ancestors 'none'");
    return send_response(s, c, MHD_HTTP_OK, "text/html; charset=utf-8", r);
}

/* Reads the body and puts the job into the queue. */
static enum MHD_Result submit(server *s, exchange *x, struct MHD_Connection *c, bool is_chat)
{
    static const char nothing[] = "";
    const char *param;
    job *j = mem_alloc(sizeof *j);
    *j = (job){.server = s, .is_chat = is_chat, .created = (int64_t)time(NULL), .socket = -1};
    if (request_read(s, j, x->body.text ? x->body.text : nothing, x->body.size, &param) != NRL_OK) {
        const bool is_model = param && !strcmp(param, "model");
        enum MHD_Result done = send_error(s, c, is_model ? MHD_HTTP_NOT_FOUND : MHD_HTTP_BAD_REQUEST, nrl_error_text(),
                                          param, is_model ? "model_not_found" : NULL);
        job_free(j);
        return done;
    }
    buffer_free(&x->body);
    pthread_mutex_lock(&s->lock);
    const bool is_ending = s->is_ending, is_full = s->n_queued >= s->max_queue;
    if (!is_ending && !is_full) {
        x->job = j;
        s->n_open++;
        s->n_queued++;
        *s->queue_end = j;
        s->queue_end = &j->next;
        pthread_cond_signal(&s->has_work);
    }
    pthread_mutex_unlock(&s->lock);
    if (x->job) return answer(j, c);
    job_free(j);
    if (is_ending) return send_error(s, c, MHD_HTTP_SERVICE_UNAVAILABLE, "the server is shutting down", NULL, NULL);
    return send_error(s, c, MHD_HTTP_TOO_MANY_REQUESTS, "too many requests are waiting", NULL, "queue_full");
}

static const struct {
    const char *method, *path;
    enum { ROUTE_PAGE, ROUTE_HEALTH, ROUTE_MODELS, ROUTE_MODEL, ROUTE_CHAT, ROUTE_COMPLETIONS } route;
} routes[] = {
    {"GET", "/", ROUTE_PAGE},
    {"GET", "/health", ROUTE_HEALTH},
    {"GET", "/v1/models", ROUTE_MODELS},
    {"GET", "/v1/models/", ROUTE_MODEL}, /* followed by the name of the model */
    {"POST", "/v1/chat/completions", ROUTE_CHAT},
    {"POST", "/v1/completions", ROUTE_COMPLETIONS},
};

/* The number of the route, or that of routes if there is none. */
static size_t route_of(const server *s, const char *url)
{
    const size_t n = sizeof routes / sizeof *routes;
    size_t i = 0;
    for (; i < n; i++) {
        const size_t size = strlen(routes[i].path);
        if (!strcmp(routes[i].path, url)) break;
        if (routes[i].route == ROUTE_MODEL && !strncmp(routes[i].path, url, size) && !strcmp(url + size, s->name))
            break;
    }
    return i;
}

/* The headers that a page may send: those that it asks for, as long as they are names of headers. */
static const char *allowed_headers(struct MHD_Connection *c)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789!#$%&'*+-.^_`|~, ";
    const char *asked = header(c, MHD_HTTP_HEADER_ACCESS_CONTROL_REQUEST_HEADERS);
    return asked && !asked[strspn(asked, letters)] ? asked : "Authorization, Content-Type";
}

/* What a browser asks before a page of another site may send the request. */
static enum MHD_Result send_options(const server *s, struct MHD_Connection *c, const char *allowed)
{
    struct MHD_Response *r = MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT);
    if (r) MHD_add_response_header(r, MHD_HTTP_HEADER_ALLOW, allowed);
    if (r && s->allow_origin) {
        MHD_add_response_header(r, MHD_HTTP_HEADER_ACCESS_CONTROL_ALLOW_METHODS, allowed);
        MHD_add_response_header(r, MHD_HTTP_HEADER_ACCESS_CONTROL_ALLOW_HEADERS, allowed_headers(c));
    }
    return send_response(s, c, MHD_HTTP_NO_CONTENT, NULL, r);
}

/* Refuses what can be refused before the body is there. MHD_YES without *done: the request goes on. */
static enum MHD_Result begin(server *s, struct MHD_Connection *c, const char *url, const char *method, size_t *route,
                             bool *done)
{
    const char *size = header(c, MHD_HTTP_HEADER_CONTENT_LENGTH);
    const size_t n = sizeof routes / sizeof *routes;
    char message[400];
    *route = route_of(s, url);
    *done = true;
    if (is_foreign(s, c, message, sizeof message)) return send_error(s, c, MHD_HTTP_FORBIDDEN, message, NULL, NULL);
    if (*route == n) {
        snprintf(message, sizeof message, "no such path: %.100s", url);
        return send_error(s, c, MHD_HTTP_NOT_FOUND, message, NULL, NULL);
    }
    const bool is_get = !strcmp(routes[*route].method, "GET");
    if (!strcmp(method, "OPTIONS")) return send_options(s, c, is_get ? "GET, HEAD, OPTIONS" : "POST, OPTIONS");
    if (strcmp(routes[*route].method, method) && !(is_get && !strcmp(method, "HEAD"))) {
        snprintf(message, sizeof message, "method %.20s, expected %s", method, routes[*route].method);
        return send_error(s, c, MHD_HTTP_METHOD_NOT_ALLOWED, message, NULL, NULL);
    }
    if (routes[*route].route > ROUTE_HEALTH && !is_allowed(s, c))
        return send_error(s, c, MHD_HTTP_UNAUTHORIZED, "the API key is missing or wrong", NULL, "invalid_api_key");
    if (size && strtoll(size, NULL, 10) > s->max_body) {
        snprintf(message, sizeof message, "the body is larger than %lld bytes", (long long)s->max_body);
        return send_error(s, c, MHD_HTTP_CONTENT_TOO_LARGE, message, NULL, NULL);
    }
    *done = false;
    return MHD_YES;
}

static enum MHD_Result handle(void *user, struct MHD_Connection *c, const char *url, const char *method,
                              const char *version, const char *data, size_t *size, void **state)
{
    server *s = user;
    exchange *x = *state;
    size_t route;
    bool done;
    (void)version;
    if (!x) {
        *state = x = mem_alloc(sizeof *x);
        x->body.what = "the body of a request";
        enum MHD_Result result = begin(s, c, url, method, &route, &done);
        x->is_refused = done;
        return result;
    }
    if (x->is_refused) {
        *size = 0;
        return MHD_YES;
    }
    if (x->job) return answer(x->job, c);
    if (*size) { /* what is too large is read and dropped, so that the client reads the answer */
        if ((int64_t)(x->body.size + *size) <= s->max_body + 1)
            buffer_add(&x->body, data, *size);
        else
            x->body.lacks = 1;
        *size = 0;
        return MHD_YES;
    }
    if (x->body.lacks)
        return send_error(s, c, MHD_HTTP_CONTENT_TOO_LARGE, "the body of the request is too large", NULL, NULL);
    route = route_of(s, url);
    buffer b = {0};
    switch (routes[route].route) {
    case ROUTE_PAGE:
        return send_page(s, c);
    case ROUTE_HEALTH:
        return send_health(s, c);
    case ROUTE_MODELS:
    case ROUTE_MODEL:
        reply_models(s, &b, (int64_t)time(NULL), routes[route].route == ROUTE_MODELS);
        return send_text(s, c, MHD_HTTP_OK, &b);
    default:
        return submit(s, x, c, routes[route].route == ROUTE_CHAT);
    }
}

/* The answer was sent, or the client has gone. */
static void completed(void *user, struct MHD_Connection *c, void **state, enum MHD_RequestTerminationCode code)
{
    server *s = user;
    exchange *x = *state;
    (void)c;
    (void)code;
    if (!x) return;
    if (x->job) {
        pthread_mutex_lock(&s->lock);
        const bool is_mine = x->job->state == JOB_DONE;
        x->job->is_abandoned = true;
        x->job->is_suspended = false;
        s->n_open--;
        pthread_cond_signal(&s->has_work);
        pthread_mutex_unlock(&s->lock);
        if (is_mine) job_free(x->job);
    }
    buffer_free(&x->body);
    free(x);
    *state = NULL;
}

/* ---- the daemon ---- */

static bool is_loopback(const struct sockaddr *a)
{
    if (a->sa_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)(const void *)a)->sin_addr.s_addr) >> 24 == 127;
    return a->sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(const void *)a)->sin6_addr);
}

nrl_status http_open(server *s, const char *host, int64_t *port, http **out)
{
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    struct addrinfo *address;
    char service[24];
    snprintf(service, sizeof service, "%lld", (long long)*port);
    int failure = getaddrinfo(host, service, &hints, &address);
    if (failure) return nrl_fail(NRL_ERR_CONFIG, "--host: '%s': %s", host, gai_strerror(failure));
    http *h = mem_alloc(sizeof *h);
    s->is_local = is_loopback(address->ai_addr);
    const unsigned flags = MHD_USE_AUTO | MHD_USE_INTERNAL_POLLING_THREAD | MHD_ALLOW_SUSPEND_RESUME |
                           (address->ai_family == AF_INET6 ? MHD_USE_IPv6 : 0);
    h->daemon = MHD_start_daemon(flags, (uint16_t)*port, NULL, NULL, handle, s, MHD_OPTION_SOCK_ADDR, address->ai_addr,
                                 MHD_OPTION_NOTIFY_COMPLETED, completed, s, MHD_OPTION_CONNECTION_LIMIT,
                                 (unsigned)CONNECTIONS, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)IDLE_SECONDS,
                                 MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_BYTES, MHD_OPTION_END);
    freeaddrinfo(address);
    if (!h->daemon) {
        free(h);
        return nrl_fail(NRL_ERR_IO, "cannot listen on %s, port %lld: %s", host, (long long)*port, strerror(errno));
    }
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(h->daemon, MHD_DAEMON_INFO_BIND_PORT);
    if (info) *port = info->port;
    *out = h;
    return NRL_OK;
}

void http_stop_listening(http *h)
{
    MHD_socket s = MHD_quiesce_daemon(h->daemon);
    if (s != MHD_INVALID_SOCKET) close(s);
}

void http_close(http *h)
{
    if (!h) return;
    MHD_stop_daemon(h->daemon);
    free(h);
}
