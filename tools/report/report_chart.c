/*
 * report_chart.c - the data of the charts as JSON, for report.js, which draws them. A long series is thinned to the
 * first, smallest, largest and last point of buckets, so that spikes stay visible and the page stays small.
 */
#include "base/json.h"
#include "report.h"
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BUCKETS = 500, N_COLORS = 8 };

int report_color(size_t run)
{
    return (int)(run % N_COLORS);
}

const char *report_number(double v, char text[32])
{
    static const struct {
        double from, scale;
        const char *unit;
    } units[] = {{1e12, 1e12, "T"}, {1e9, 1e9, "G"}, {1e6, 1e6, "M"}, {1e4, 1e3, "k"}};
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        if (!(v >= units[i].from || v <= -units[i].from) || v >= 1e15 || v <= -1e15) continue;
        snprintf(text, 32, "%.4g%s", v / units[i].scale, units[i].unit);
        return text;
    }
    snprintf(text, 32, "%.5g", v);
    return text;
}

/* ---- which points ---- */

typedef struct {
    const report_point **list;
    size_t n;
} picked;

/* Points [begin, end) as at most four points, in their order. */
static void pick_bucket(picked *p, const report_point *points, size_t begin, size_t end)
{
    size_t least = begin, most = begin;
    for (size_t i = begin; i < end; i++) {
        if (points[i].value < points[least].value) least = i;
        if (points[i].value > points[most].value) most = i;
    }
    for (size_t i = begin; i < end; i++)
        if (i == begin || i == least || i == most || i == end - 1) p->list[p->n++] = &points[i];
}

static picked pick_points(const report_series *s)
{
    picked p = {.list = mem_alloc((s->n + 1) * sizeof *p.list)};
    size_t buckets = s->n < 4 * BUCKETS ? s->n : BUCKETS;
    for (size_t b = 0; b < buckets; b++)
        pick_bucket(&p, s->points, s->n * b / buckets, s->n * (b + 1) / buckets);
    return p;
}

/* ---- as JSON ---- */

/* For the inside of a script element: no end tag. */
static void put_string(buffer *out, const char *text)
{
    buffer b = {0};
    json_add_string(&b, text, strlen(text));
    for (size_t i = 0; i < b.size; i++) {
        if (b.text[i] == '<')
            buffer_puts(out, "\\u003c");
        else
            buffer_add(out, b.text + i, 1);
    }
    buffer_free(&b);
}

static void put_numbers(buffer *out, const char *key, const picked *p, size_t offset)
{
    buffer_print(out, ",\"%s\":[", key);
    for (size_t i = 0; i < p->n; i++)
        buffer_print(out, "%s%.12g", i ? "," : "", *(const double *)((const char *)p->list[i] + offset));
    buffer_puts(out, "]");
}

static bool put_line(buffer *out, const report_run *r, size_t run, const char *name, bool is_first)
{
    const report_series *s = report_find(r, name);
    if (!s || !s->n) return false;
    picked p = pick_points(s);
    buffer_print(out, "%s{\"run\":%zu,\"name\":", is_first ? "" : ",", run);
    put_string(out, name);
    put_numbers(out, "step", &p, offsetof(report_point, step));
    put_numbers(out, "time", &p, offsetof(report_point, time));
    put_numbers(out, "value", &p, offsetof(report_point, value));
    buffer_puts(out, "}");
    free(p.list);
    return true;
}

void report_data(buffer *out, const report_run *runs, size_t n_runs, const char *const *charts, size_t n_charts)
{
    arena a = {0};
    buffer_puts(out, "{\"runs\":[");
    for (size_t i = 0; i < n_runs; i++) {
        const nrl_node *train = nrl_node_find(runs[i].config, "train");
        buffer_puts(out, i ? ",{\"name\":" : "{\"name\":");
        put_string(out, runs[i].name);
        buffer_print(out, ",\"begin\":%.12g,\"batch\":%lld,\"checkpoints\":[", runs[i].first_time,
                     (long long)nrl_node_int(nrl_node_find(train, "global_batch"), 1));
        for (size_t k = 0; k < runs[i].n_checkpoints; k++)
            buffer_print(out, "%s%lld", k ? "," : "", (long long)runs[i].checkpoints[k]);
        buffer_puts(out, "]}");
    }
    buffer_puts(out, "],\"charts\":[");
    for (size_t c = 0; c < n_charts; c++) {
        const char *eval = arena_printf(&a, "eval_%s", charts[c]);
        bool is_first = true;
        buffer_puts(out, c ? ",{\"name\":" : "{\"name\":");
        put_string(out, charts[c]);
        buffer_puts(out, ",\"lines\":[");
        for (size_t i = 0; i < n_runs; i++) {
            if (put_line(out, &runs[i], i, charts[c], is_first)) is_first = false;
            if (put_line(out, &runs[i], i, eval, is_first)) is_first = false;
        }
        buffer_puts(out, "]}");
    }
    buffer_puts(out, "]}");
    arena_free(&a);
}
