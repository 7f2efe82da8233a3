/*
 * report_page.c - the page: figures of the runs, where the time of a step goes, what differs, charts, configs. It is a
 * single file that loads nothing; report.js inside of it draws the charts.
 */
#include "report.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char style[] =
    ":root{color-scheme:light dark;--ink:#1b1f24;--soft:#656d76;--line:#d0d7de;--paper:#fff;--box:#f6f8fa}"
    "@media(prefers-color-scheme:dark){:root{--ink:#e6edf3;--soft:#8d96a0;--line:#30363d;--paper:#0d1117;--box:#161b22}"
    "}"
    "*{box-sizing:border-box}"
    "body{font:15px/1.45 system-ui,sans-serif;color:var(--ink);background:var(--paper);margin:1.5em "
    "auto;max-width:1240px;padding:0 1em}"
    "h1{font-size:1.5em;margin:0 0 .4em;overflow-wrap:anywhere}h2{font-size:1.15em;margin:1.6em 0 .4em}"
    "table{border-collapse:collapse;margin:.6em 0;display:block;overflow-x:auto}"
    "th,td{padding:.2em .9em .2em 0;border-bottom:1px solid var(--line);text-align:right;overflow-wrap:anywhere}"
    "th:first-child,td:first-child{text-align:left}td:first-child{color:var(--soft)}"
    ".controls{position:sticky;top:0;background:var(--paper);padding:.5em 0;display:flex;flex-wrap:wrap;gap:.4em "
    "1.4em;z-index:2;border-bottom:1px solid var(--line)}"
    ".charts{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(380px,100%),1fr));gap:1.2em;margin-top:1em}"
    "figure{margin:0;position:relative;min-width:0}figcaption{font-weight:600;overflow-wrap:anywhere}"
    ".plot{touch-action:pan-y}svg{display:block;max-width:100%}"
    "svg text{font-size:11px;fill:var(--soft)}.grid{stroke:var(--line)}.cursor{stroke:var(--soft)}"
    "polyline{fill:none;stroke-width:1.5;stroke-linejoin:round}.mark{stroke-width:2}.faint{opacity:.25}"
    ".eval{stroke-dasharray:5 3}"
    ".tip{position:absolute;top:2em;visibility:hidden;background:var(--box);border:1px solid "
    "var(--line);padding:.3em .6em;font-size:12px;pointer-events:none;max-width:100%}"
    "td.text{text-align:left;white-space:pre-wrap;min-width:14em;max-width:34em;vertical-align:top}"
    "caption{text-align:left;color:var(--soft)}input[type=range]{vertical-align:middle;width:20em;max-width:60%}"
    "pre{overflow-x:auto;border:1px solid var(--line);padding:1em}.soft{color:var(--soft)}"
    ".bar{display:flex;height:1.3em;max-width:40em;border-radius:3px;overflow:hidden;margin:.2em 0 .6em}"
    ".bar span{display:block;height:100%}"
    ".part,.values td:nth-child(n+2),.values th{white-space:nowrap;overflow-wrap:normal}"
    ".dot{display:inline-block;width:.8em;height:.8em;border-radius:50%;margin-right:.4em}";

static const char script[] = {
#include "report.js.inc"
};

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

/* ---- figures of the runs: a row each, a column for each run, so that the table is narrow ---- */

typedef enum { LAST, LATE_MEAN, LEAST, MOST } pick;
enum { LATE = 100 }; /* points of LATE_MEAN */

static double pick_value(const report_series *s, pick how)
{
    const report_point *p = s->points;
    size_t from = how == LATE_MEAN && s->n > LATE ? s->n - LATE : 0;
    double v = p[s->n - 1].value, sum = 0;
    if (how == LAST) return v;
    for (size_t i = from; i < s->n; i++) {
        sum += p[i].value;
        if ((how == LEAST && p[i].value < v) || (how == MOST && p[i].value > v)) v = p[i].value;
    }
    return how == LATE_MEAN ? sum / (double)(s->n - from) : v;
}

