/*
 * report_page.c - the page: a table of the runs, their differences, charts, configs. It is a single
 * file and contains no script.
 */
#include "report.h"
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static const char style[] =
    ":root{color-scheme:light dark;--ink:#1b1f24;--soft:#656d76;--line:#d0d7de;--paper:#fff}"
    "@media(prefers-color-scheme:dark){:root{--ink:#e6edf3;--soft:#8d96a0;--line:#30363d;--paper:#0d1117}}"
    "body{font:15px/1.45 system-ui,sans-serif;color:var(--ink);background:var(--paper);margin:2em "
    "auto;max-width:1200px;padding:0 1em}"
    "table{border-collapse:collapse;margin:1em 0;display:block;overflow-x:auto}"
    "th,td{padding:.25em .8em;border-bottom:1px solid var(--line);text-align:right;white-space:nowrap}"
    "th:first-child,td:first-child,.left td{text-align:left}"
    ".charts{display:grid;grid-template-columns:repeat(auto-fill,minmax(380px,1fr));gap:1em}"
    "figure{margin:0}figcaption{font-weight:600}svg{width:100%;height:auto}"
    "svg text{font-size:11px;fill:var(--soft)}.grid{stroke:var(--line)}"
    "polyline{fill:none;stroke-width:1.5;stroke-linejoin:round}.mark{stroke-width:2}"
    "pre{overflow-x:auto;border:1px solid var(--line);padding:1em}.soft{color:var(--soft)}"
    ".dot{display:inline-block;width:.8em;height:.8em;border-radius:50%;margin-right:.4em}";

static const char *const colors[] = {"#1f77b4", "#d62728", "#2ca02c", "#ff7f0e",
                                     "#9467bd", "#17becf", "#e377c2", "#8c564b"};

static void add_style(buffer *out)
{
    buffer_print(out, "<style>%s", style);
    for (size_t i = 0; i < sizeof colors / sizeof *colors; i++)
        buffer_print(out, ".c%zu{stroke:%s}circle.c%zu{fill:%s}.dot.c%zu{background:%s}", i, colors[i], i, colors[i], i,
                     colors[i]);
    buffer_puts(out, "</style>\n");
}

/* ---- text ---- */

/* The length of the valid UTF-8 character at s, 0 if there is none. */
static size_t character(const unsigned char *s)
{
    size_t n = *s < 0x80 ? 1 : *s >= 0xc2 && *s < 0xe0 ? 2 : (*s & 0xf0) == 0xe0 ? 3 : *s >= 0xf0 && *s < 0xf5 ? 4 : 0;
    for (size_t i = 1; i < n; i++)
        if ((s[i] & 0xc0) != 0x80) return 0;
    if (n == 1 && *s < ' ' && *s != '\n' && *s != '\t') return 0;
    return n;
}

void report_text(buffer *out, const char *text)
{
    for (const char *c = text; *c;) {
        size_t n = character((const unsigned char *)c);
        const char *as = *c == '<' ? "&lt;" : *c == '>' ? "&gt;" : *c == '&' ? "&amp;" : *c == '"' ? "&quot;" : NULL;
        if (as)
            buffer_puts(out, as);
        else if (n)
            buffer_add(out, c, n);
        else
            buffer_puts(out, "\xEF\xBF\xBD");
        c += n ? n : 1;
    }
}

void report_run_name(buffer *out, const report_run *r, size_t i)
{
    buffer_print(out, "<span class=\"dot c%d\"></span>", report_color(i));
    report_text(out, r->name);
}

static void add_time(buffer *out, double seconds)
{
    char text[40] = "";
    struct tm utc;
    time_t t = isfinite(seconds) && fabs(seconds) < 1e11 ? (time_t)seconds : 0;
    if (t > 0 && gmtime_r(&t, &utc)) strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &utc);
    buffer_print(out, "<td>%s</td>", text);
}

static void add_duration(buffer *out, double seconds)
{
    long long s = isfinite(seconds) && seconds > 0 && seconds < 1e12 ? (long long)seconds : 0;
    buffer_print(out, "<td>%lld:%02lld:%02lld</td>", s / 3600, s / 60 % 60, s % 60);
}

/* ---- the table of runs ---- */

typedef enum { LAST, LEAST, MOST, MEAN } pick;

