/*
 * hub_client.c - see hub_client.h.
 */
#include "hub_client.h"
#include "base/buffer.h"
#include "base/disk.h"
#include "base/file.h"
#include "base/hub.h"
#include "base/json.h"
#include "cli/common/cli.h"
#include <arpa/inet.h>
#include <curl/curl.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    MAX_ANSWER = 64 << 20,
    MAX_TOKEN = 4096,
    MAX_REDIRECTS = 8,
    TRIES = 5,
    CONNECT_SECONDS = 15,
    STALL_SECONDS = 30
};

struct hub_client {
    arena memory;
    CURL *curl;
    const char *endpoint; /* without a final slash */
    const char *token;    /* NULL = none */
    const char *token_at; /* the variable or the file that it is from */
    long code;            /* of the last request */
    bool reached;         /* there was an answer */
    long stall_seconds;   /* a transfer without a byte for this long has failed */
};

/* One request and its answer. */
typedef struct {
    const char *method, *body, *body_type;
    const nrl_node *headers; /* a map of further ones; NULL = none */
    FILE *from;              /* the body of a PUT: n_from bytes from from_at */
    int64_t from_at, n_from;
    int fd;           /* where a body of 200 or 206 goes; -1: to `text` */
    int64_t begin;    /* the first byte to ask for */
    int64_t most;     /* bytes that the file may have */
    const char *name; /* of that file */
    /* the answer */
    CURL *curl;
    long code;
    int64_t at; /* bytes that the file has */
    buffer text;
    char *etag, *message; /* ETag, X-Error-Message */
    nrl_status disk;      /* of writing the file */
    bool is_absent;       /* no server is there */
} exchange;

/* ---- where requests may go ---- */

static bool is_loopback(const char *host)
{
    struct in_addr v4;
    if (!strcmp(host, "localhost") || !strcmp(host, "[::1]")) return true;
    return inet_pton(AF_INET, host, &v4) == 1 && ntohl(v4.s_addr) >> 24 == 127;
}

/* "https://host:port" of a URL, with the default port; malloc'd. NULL: not a URL of a server to talk to. */
static char *origin_of(const char *url)
{
    CURLU *u = curl_url();
    char *scheme = NULL, *host = NULL, *port = NULL, *origin = NULL, *user = NULL;
    if (u && !curl_url_set(u, CURLUPART_URL, url, 0) && !curl_url_get(u, CURLUPART_SCHEME, &scheme, 0) &&
        !curl_url_get(u, CURLUPART_HOST, &host, 0) && !curl_url_get(u, CURLUPART_PORT, &port, CURLU_DEFAULT_PORT) &&
        (!strcmp(scheme, "https") || (!strcmp(scheme, "http") && is_loopback(host))) &&
        curl_url_get(u, CURLUPART_USER, &user, 0) == CURLUE_NO_USER)
        origin = mem_printf("%s://%s:%s", scheme, host, port);
    curl_free(scheme);
    curl_free(host);
    curl_free(port);
    curl_free(user);
    curl_url_cleanup(u);
    return origin;
}

/* Whether a request to `url` is allowed; *own: it goes to the hub itself. */
static bool may_request(const hub_client *c, const char *url, bool *own)
{
    char *hub = origin_of(c->endpoint), *other = origin_of(url);
    bool allowed = other && (!strncmp(other, "https:", 6) || !strncmp(hub, "http:", 5));
    *own = allowed && !strcmp(hub, other);
    free(hub);
    free(other);
    return allowed;
}

/* ---- opening ---- */

static nrl_status take_token(hub_client *c, const char *token, const char *from)
{
    char *copy = arena_strndup(&c->memory, token, strcspn(token, "\r\n"));
    for (const char *p = copy; *p; p++)
        if (*p <= ' ' || *p > '~')
            return nrl_fail(NRL_ERR_CONFIG, "%s: not a token of the hub; expected one word of ASCII", from);
    if (!*copy) return NRL_OK;
    c->token = copy;
    c->token_at = from;
    return NRL_OK;
}

