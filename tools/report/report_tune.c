/*
 * report_tune.c - what `nrl tune --json` found, as a table and two plots that need no JavaScript: tokens per second and
 * peak memory of each size of micro-batches.
 */
#include "base/json.h"
#include "base/units.h"
#include "report.h"
#include <math.h>
#include <string.h>

enum { MOST_BYTES = 1 << 20, WIDTH = 380, HEIGHT = 200, LEFT = 60, RIGHT = 20, TOP = 12, BOTTOM = 34 };

static double number(const nrl_node *map, const char *key)
{
    return nrl_node_f64(nrl_node_find(map, key), NAN);
}

nrl_status report_read_tune(arena *a, const char *path, const nrl_node **out)
{
    nrl_node *tree;
    NRL_TRY(json_read_file(a, path, MOST_BYTES, &tree));
    const nrl_node *trials = nrl_node_find(tree, "trials");
    bool good = nrl_node_size(trials) > 0;
    for (size_t i = 0; i < nrl_node_size(trials); i++)
        good = good && number(nrl_node_at(trials, i), "micro_batch_tokens") >= 1;
    if (!good)
        return nrl_fail(NRL_ERR_CONFIG, "%s: expected the output of `nrl tune --json`, with a list of trials", path);
    *out = tree;
    return NRL_OK;
}

static const char *value_text(double v, bool is_bytes, char text[SIZE_TEXT])
{
    return is_bytes ? size_text(v, text) : report_number(v, text);
}

/* Sizes on a logarithmic axis, values from 0. A size that did not run is a cross at the bottom. */
static void add_plot(buffer *out, const nrl_node *trials, const char *key, const char *title)
{
    const size_t n = nrl_node_size(trials);
    const bool is_bytes = !strncmp(key, "used_", 5);
    double least = INFINITY, largest = 0, most = 0;
    char text[SIZE_TEXT];
    for (size_t i = 0; i < n; i++) {
        const nrl_node *t = nrl_node_at(trials, i);
        const double tokens = number(t, "micro_batch_tokens"), value = number(t, key);
        least = fmin(least, tokens);
        largest = fmax(largest, tokens);
        most = fmax(most, isnan(value) ? 0 : value);
    }
    const double span = largest > least ? log(largest / least) : 1, scale = most > 0 ? most : 1;
    const int right = WIDTH - RIGHT, bottom = HEIGHT - BOTTOM;
    buffer_print(out,
                 "<figure><figcaption>%s</figcaption><svg width=\"%d\" height=\"%d\" role=\"img\" aria-label=\"%s\">"
                 "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%d\" y2=\"%d\"/>"
                 "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%d\" y2=\"%d\"/>"
                 "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%s</text><text x=\"%d\" y=\"%d\" "
                 "text-anchor=\"end\">0</text><text x=\"%d\" y=\"%d\">%.0f</text><text x=\"%d\" y=\"%d\" "
                 "text-anchor=\"end\">%.0f tokens</text>",
                 title, WIDTH, HEIGHT, title, LEFT, right, TOP, TOP, LEFT, right, bottom, bottom, LEFT - 6, TOP + 4,
                 value_text(most, is_bytes, text), LEFT - 6, bottom + 4, LEFT, HEIGHT - 12, least, right, HEIGHT - 12,
                 largest);
    /* Trials are in the order of the search: lines go from each size to the next larger one. */
    double before = 0;
    buffer_puts(out, "<polyline class=\"c0\" points=\"");
    for (size_t drawn = 0; drawn < n; drawn++) {
        const nrl_node *next = NULL;
        for (size_t i = 0; i < n; i++) {
            const nrl_node *t = nrl_node_at(trials, i);
            const double tokens = number(t, "micro_batch_tokens");
            if (tokens > before && !isnan(number(t, key)) && (!next || tokens < number(next, "micro_batch_tokens")))
                next = t;
        }
        if (!next) break;
        before = number(next, "micro_batch_tokens");
        buffer_print(out, "%.1f,%.1f ", LEFT + (right - LEFT) * log(before / least) / span,
                     bottom - (bottom - TOP) * number(next, key) / scale);
    }
    buffer_puts(out, "\"/>");
    for (size_t i = 0; i < n; i++) {
        const nrl_node *t = nrl_node_at(trials, i);
        const double tokens = number(t, "micro_batch_tokens"), value = number(t, key);
        const double x = LEFT + (right - LEFT) * log(tokens / least) / span;
        if (isnan(value))
            buffer_print(out, "<path class=\"mark c1\" d=\"M%.1f %dl8 8m0 -8l-8 8\"><title>%.0f: ", x - 4, bottom - 4,
                         tokens);
        else
            buffer_print(out, "<circle class=\"c0\" cx=\"%.1f\" cy=\"%.1f\" r=\"3\"><title>%.0f: ", x,
                         bottom - (bottom - TOP) * value / scale, tokens);
        report_text(out, isnan(value) ? nrl_node_string(nrl_node_find(t, "outcome"), "")
                                      : value_text(value, is_bytes, text));
        buffer_puts(out, isnan(value) ? "</title></path>" : "</title></circle>");
    }
    buffer_puts(out, "</svg></figure>\n");
}

void report_tune(buffer *out, const nrl_node *tune)
{
    const nrl_node *trials = nrl_node_find(tune, "trials");
    const double ranks = number(tune, "ranks"), fastest = number(tune, "fastest"), largest = number(tune, "largest");
    char text[SIZE_TEXT];
    if (!tune) return;
    buffer_puts(out, "<h2>Sizes of micro-batches</h2>\n<table><tr><th>train.micro_batch_tokens</th><th>tokens/s</th>"
                     "<th>seconds a step</th><th>peak memory</th><th></th></tr>\n");
    for (size_t i = 0; i < nrl_node_size(trials); i++) {
        const nrl_node *t = nrl_node_at(trials, i);
        const double tokens = number(t, "micro_batch_tokens"), speed = number(t, "tokens_per_s");
        buffer_print(out, "<tr><td>%.0f</td>", tokens);
        if (isnan(speed))
            buffer_puts(out, "<td></td><td></td><td></td><td>");
        else
            buffer_print(out, "<td>%.0f</td><td>%.3f</td><td>%s</td><td>", speed, number(t, "step_seconds"),
                         size_text(number(t, "used_peak_bytes"), text));
        if (isnan(speed)) report_text(out, nrl_node_string(nrl_node_find(t, "outcome"), ""));
        if (tokens == fastest) buffer_puts(out, tokens == largest ? "fastest, largest" : "fastest");
        if (tokens == largest && tokens != fastest) buffer_puts(out, "largest");
        buffer_puts(out, "</td></tr>\n");
    }
    buffer_puts(out, "</table>\n");
    if (ranks > 1)
        buffer_print(out, "<p class=\"soft\">%.0f ranks: tokens/s of all, peak memory of the one that used most.</p>\n",
                     ranks);
    buffer_puts(out, "<div class=\"charts\">\n");
    add_plot(out, trials, "tokens_per_s", "tokens/s");
    add_plot(out, trials, "used_peak_bytes", "peak memory");
    buffer_puts(out, "</div>\n");
}
