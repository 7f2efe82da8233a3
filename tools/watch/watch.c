/*
 * watch.c - `nrl watch RUN [--text]`: follows a run. Only reads its directory, so it works on runs of other users and
 * machines that share a disk, and on runs that have ended, were lost, or have no record yet.
 */
#include "watch.h"
#include "cli/common/cli.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { LOST_SECONDS = 60, LATE = 100, BAR = 30, LONGEST_LINE = 256 };

void watch_version(const watched *w, char text[64])
{
    struct stat s;
    *text = 0;
    if (!stat(w->records, &s))
        snprintf(text, 64, "%lld %lld.%09ld", (long long)s.st_size, (long long)s.st_mtim.tv_sec, s.st_mtim.tv_nsec);
}

double watch_total(const report_run *r)
{
    return nrl_node_f64(nrl_node_find(nrl_node_find(r->config, "train"), "steps"), 0);
}

/* Seconds between the newest records. */
static double pace(const report_run *r)
{
    const report_series *s = report_find(r, "loss");
    size_t n = s ? s->n : 0, from = n > LATE ? n - LATE : 0;
    return n - from > 1 ? (s->points[n - 1].time - s->points[from].time) / (double)(n - from - 1) : NAN;
}

const char *watch_state(arena *a, const report_run *r, double now)
{
    const double total = watch_total(r), quiet = now - r->last_time, step = pace(r);
    const report_series *end = report_find(r, "finished_step");
    if ((total > 0 && r->last_step >= total) || (end && end->n && end->points[end->n - 1].step >= r->last_step))
        return "finished";
    if (!(quiet > LOST_SECONDS) || (isfinite(step) && quiet < 20 * step)) return "running";
    return arena_printf(a, "no record for %.0f minute%s: stopped or lost; nrl resume continues it", quiet / 60,
                        quiet < 90 ? "" : "s");
}

/* ---- text ---- */

static double newest(const report_run *r, const char *name)
{
    const report_series *s = report_find(r, name);
    return s && s->n ? s->points[s->n - 1].value : NAN;
}

static double late_mean(const report_run *r, const char *name)
{
    const report_series *s = report_find(r, name);
    size_t n = s ? s->n : 0, from = n > LATE ? n - LATE : 0;
    double sum = 0;
    for (size_t i = from; i < n; i++)
        sum += s->points[i].value;
    return n ? sum / (double)(n - from) : NAN;
}

static void put_value(buffer *b, const char *label, double v, double scale, const char *unit)
{
    char text[32];
    if (isfinite(v))
        buffer_print(b, "%s%s %s%s", b->size && b->text[b->size - 1] != '\n' ? "  " : "", label,
                     report_number(v * scale, text), unit);
}

/* Lines about a run: `n_lines` of them. */
static void put_run(arena *a, buffer *b, const report_run *r, double now, bool is_terminal)
{
    const double total = watch_total(r), left = total > 0 ? (total - r->last_step) * pace(r) : NAN;
    const char *state = watch_state(a, r, now);
    buffer_print(b, "%s: %s", r->name, state);
    if (is_terminal && total > 0) {
        int full = (int)fmin(BAR * r->last_step / total, BAR);
        buffer_puts(b, "\n[");
        for (int i = 0; i < BAR; i++)
            buffer_puts(b, i < full ? "#" : ".");
        buffer_puts(b, "]");
    }
    buffer_print(b, " step %.0f", r->last_step);
    if (total > 0) buffer_print(b, "/%.0f", total);
    if (isfinite(left) && left > 0 && strcmp(state, "finished"))
        buffer_print(b, "  %lld:%02lld:%02lld left", (long long)left / 3600, (long long)left / 60 % 60,
                     (long long)left % 60);
    buffer_puts(b, is_terminal ? "\n" : "");
    put_value(b, "loss", newest(r, "loss"), 1, "");
    put_value(b, "mean of 100", late_mean(r, "loss"), 1, "");
    put_value(b, "eval loss", newest(r, "eval_loss"), 1, "");
    put_value(b, "grad norm", newest(r, "grad_norm"), 1, "");
    put_value(b, "lr", newest(r, "lr"), 1, "");
    buffer_puts(b, is_terminal ? "\n" : "");
    put_value(b, "tokens/s", late_mean(r, "tokens_per_s"), 1, "");
    put_value(b, "MFU", late_mean(r, "mfu"), 100, " %");
    put_value(b, "memory", newest(r, "mem_bytes"), 1 / 0x1p30, " GiB");
    put_value(b, "data", late_mean(r, "data_fraction"), 100, " %");
    put_value(b, "ranks", late_mean(r, "comm_fraction"), 100, " %");
    buffer_puts(b, "\n");
}

