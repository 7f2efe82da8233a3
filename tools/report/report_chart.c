/*
 * report_chart.c - one series of several runs as an SVG of fixed size: axes with round numbers, a
 * line for each run, and marks at checkpoints. A long series is thinned to the first, smallest,
 * largest and last point in every few pixels, so that spikes stay visible.
 */
#include "report.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { WIDTH = 560, HEIGHT = 240, LEFT = 64, RIGHT = 24, TOP = 10, BOTTOM = 28, BUCKETS = 240, N_COLORS = 8 };

typedef struct {
    double low, high, step; /* distance of two ticks */
} axis;

int report_color(size_t run)
{
    return (int)(run % N_COLORS);
}

/* About `n` ticks at 1, 2 or 5 times a power of ten; the axis ends at ticks. */
static axis round_axis(double low, double high, int n)
{
    if (!(high > low)) {
        double room = low == 0 ? 1 : fabs(low) * 0.1;
        low -= room;
        high += room;
    }
    double raw = (high - low) / n, power = pow(10, floor(log10(raw))), times = raw / power;
    double step = power * (times <= 1 ? 1 : times <= 2 ? 2 : times <= 5 ? 5 : 10);
    return (axis){floor(low / step) * step, ceil(high / step) * step, step};
}

static double place_x(const axis *x, double step)
{
    return LEFT + (step - x->low) / (x->high - x->low) * (WIDTH - LEFT - RIGHT);
}

static double place_y(const axis *y, double value)
{
    return HEIGHT - BOTTOM - (value - y->low) / (y->high - y->low) * (HEIGHT - TOP - BOTTOM);
}

/* ---- axes ---- */

const char *report_number(double v, char text[32])
{
    static const struct {
        double from, scale;
        const char *unit;
    } units[] = {{1e12, 1e12, "T"}, {1e9, 1e9, "G"}, {1e6, 1e6, "M"}, {1e4, 1e3, "k"}};
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        if (fabs(v) < units[i].from || fabs(v) >= 1e15) continue;
        snprintf(text, 32, "%.4g%s", v / units[i].scale, units[i].unit);
        return text;
    }
    snprintf(text, 32, "%.4g", v);
    return text;
}

/* Prints the tick at zero as 0 in spite of rounding errors. */
static const char *mark_text(double v, double step, char text[32])
{
    return report_number(fabs(v) < step / 2 ? 0 : v, text);
}

static void draw_axes(buffer *out, const axis *x, const axis *y)
{
    char text[32];
    for (int i = 0; y->low + i * y->step < y->high + y->step / 2; i++) {
        double v = y->low + i * y->step, at = place_y(y, v);
        buffer_print(out, "<line class=\"grid\" x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\"/>", LEFT, at, WIDTH - RIGHT,
                     at);
        buffer_print(out, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text>", LEFT - 6, at + 4,
                     mark_text(v, y->step, text));
    }
    for (int i = 0; x->low + i * x->step < x->high + x->step / 2; i++) {
        double v = x->low + i * x->step;
        buffer_print(out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>", place_x(x, v), HEIGHT - 10,
                     mark_text(v, x->step, text));
    }
}

/* ---- lines ---- */

typedef struct {
    buffer *out;
    const axis *x, *y;
    bool begun;
} pen;

static void draw_to(pen *p, const report_point *at)
{
    buffer_print(p->out, "%s%.1f %.1f", p->begun ? " " : "", place_x(p->x, at->step), place_y(p->y, at->value));
    p->begun = true;
}

/* Points [begin, end) as at most four points, in their order. */
static void draw_bucket(pen *p, const report_point *points, size_t begin, size_t end)
{
    size_t least = begin, most = begin, last = end - 1;
    for (size_t i = begin; i < end; i++) {
        if (points[i].value < points[least].value) least = i;
        if (points[i].value > points[most].value) most = i;
    }
    for (size_t i = begin; i < end; i++)
        if (i == begin || i == least || i == most || i == last) draw_to(p, &points[i]);
}

static void draw_line(buffer *out, const report_series *s, const axis *x, const axis *y, size_t run)
{
    pen p = {out, x, y, false};
    size_t buckets = s->n < 4 * BUCKETS ? s->n : BUCKETS;
    buffer_print(out, "<polyline class=\"c%d\" points=\"", report_color(run));
    for (size_t b = 0; b < buckets; b++)
        draw_bucket(&p, s->points, s->n * b / buckets, s->n * (b + 1) / buckets);
    buffer_puts(out, "\"/>");
    if (s->n <= 40)
        for (size_t i = 0; i < s->n; i++)
            buffer_print(out, "<circle class=\"c%d\" cx=\"%.1f\" cy=\"%.1f\" r=\"2\"/>", report_color(run),
                         place_x(x, s->points[i].step), place_y(y, s->points[i].value));
}

static void draw_checkpoints(buffer *out, const report_run *r, const axis *x, size_t run)
{
    for (size_t i = 0; i < r->n_checkpoints; i++) {
        double step = (double)r->checkpoints[i];
        if (step < x->low || step > x->high) continue;
        buffer_print(out,
                     "<line class=\"c%d mark\" x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\"><title>checkpoint "
                     "%lld</title></line>",
                     report_color(run), place_x(x, step), HEIGHT - BOTTOM, place_x(x, step), HEIGHT - BOTTOM + 6,
                     (long long)r->checkpoints[i]);
    }
}

/* ---- a chart ---- */

typedef struct {
    double low_x, high_x, low_y, high_y;
    size_t n, n_odd;
} extent;

static void widen(extent *e, const report_series *s)
{
    for (size_t i = 0; i < s->n; i++) {
        e->low_x = fmin(e->low_x, s->points[i].step);
        e->high_x = fmax(e->high_x, s->points[i].step);
        e->low_y = fmin(e->low_y, s->points[i].value);
        e->high_y = fmax(e->high_y, s->points[i].value);
    }
    e->n += s->n;
    e->n_odd += s->n_odd;
}

static void draw_runs(buffer *out, const report_run *runs, size_t n_runs, const char *name, const extent *e)
{
    axis x = round_axis(e->low_x, e->high_x, 6), y = round_axis(e->low_y, e->high_y, 5);
    buffer_print(out, "<svg viewBox=\"0 0 %d %d\" role=\"img\"><title>", WIDTH, HEIGHT);
    report_text(out, name);
    buffer_puts(out, " over steps</title>");
    draw_axes(out, &x, &y);
    for (size_t i = 0; i < n_runs; i++) {
        const report_series *s = report_find(&runs[i], name);
        if (s && s->n) draw_line(out, s, &x, &y, i);
        if (s && !strcmp(name, "loss")) draw_checkpoints(out, &runs[i], &x, i);
    }
    buffer_puts(out, "</svg>");
}

void report_chart(buffer *out, const report_run *runs, size_t n_runs, const char *name)
{
    extent e = {INFINITY, -INFINITY, INFINITY, -INFINITY, 0, 0};
    for (size_t i = 0; i < n_runs; i++) {
        const report_series *s = report_find(&runs[i], name);
        if (s) widen(&e, s);
    }
    buffer_puts(out, "<figure><figcaption>");
    report_text(out, name);
    if (e.n_odd) buffer_print(out, " <b>(%zu not finite)</b>", e.n_odd);
    buffer_puts(out, "</figcaption>");
    if (e.n) draw_runs(out, runs, n_runs, name, &e);
    buffer_puts(out, "</figure>\n");
}