static const char *value_text(const char *name, double v, char text[32])
{
    size_t n = strlen(name);
    if (n > 6 && !strcmp(name + n - 6, "_bytes")) {
        double gib = v / (1 << 30);
        snprintf(text, 32, gib < 1 ? "%.4g MiB" : "%.4g GiB", gib < 1 ? gib * 1024 : gib);
    } else if (!strcmp(name, "mfu")) {
        snprintf(text, 32, "%.3g %%", 100 * v);
    } else {
        report_number(v, text);
    }
    return text;
}

static bool has_series(const report_run *runs, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++) {
        const report_series *s = report_find(&runs[i], name);
        if (s && s->n) return true;
    }
    return false;
}

static void add_figure(buffer *out, const report_run *runs, size_t n, const char *label, const char *name, pick how)
{
    char text[32];
    if (!has_series(runs, n, name)) return;
    buffer_print(out, "<tr><td>%s</td>", label);
    for (size_t i = 0; i < n; i++) {
        const report_series *s = report_find(&runs[i], name);
        buffer_print(out, "<td>%s</td>", s && s->n ? value_text(name, pick_value(s, how), text) : "");
    }
    buffer_puts(out, "</tr>\n");
}

static const char *time_text(double seconds, char text[32])
{
    struct tm utc;
    time_t t = isfinite(seconds) && fabs(seconds) < 1e11 ? (time_t)seconds : 0;
    *text = 0;
    if (t > 0 && gmtime_r(&t, &utc)) strftime(text, 32, "%Y-%m-%d %H:%M:%S", &utc);
    return text;
}

static const char *duration_text(double seconds, char text[32])
{
    long long s = isfinite(seconds) && seconds > 0 && seconds < 1e12 ? (long long)seconds : 0;
    snprintf(text, 32, "%lld:%02lld:%02lld", s / 3600, s / 60 % 60, s % 60);
    return text;
}

static void add_runs(buffer *out, const report_run *runs, size_t n)
{
    char text[32];
    buffer_puts(out, "<table><tr><th></th>");
    for (size_t i = 0; i < n; i++) {
        buffer_puts(out, "<th>");
        report_run_name(out, &runs[i], i);
        buffer_puts(out, "</th>");
    }
    buffer_puts(out, "</tr>\n<tr><td>steps</td>");
    for (size_t i = 0; i < n; i++)
        buffer_print(out, "<td>%.0f</td>", runs[i].last_step);
    buffer_puts(out, "</tr>\n<tr><td>begin (UTC)</td>");
    for (size_t i = 0; i < n; i++)
        buffer_print(out, "<td>%s</td>", time_text(runs[i].first_time, text));
    buffer_puts(out, "</tr>\n<tr><td>duration</td>");
    for (size_t i = 0; i < n; i++)
        buffer_print(out, "<td>%s</td>", duration_text(runs[i].last_time - runs[i].first_time, text));
    buffer_puts(out, "</tr>\n");
    add_figure(out, runs, n, "loss, last", "loss", LAST);
    add_figure(out, runs, n, "loss, mean of the last 100 steps", "loss", LATE_MEAN);
    add_figure(out, runs, n, "loss, least", "loss", LEAST);
    add_figure(out, runs, n, "eval loss, last", "eval_loss", LAST);
    add_figure(out, runs, n, "eval loss, least", "eval_loss", LEAST);
    add_figure(out, runs, n, "tokens/s, last", "tokens_per_s", LAST);
    add_figure(out, runs, n, "tokens/s, mean of the last 100 steps", "tokens_per_s", LATE_MEAN);
    add_figure(out, runs, n, "tokens/s, most", "tokens_per_s", MOST);
    add_figure(out, runs, n, "MFU, mean of the last 100 steps", "mfu", LATE_MEAN);
    add_figure(out, runs, n, "memory, most", "mem_bytes", MOST);
    add_figure(out, runs, n, "tokens", "tokens", LAST);
    buffer_puts(out, "<tr><td>checkpoints</td>");
    for (size_t i = 0; i < n; i++)
        buffer_print(out, "<td>%zu</td>", runs[i].n_checkpoints);
    bool restarted = false;
    for (size_t i = 0; i < n; i++)
        restarted = restarted || runs[i].n_restarts;
    if (restarted) buffer_puts(out, "</tr>\n<tr><td>restarts after a lost rank</td>");
    for (size_t i = 0; restarted && i < n; i++)
        buffer_print(out, "<td>%zu</td>", runs[i].n_restarts);
    buffer_puts(out, "</tr></table>\n");
}