/* In the order of huggingface_hub, which also still reads the former name of HF_TOKEN. */
static nrl_status find_token(hub_client *c)
{
    static const char *const names[] = {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"};
    const char *path = cli_getenv("HF_TOKEN_PATH");
    char *text;
    size_t size;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (cli_getenv(names[i])) return take_token(c, cli_getenv(names[i]), names[i]);
    if (!path) path = arena_printf(&c->memory, "%s/token", hub_home(&c->memory, cli_variable));
    if (access(path, F_OK)) return NRL_OK;
    if (file_read(path, MAX_TOKEN, &text, &size) != NRL_OK) return NRL_ERR_CONFIG;
    nrl_status st = take_token(c, text, path);
    free(text);
    return st;
}

nrl_status hub_client_open(hub_client **out)
{
    const char *endpoint = cli_getenv("HF_ENDPOINT"), *stall = cli_getenv("HF_HUB_DOWNLOAD_TIMEOUT");
    hub_client *c = mem_alloc(sizeof *c);
    if (!endpoint) endpoint = "https://huggingface.co";
    size_t n = strlen(endpoint);
    while (n && endpoint[n - 1] == '/')
        n--;
    c->endpoint = arena_strndup(&c->memory, endpoint, n);
    c->stall_seconds = stall ? strtol(stall, NULL, 10) : STALL_SECONDS;
    if (c->stall_seconds < 1) c->stall_seconds = STALL_SECONDS;
    char *origin = origin_of(c->endpoint);
    nrl_status st =
        origin ? find_token(c)
               : nrl_fail(NRL_ERR_CONFIG,
                          "HF_ENDPOINT is '%s'; expected https://HOST, or http://HOST for a server on this machine",
                          c->endpoint);
    free(origin);
    curl_global_init(CURL_GLOBAL_DEFAULT);
    c->curl = curl_easy_init();
    if (st == NRL_OK && !c->curl) st = nrl_fail(NRL_ERR_IO, "cannot start libcurl");
    if (st == NRL_OK)
        *out = c;
    else
        hub_client_close(c);
    return st;
}

void hub_client_close(hub_client *c)
{
    if (!c) return;
    curl_easy_cleanup(c->curl);
    arena_free(&c->memory);
    free(c);
}

const char *hub_client_endpoint(const hub_client *c)
{
    return c->endpoint;
}

long hub_client_code(const hub_client *c)
{
    return c->code;
}

const char *hub_client_encode(hub_client *c, arena *a, const char *path)
{
    buffer b = {0};
    for (const char *part = path;; part++) {
        size_t n = strcspn(part, "/");
        char *encoded = curl_easy_escape(c->curl, n ? part : "", (int)n); /* length 0 would mean strlen */
        buffer_add(&b, encoded, strlen(encoded));
        curl_free(encoded);
        part += n;
        if (!*part) break;
        buffer_puts(&b, "/");
    }
    const char *out = arena_strdup(a, b.text ? b.text : "");
    buffer_free(&b);
    return out;
}

/* ---- one request ---- */

static size_t take_body(char *bytes, size_t one, size_t n, void *user)
{
    exchange *e = user;
    long code = 0;
    curl_easy_getinfo(e->curl, CURLINFO_RESPONSE_CODE, &code);
    if (e->fd < 0 || code >= 300) { /* the text of an error is a message, not the file */
        if (e->text.size + one * n > MAX_ANSWER) return 0;
        buffer_add(&e->text, bytes, one * n);
        return one * n;
    }
    if (code == 200 && e->begin) { /* from its start, although a part was asked for */
        e->begin = e->at = 0;
        if (ftruncate(e->fd, 0) || lseek(e->fd, 0, SEEK_SET)) {
            e->disk = disk_fail(e->name, errno);
            return 0;
        }
    }
    if ((int64_t)(one * n) > e->most - e->at)
        e->disk = nrl_fail(NRL_ERR_CORRUPT, "%s: the server sends more than the %lld bytes that it lists", e->name,
                           (long long)e->most);
    else
        e->disk = disk_write(e->fd, e->name, bytes, one * n);
    if (e->disk != NRL_OK) return 0;
    e->at += (int64_t)(one * n);
    return one * n;
}

static void take_header(const char *line, size_t n, const char *name, char **out)
{
    size_t k = strlen(name);
    if (n <= k || strncasecmp(line, name, k)) return;
    while (k < n && strchr(" \t", line[k]))
        k++;
    while (n > k && strchr("\r\n", line[n - 1]))
        n--;
    free(*out);
    *out = mem_printf("%.*s", (int)(n - k), line + k);
}

static size_t take_headers(char *line, size_t one, size_t n, void *user)
{
    exchange *e = user;
    take_header(line, one * n, "etag:", &e->etag);
    take_header(line, one * n, "x-error-message:", &e->message);
    return one * n;
}

static void exchange_free(exchange *e)
{
    buffer_free(&e->text);
    free(e->etag);
    free(e->message);
}

/* Adds a line "NAME: VALUE" to a list of headers. */
static struct curl_slist *add_header(struct curl_slist *list, const char *name, const char *value)
{
    char *line = mem_printf("%s: %s", name, value);
    list = curl_slist_append(list, line);
    free(line);
    return list;
}

/* One request to one URL; the status is NRL_OK if there was an answer. */
static nrl_status request_once(hub_client *c, const char *url, bool with_token, exchange *e)
{
    char why[CURL_ERROR_SIZE] = "", range[32];
    struct curl_slist *headers = NULL;
    CURL *h = e->curl = c->curl;
    curl_easy_reset(h);
    buffer_free(&e->text);
    curl_easy_setopt(h, CURLOPT_URL, url);
    curl_easy_setopt(h, CURLOPT_ERRORBUFFER, why);
    curl_easy_setopt(h, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(h, CURLOPT_USERAGENT, "nrl/" NRL_VERSION);
    curl_easy_setopt(h, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_SECONDS);
    curl_easy_setopt(h, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(h, CURLOPT_LOW_SPEED_TIME, c->stall_seconds);
    curl_easy_setopt(h, CURLOPT_WRITEFUNCTION, take_body);
    curl_easy_setopt(h, CURLOPT_WRITEDATA, e);
    curl_easy_setopt(h, CURLOPT_HEADERFUNCTION, take_headers);
    curl_easy_setopt(h, CURLOPT_HEADERDATA, e);
    if (!strncmp(url, "http:", 5)) curl_easy_setopt(h, CURLOPT_PROXY, ""); /* a server on this machine */
    if (with_token && c->token) {
        curl_easy_setopt(h, CURLOPT_HTTPAUTH, CURLAUTH_BEARER);
        curl_easy_setopt(h, CURLOPT_XOAUTH2_BEARER, c->token);
    }
    snprintf(range, sizeof range, "%lld-", (long long)e->begin);
    if (e->begin) curl_easy_setopt(h, CURLOPT_RANGE, range);
    if (e->from) {
        if (fseeko(e->from, (off_t)e->from_at, SEEK_SET)) return e->disk = disk_fail(e->name, errno);
        curl_easy_setopt(h, CURLOPT_UPLOAD, 1L);
        curl_easy_setopt(h, CURLOPT_READDATA, e->from);
        curl_easy_setopt(h, CURLOPT_INFILESIZE_LARGE, (curl_off_t)e->n_from);
    } else if (e->body) {
        curl_easy_setopt(h, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)strlen(e->body));
        curl_easy_setopt(h, CURLOPT_POSTFIELDS, e->body);
        headers = add_header(headers, "Content-Type", e->body_type);
        headers = add_header(headers, "Accept", e->body_type); /* LFS asks for its own type; others ignore it */
    }
    for (size_t i = 0; i < nrl_node_size(e->headers); i++)
        headers = add_header(headers, nrl_node_key(e->headers, i), nrl_node_string(nrl_node_at(e->headers, i), ""));
    curl_easy_setopt(h, CURLOPT_HTTPHEADER, headers);
    CURLcode code = curl_easy_perform(h);
    curl_easy_getinfo(h, CURLINFO_RESPONSE_CODE, &e->code);
    c->code = e->code;
    curl_slist_free_all(headers);
    if (e->disk != NRL_OK) return e->disk;
    e->is_absent = !c->reached && (code == CURLE_COULDNT_CONNECT || code == CURLE_COULDNT_RESOLVE_HOST);
    c->reached |= code == CURLE_OK;
    if (code == CURLE_OK) return NRL_OK;
    return nrl_fail(NRL_ERR_IO, "%s", *why ? why : curl_easy_strerror(code));
}

/* Follows redirects. */
static nrl_status request(hub_client *c, const hub_subject *about, const char *url, bool with_token, exchange *e)
{
    char *at = mem_strdup(url), *next;
    nrl_status st = NRL_OK;
    for (int n = 0; st == NRL_OK; n++) {
        bool own;
        if (!may_request(c, at, &own))
            st = nrl_fail(NRL_ERR_CONFIG, "%s: the server refers to '%.200s'; expected https", about->what, at);
        else if (n > MAX_REDIRECTS)
            st = nrl_fail(NRL_ERR_IO, "%s: more than %d redirects", about->what, (int)MAX_REDIRECTS);
        else
            st = request_once(c, at, with_token && own, e);
        if (st != NRL_OK || e->code < 300 || e->code >= 400) break;
        if (curl_easy_getinfo(c->curl, CURLINFO_REDIRECT_URL, &next) || !next) break;
        next = mem_strdup(next);
        free(at);
        at = next;
    }
    free(at);
    return st;
}

/* ---- errors ---- */

static nrl_status answer_error(const hub_client *c, const hub_subject *about, const exchange *e)
{
    const char *said = e->message ? e->message : "";
    const char *page = about->page ? about->page : c->endpoint;
    if (e->code == 401)
        return nrl_fail(NRL_ERR_CONFIG, "%s: the server asks for %s (401)%s%s\nhint: %s%s%s", about->what,
                        c->token ? "another token" : "a token, or does not have it", *said ? ": " : "", said,
                        c->token ? "the token is that of " : "check the name; for a private or gated one set HF_TOKEN",
                        c->token ? c->token_at : "", c->token ? "; create one with read access, and set HF_TOKEN" : "");
    if (e->code == 403)
        return nrl_fail(NRL_ERR_CONFIG,
                        "%s: access is refused (403)%s%s\nhint: its terms may have to be accepted at %s", about->what,
                        *said ? ": " : "", said, page);
    if (e->code == 404)
        return nrl_fail(NRL_ERR_CONFIG, "%s: not found at %s (404)%s%s", about->what, c->endpoint, *said ? ": " : "",
                        said);
    return nrl_fail(NRL_ERR_IO, "%s: the server answered %ld%s%s", about->what, e->code, *said ? ": " : "", said);
}

static bool is_passing(nrl_status st, long code)
{
    return st == NRL_ERR_IO || (st == NRL_OK && (code == 429 || code >= 500));
}

/* Repeats a request that failed for a reason that may pass; a download that made progress counts as the first try. */
static nrl_status request_patiently(hub_client *c, const hub_subject *about, const char *url, bool with_token,
                                    exchange *e)
{
    int64_t begin = e->begin;
    for (int n = 1;; n++) {
        nrl_status st = request(c, about, url, with_token, e);
        bool failed = e->disk == NRL_OK && is_passing(st, e->code);
        if (!failed && st != NRL_OK) return st;
        if (!failed && (e->code < 200 || e->code >= 300) && !(e->code == 416 && e->begin))
            return answer_error(c, about, e);
        if (!failed) return NRL_OK;
        if (e->at > begin) n = 1;
        begin = e->at;
        if (n >= TRIES && st == NRL_OK) return answer_error(c, about, e);
        if (n >= TRIES || e->is_absent) return nrl_fail(NRL_ERR_IO, "%s: %s", about->what, nrl_error_text());
        struct timespec wait = {.tv_sec = n > 1 ? 1 << (n - 2) : 0, .tv_nsec = n > 1 ? 0 : 200000000};
        nanosleep(&wait, NULL);
        e->begin = e->at;
    }
}

/* ---- requests of the API ---- */

nrl_status hub_client_json(hub_client *c, const hub_subject *about, const char *path, const char *body,
                           const char *body_type, arena *a, nrl_node **answer)
{
    exchange e = {.fd = -1, .body = body, .body_type = body_type};
    char *url = mem_printf("%s/%s", c->endpoint, path);
    nrl_status st = request_patiently(c, about, url, true, &e);
    const char *source = arena_printf(a, "the answer of %s", c->endpoint);
    if (st == NRL_OK && json_parse(a, source, e.text.text ? e.text.text : "", e.text.size, answer) != NRL_OK) {
        nrl_add_context("%s", about->what);
        st = NRL_ERR_IO;
    }
    exchange_free(&e);
    free(url);
    return st;
}

nrl_status hub_client_download(hub_client *c, const hub_subject *about, const char *path, int fd, const char *name,
                               int64_t begin, int64_t size)
{
    exchange e = {.fd = fd, .name = name, .begin = begin, .most = size, .at = begin};
    char *url = mem_printf("%s/%s", c->endpoint, path);
    nrl_status st = request_patiently(c, about, url, true, &e);
    if (st == NRL_OK && e.at != size)
        st = nrl_fail(NRL_ERR_CORRUPT, "%s: the server sent %lld bytes; expected %lld", about->what, (long long)e.at,
                      (long long)size);
    exchange_free(&e);
    free(url);
    return st;
}

nrl_status hub_client_put(hub_client *c, const hub_subject *about, const char *url, const char *file, int64_t begin,
                          int64_t size, arena *a, const char **etag)
{
    exchange e = {.fd = -1, .name = file, .from = fopen(file, "rbe"), .from_at = begin, .n_from = size};
    if (!e.from) return disk_fail(file, errno);
    nrl_status st = request_patiently(c, about, url, false, &e);
    if (etag) *etag = arena_strdup(a, e.etag ? e.etag : "");
    fclose(e.from);
    exchange_free(&e);
    return st;
}

nrl_status hub_client_post(hub_client *c, const hub_subject *about, const char *url, const nrl_node *headers,
                           const char *body, const char *body_type)
{
    exchange e = {.fd = -1, .body = body, .body_type = body_type, .headers = headers};
    nrl_status st = request_patiently(c, about, url, true, &e);
    exchange_free(&e);
    return st;
}