static void add_number(buffer *out, const report_run *r, const char *name, pick how, double scale)
{
    char text[32];
    const report_series *s = report_find(r, name);
    if (!s || !s->n) {
        buffer_puts(out, "<td></td>");
        return;
    }
    double v = s->points[s->n - 1].value, sum = 0;
    for (size_t i = 0; i < s->n; i++) {
        double x = s->points[i].value;
        sum += x;
        if ((how == LEAST && x < v) || (how == MOST && x > v)) v = x;
    }
    v = (how == MEAN ? sum / (double)s->n : v) * scale;
    if (fabs(v) < 1e4)
        buffer_print(out, "<td>%.5g</td>", v);
    else
        buffer_print(out, "<td>%s</td>", report_number(v, text));
}

static void add_runs(buffer *out, const report_run *runs, size_t n)
{
    buffer_puts(out, "<table><tr><th>run</th><th>steps</th><th>begin (UTC)</th><th>duration</th><th>loss, last</th>"
                     "<th>eval loss, least</th><th>eval loss, last</th><th>tok/s, mean</th><th>memory, GiB</th>"
                     "<th>tokens</th><th>checkpoints</th></tr>\n");
    for (size_t i = 0; i < n; i++) {
        const report_run *r = &runs[i];
        buffer_puts(out, "<tr><td>");
        report_run_name(out, r, i);
        buffer_print(out, "</td><td>%.0f</td>", r->last_step);
        add_time(out, r->first_time);
        add_duration(out, r->last_time - r->first_time);
        add_number(out, r, "loss", LAST, 1);
        add_number(out, r, "eval_loss", LEAST, 1);
        add_number(out, r, "eval_loss", LAST, 1);
        add_number(out, r, "tokens_per_s", MEAN, 1);
        add_number(out, r, "mem_bytes", MOST, 1.0 / (1 << 30));
        add_number(out, r, "tokens", LAST, 1);
        buffer_print(out, "<td>%zu</td></tr>\n", r->n_checkpoints);
    }
    buffer_puts(out, "</table>\n");
}

/* ---- charts and configs ---- */

static const char *const first_charts[] = {
    "loss", "eval_loss", "lr", "grad_norm", "tokens_per_s", "mfu", "mem_bytes", "data_fraction", "comm_fraction"};
enum { N_FIRST = sizeof first_charts / sizeof *first_charts };

/* Increases with the step, is equal in all runs, or is already in the table. */
static bool is_dull(const char *name)
{
    static const char *const dull[] = {"epoch", "tokens", "mem_total_bytes", "eval_tokens", "exported_step"};
    for (size_t i = 0; i < sizeof dull / sizeof *dull; i++)
        if (!strcmp(name, dull[i])) return true;
    for (size_t i = 0; i < N_FIRST; i++)
        if (!strcmp(name, first_charts[i])) return true;
    return false;
}

static bool is_drawn(const report_run *runs, size_t run, const char *name)
{
    for (size_t i = 0; i < run; i++)
        if (report_find(&runs[i], name)) return true;
    return false;
}

static void add_charts(buffer *out, const report_run *runs, size_t n)
{
    buffer_puts(out, "<div class=\"charts\">\n");
    for (size_t i = 0; i < N_FIRST; i++)
        if (is_drawn(runs, n, first_charts[i])) report_chart(out, runs, n, first_charts[i]);
    for (size_t r = 0; r < n; r++)
        for (size_t i = 0; i < runs[r].n_series; i++) {
            const char *name = runs[r].series[i].name;
            if (!is_dull(name) && !is_drawn(runs, r, name)) report_chart(out, runs, n, name);
        }
    buffer_puts(out, "</div>\n");
}

static void add_configs(buffer *out, const report_run *runs, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (!runs[i].config_text) continue;
        buffer_puts(out, "<details><summary>");
        report_text(out, runs[i].dir);
        buffer_puts(out, "/config.yaml</summary><pre>");
        report_text(out, runs[i].config_text);
        buffer_puts(out, "</pre></details>\n");
    }
}

void report_page(buffer *out, const report_run *runs, size_t n)
{
    buffer_puts(out, "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\">"
                     "<meta name=\"viewport\" content=\"width=device-width\"><title>");
    for (size_t i = 0; i < n; i++) {
        if (i) buffer_puts(out, ", ");
        report_text(out, runs[i].name);
    }
    buffer_puts(out, "</title>\n");
    add_style(out);
    buffer_print(out, "<h1>%s</h1>\n", n > 1 ? "Runs" : "Run");
    add_runs(out, runs, n);
    report_differences(out, runs, n);
    add_charts(out, runs, n);
    add_configs(out, runs, n);
    buffer_print(out, "<p class=\"soft\">nrl %s; marks below the loss are checkpoints</p>\n</html>\n", NRL_VERSION);
}