/* The first step at which two runs have different losses. */
static void add_first_difference(buffer *out, const report_run *runs, size_t n)
{
    for (size_t r = 1; r < n; r++) {
        const report_series *a = report_find(&runs[0], "loss"), *b = report_find(&runs[r], "loss");
        size_t i = 0, both = a && b ? (a->n < b->n ? a->n : b->n) : 0;
        while (i < both && a->points[i].step == b->points[i].step && a->points[i].value == b->points[i].value)
            i++;
        if (!both) continue;
        buffer_puts(out, "<p>");
        report_run_name(out, &runs[r], r);
        if (i == both)
            buffer_print(out, " has the same losses as the first run in all %zu common steps.</p>\n", both);
        else
            buffer_print(out, " has different losses than the first run from step %.0f on.</p>\n", b->points[i].step);
    }
}

/* ---- where the time of a step goes ---- */

static double mean_of(const report_run *r, const char *name)
{
    const report_series *s = report_find(r, name);
    return s && s->n ? pick_value(s, LATE_MEAN) : NAN;
}

static double sum_of(const report_run *r, const char *name)
{
    const report_series *s = report_find(r, name);
    double sum = 0;
    for (size_t i = 0; s && i < s->n; i++)
        sum += s->points[i].value;
    return sum;
}

static void add_part(buffer *bar, buffer *words, const char *name, const char *color, double share)
{
    if (!(share > 0)) return;
    buffer_print(bar, "<span style=\"width:%.2f%%;background:%s\"></span>", 100 * share, color);
    buffer_print(words, "%s<span class=\"part\"><span class=\"dot\" style=\"background:%s\"></span>%s %.1f %%</span>",
                 words->size ? " &nbsp; " : "", color, name, 100 * share);
}

static void add_time_of_step(buffer *out, const report_run *runs, size_t n)
{
    bool begun = false;
    for (size_t i = 0; i < n; i++) {
        const report_run *r = &runs[i];
        buffer bar = {0}, words = {0};
        double data = mean_of(r, "data_fraction"), comm = mean_of(r, "comm_fraction");
        double stall = sum_of(r, "save_stall_s") / fmax(r->last_time - r->first_time, 1e-9);
        if (!isfinite(data)) continue;
        if (!isfinite(comm)) comm = 0;
        if (!begun) buffer_puts(out, "<h2>Where the time of a step goes</h2>\n");
        begun = true;
        if (n > 1) report_run_name(out, r, i);
        add_part(&bar, &words, "computing", "#2ca02c", fmax(1 - data - comm, 0));
        add_part(&bar, &words, "waiting for data", "#ff7f0e", data);
        add_part(&bar, &words, "waiting for other ranks", "#9467bd", comm);
        buffer_print(out, "<div class=\"bar\">%s</div><div>%s", bar.size ? bar.text : "", words.size ? words.text : "");
        if (stall > 0.001) buffer_print(out, " &nbsp; saves stopped the run for %.1f %% of its time", 100 * stall);
        buffer_puts(out, "</div>\n");
        buffer_free(&bar);
        buffer_free(&words);
    }
}

/* ---- charts ---- */

static const char *const first_charts[] = {"loss", "lr", "grad_norm", "tokens_per_s", "mfu", "mem_bytes"};
enum { N_FIRST = sizeof first_charts / sizeof *first_charts };