/* Cuts lines to the terminal's width, so that each takes one row; returns how many there are. */
static int print_in_place(const char *text, int before)
{
    struct winsize size = {0};
    int width = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) || size.ws_col < 20 ? 80 : size.ws_col, n = 0;
    if (before) printf("\033[%dA", before);
    for (; *text; n++) {
        int line = (int)strcspn(text, "\n");
        cli_page("%.*s", line < width ? line : width - 1, text);
        printf("\033[K\n");
        text += line + (text[line] == '\n');
    }
    return n;
}

static nrl_status follow(const watched *w, const sigset_t *signals)
{
    const bool terminal = isatty(STDOUT_FILENO);
    char version[64], last[64] = "none";
    int rows = 0;
    for (bool over = false; !over;) {
        arena a = {0};
        report_run r = {0};
        buffer text = {0};
        const struct timespec second = {.tv_sec = 1};
        watch_version(w, version);
        nrl_status st = report_read(&a, w->dir, &r);
        if (st != NRL_OK && *version && !r.n_records && st != NRL_ERR_DATA) return st;
        if (st != NRL_OK && r.n_records) return st; /* a record that cannot be read */
        /* A run that writes nothing more is lost after a while. */
        over = st == NRL_OK && strcmp(watch_state(&a, &r, (double)time(NULL)), "running") != 0;
        if (terminal || over || strcmp(version, last)) {
            if (st == NRL_OK)
                put_run(&a, &text, &r, (double)time(NULL), terminal);
            else
                buffer_print(&text, "%s: no record yet\n", w->dir);
            if (terminal)
                rows = print_in_place(text.text, rows);
            else
                cli_print(text.text);
            fflush(stdout);
            snprintf(last, sizeof last, "%s", version);
        }
        report_free(&r);
        buffer_free(&text);
        arena_free(&a);
        if (!over && sigtimedwait(signals, NULL, &second) >= 0) over = true;
    }
    return NRL_OK;
}

/* ---- the verb ---- */

#ifndef WATCH_HAS_SERVER
nrl_status watch_serve(const watched *w, int64_t port, const sigset_t *signals)
{
    (void)port;
    (void)signals;
    return nrl_fail(NRL_ERR_CONFIG,
                    "cannot serve the page of the run: this nrl was built without libmicrohttpd\n"
                    "hint: nrl watch %s --text",
                    w->dir);
}
#endif

static nrl_status watch_verb(int argc, char **argv)
{
    arena a = {0};
    sigset_t signals;
    struct stat s;
    const char *port_text;
    char *end = NULL;
    bool text = cli_take_flag(&argc, argv, "--text");
    NRL_TRY(cli_take_value(&argc, argv, "--port", &port_text));
    NRL_TRY(cli_expect(argc, argv, 1, 1));
    long long port = port_text ? strtoll(port_text, &end, 10) : 6060;
    if (port_text && (*end || end == port_text || port < 0 || port > 65535))
        return nrl_fail(NRL_ERR_CONFIG, "--port: '%s'; expected a number from 0 to 65535", port_text);
    if (stat(argv[1], &s) || !S_ISDIR(s.st_mode))
        return nrl_fail(NRL_ERR_CONFIG, "%s: %s\nhint: expected the directory of a run", argv[1],
                        errno == ENOENT ? "no such directory" : "not a directory");
    watched w = {argv[1], arena_printf(&a, "%s/metrics.jsonl", argv[1])};
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    sigprocmask(SIG_BLOCK, &signals, NULL); /* threads of the server inherit this */
    nrl_status st = text ? follow(&w, &signals) : watch_serve(&w, port, &signals);
    arena_free(&a);
    return st;
}

int main(int argc, char **argv)
{
    return cli_tool_main(argc, argv, "watch", watch_verb);
}
