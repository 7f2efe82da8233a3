/*
 * watch_serve.c - the report of a run at http://127.0.0.1:PORT/, which asks every two seconds for /version and draws
 * itself again when that has changed. Only the loopback interface, and only requests that name it: a page of another
 * site cannot read the run by a name of its own.
 */
#include "watch.h"
#include "cli/common/cli.h"
#include "cli/common/http_host.h"
#include <arpa/inet.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { CONNECTIONS = 32, IDLE_SECONDS = 60 };

/* A page with other charts than before is loaded again; otherwise its numbers are replaced. */
static const char live[] =
    "<script>\n"
    "let seen = null;\n"
    "async function look() {\n"
    "  try {\n"
    "    const version = await (await fetch('version')).text();\n"
    "    if (seen !== null && version !== seen) {\n"
    "      const page = new DOMParser().parseFromString(await (await fetch('.')).text(), 'text/html');\n"
    "      const text = page.getElementById('data');\n"
    "      if (!text || typeof data === 'undefined') return location.reload();\n"
    "      const next = JSON.parse(text.textContent);\n"
    "      if (next.charts.map(c => c.name).join() !== data.charts.map(c => c.name).join()) return location.reload();\n"
    "      data.runs = next.runs, data.charts = next.charts;\n"
    "      const open = [...document.querySelectorAll('#summary details')].map(d => d.open);\n"
    "      document.getElementById('summary').replaceWith(page.getElementById('summary'));\n"
    "      document.querySelectorAll('#summary details').forEach((d, i) => { d.open = open[i]; });\n"
    "      redraw();\n"
    "    }\n"
    "    seen = version;\n"
    "    document.title = document.title.replace(/ \\(not updated\\)$/, '');\n"
    "  } catch (e) { if (!/not updated/.test(document.title)) document.title += ' (not updated)'; }\n"
    "  setTimeout(look, 2000);\n"
    "}\n"
    "look();\n"
    "</script>\n";

static void put_waiting(buffer *b, const watched *w)
{
    buffer_puts(b, "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" "
                   "content=\"width=device-width,initial-scale=1\"><title>");
    report_text(b, w->dir);
    buffer_puts(b, "</title><style>:root{color-scheme:light dark}body{font:15px/1.45 "
                   "system-ui,sans-serif;margin:1.5em;overflow-wrap:anywhere}</style><h1>");
    report_text(b, w->dir);
    buffer_puts(b, "</h1><p>");
    report_text(b, nrl_error_text());
    buffer_puts(b, "</p>\n");
}

static void put_page(buffer *b, const watched *w)
{
    arena a = {0};
    report_run r = {0};
    if (report_read(&a, w->dir, &r) == NRL_OK)
        report_page(b, &r, 1, watch_state(&a, &r, (double)time(NULL)), NULL);
    else
        put_waiting(b, w);
    buffer_puts(b, live);
    report_free(&r);
    arena_free(&a);
}

static enum MHD_Result answer(struct MHD_Connection *c, unsigned status, const char *type, buffer *b)
{
    const size_t size = b->size;
    struct MHD_Response *r = MHD_create_response_from_buffer(size, buffer_take(b), MHD_RESPMEM_MUST_FREE);
    if (!r) return MHD_NO;
    MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    MHD_add_response_header(r, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
    enum MHD_Result done = MHD_queue_response(c, status, r);
    MHD_destroy_response(r);
    return done;
}

static enum MHD_Result handle(void *user, struct MHD_Connection *c, const char *path, const char *method,
                              const char *version, const char *body, size_t *size, void **own)
{
    const watched *w = user;
    buffer b = {0};
    char text[64];
    (void)version;
    (void)body;
    (void)own;
    *size = 0;
    const char *host = MHD_lookup_connection_value(c, MHD_HEADER_KIND, MHD_HTTP_HEADER_HOST);
    if (strcmp(method, "GET") != 0 || !http_host_is_loopback(host)) {
        buffer_puts(&b, "only GET, at 127.0.0.1 or localhost\n");
        return answer(c, MHD_HTTP_FORBIDDEN, "text/plain", &b);
    }
    if (!strcmp(path, "/version")) {
        watch_version(w, text);
        buffer_puts(&b, *text ? text : "none");
        return answer(c, MHD_HTTP_OK, "text/plain", &b);
    }
    if (strcmp(path, "/") != 0) {
        buffer_puts(&b, "there are / and /version\n");
        return answer(c, MHD_HTTP_NOT_FOUND, "text/plain", &b);
    }
    put_page(&b, w);
    return answer(c, MHD_HTTP_OK, "text/html; charset=utf-8", &b);
}

nrl_status watch_serve(const watched *w, int64_t port, const sigset_t *signals)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct MHD_Daemon *daemon =
        MHD_start_daemon(MHD_USE_AUTO | MHD_USE_INTERNAL_POLLING_THREAD, (uint16_t)port, NULL, NULL, handle, (void *)w,
                         MHD_OPTION_SOCK_ADDR, &address, MHD_OPTION_CONNECTION_LIMIT, (unsigned)CONNECTIONS,
                         MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)IDLE_SECONDS, MHD_OPTION_END);
    if (!daemon)
        return nrl_fail(NRL_ERR_IO, "cannot listen at 127.0.0.1 port %lld\nhint: --port 0 takes a free port",
                        (long long)port);
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(daemon, MHD_DAEMON_INFO_BIND_PORT);
    cli_page("http://127.0.0.1:%u/ shows %s; Ctrl-C ends\n", info ? (unsigned)info->port : (unsigned)port, w->dir);
    fflush(stdout);
    while (sigwaitinfo(signals, NULL) < 0)
        continue;
    MHD_stop_daemon(daemon);
    return NRL_OK;
}