/* Increases with the step, or is in another part of the page. */
static bool is_dull(const char *name)
{
    static const char *const dull[] = {"epoch",         "tokens",        "mem_total_bytes", "eval_tokens",
                                       "exported_step", "finished_step", "data_fraction",   "comm_fraction"};
    for (size_t i = 0; i < sizeof dull / sizeof *dull; i++)
        if (!strcmp(name, dull[i])) return true;
    return false;
}

/* Whether all runs have the same value at every step. */
static bool is_constant(const report_run *runs, size_t n, const char *name, double *value)
{
    bool begun = false;
    size_t points = 0;
    for (size_t i = 0; i < n; i++) {
        const report_series *s = report_find(&runs[i], name);
        for (size_t k = 0; s && k < s->n; k++, points++) {
            if (begun && s->points[k].value != *value) return false;
            *value = s->points[k].value;
            begun = true;
        }
        if (s && s->n_odd) return false;
    }
    return points > n;
}

typedef struct {
    const char **names;
    size_t n, room;
    buffer constant; /* text about those that are left out */
} chart_list;

static const char *unit_of(const report_run *runs, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++) {
        const report_series *s = report_find(&runs[i], name);
        if (s && s->unit && *s->unit) return s->unit;
    }
    return NULL;
}

static void list_chart(chart_list *l, const report_run *runs, size_t n, const char *name)
{
    char text[32];
    double value = 0;
    if (!has_series(runs, n, name)) return;
    for (size_t i = 0; i < l->n; i++)
        if (!strcmp(l->names[i], name) || (!strncmp(name, "eval_", 5) && !strcmp(l->names[i], name + 5))) return;
    bool has_eval = false;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < runs[i].n_series; k++)
            has_eval =
                has_eval || (!strncmp(runs[i].series[k].name, "eval_", 5) && !strcmp(runs[i].series[k].name + 5, name));
    if (!has_eval && is_constant(runs, n, name, &value)) {
        buffer_puts(&l->constant, l->constant.size ? ", " : "");
        report_text(&l->constant, name);
        buffer_print(&l->constant, " %s", value_text(name, value, text));
        const char *unit = unit_of(runs, n, name);
        if (unit) buffer_puts(&l->constant, " ");
        if (unit) report_text(&l->constant, unit);
        return;
    }
    if (l->n == l->room) {
        l->room = l->room ? 2 * l->room : 32;
        l->names = mem_realloc(l->names, l->room * sizeof *l->names);
    }
    l->names[l->n++] = name;
}

static void add_charts(buffer *out, const report_run *runs, size_t n)
{
    chart_list l = {0};
    for (size_t i = 0; i < N_FIRST; i++)
        list_chart(&l, runs, n, first_charts[i]);
    for (int evals = 0; evals < 2; evals++) /* a chart of its own only for evaluations without a training series */
        for (size_t r = 0; r < n; r++)
            for (size_t i = 0; i < runs[r].n_series; i++) {
                const char *name = runs[r].series[i].name;
                bool is_first = false;
                for (size_t k = 0; k < N_FIRST; k++)
                    is_first = is_first || !strcmp(name, first_charts[k]);
                if (!is_first && !is_dull(name) && (strncmp(name, "eval_", 5) == 0) == evals &&
                    (r == 0 || !has_series(runs, r, name)))
                    list_chart(&l, runs, n, name);
            }
    buffer_puts(out,
                "<h2>Charts</h2>\n<div class=\"controls\"><label>over <select id=\"x\"><option value=\"step\">steps"
                "</option><option value=\"samples\">samples</option><option value=\"time\">time</option></select>"
                "</label><label><input type=\"checkbox\" id=\"log\"> log scale</label><label>smoothing <input "
                "type=\"range\" id=\"smooth\" min=\"0\" max=\"0.99\" step=\"0.01\" value=\"0\"></label></div>\n"
                "<noscript><p>The charts need JavaScript; the numbers are in metrics.jsonl.</p></noscript>\n"
                "<div class=\"charts\">\n");
    for (size_t c = 0; c < l.n; c++) {
        size_t n_odd = 0;
        for (size_t i = 0; i < n; i++) {
            const report_series *s = report_find(&runs[i], l.names[c]);
            if (s) n_odd += s->n_odd;
        }
        buffer_print(out, "<figure data-chart=\"%zu\"><figcaption>", c);
        report_text(out, l.names[c]);
        const char *unit = unit_of(runs, n, l.names[c]);
        if (unit) {
            buffer_puts(out, " <span class=\"soft\">[");
            report_text(out, unit);
            buffer_puts(out, "]</span>");
        }
        if (n_odd) buffer_print(out, " <b>(%zu not finite)</b>", n_odd);
        buffer_puts(out, "</figcaption><div class=\"plot\"></div><div class=\"tip\"></div></figure>\n");
    }
    buffer_puts(out, "</div>\n");
    if (l.constant.size) buffer_print(out, "<p class=\"soft\">Constant: %s.</p>\n", l.constant.text);
    buffer_puts(out, "<script type=\"application/json\" id=\"data\">");
    report_data(out, runs, n, l.names, l.n);
    buffer_print(out, "</script>\n<script>%s</script>\n", script);
    buffer_free(&l.constant);
    free(l.names);
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

/* Every value: the newest, its mean over the last 100 records, its least and its most. */
static void add_values(buffer *out, const report_run *runs, size_t n)
{
    char text[32];
    for (size_t i = 0; i < n; i++) {
        buffer_puts(out, "<details><summary>Values of ");
        report_run_name(out, &runs[i], i);
        buffer_puts(out, "</summary><table class=\"values\"><tr><th></th><th>current</th><th>mean of the last "
                         "100</th><th>least</th><th>peak</th></tr>\n");
        for (size_t k = 0; k < runs[i].n_series; k++) {
            const report_series *s = &runs[i].series[k];
            static const pick picks[] = {LAST, LATE_MEAN, LEAST, MOST};
            if (!s->n) continue;
            buffer_puts(out, "<tr><td>");
            report_text(out, s->name);
            buffer_puts(out, "</td>");
            for (size_t p = 0; p < sizeof picks / sizeof *picks; p++)
                buffer_print(out, "<td>%s</td>", value_text(s->name, pick_value(s, picks[p]), text));
            buffer_puts(out, "</tr>\n");
        }
        buffer_puts(out, "</table></details>\n");
    }
}

static void add_names(buffer *out, const report_run *runs, size_t n)
{
    if (!n) buffer_puts(out, "nrl tune");
    for (size_t i = 0; i < n; i++) {
        if (i) buffer_puts(out, ", ");
        report_text(out, runs[i].name);
    }
}

void report_page(buffer *out, const report_run *runs, size_t n, const char *state, const nrl_node *tune)
{
    buffer_puts(out, "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\">"
                     "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"><title>");
    add_names(out, runs, n);
    buffer_puts(out, "</title>\n");
    add_style(out);
    buffer_puts(out, "<h1>");
    add_names(out, runs, n);
    buffer_puts(out, "</h1>\n<div id=\"summary\">\n");
    if (state) {
        buffer_puts(out, "<p><b>");
        report_text(out, state);
        buffer_puts(out, "</b></p>\n");
    }
    if (n) add_runs(out, runs, n);
    add_time_of_step(out, runs, n);
    report_advice(out, runs, n);
    report_differences(out, runs, n);
    add_first_difference(out, runs, n);
    add_values(out, runs, n);
    buffer_puts(out, "</div>\n");
    report_tune(out, tune);
    if (n) add_charts(out, runs, n);
    report_samples(out, runs, n);
    add_configs(out, runs, n);
    buffer_print(out, "<p class=\"soft\">nrl %s%s</p>\n</html>\n", NRL_VERSION,
                 n ? "; dashed lines are evaluations, marks below the loss are checkpoints" : "");
}
