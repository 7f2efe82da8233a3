/*
 * report_samples.c - the texts of eval.samples: of each run a table of prompts, whose texts are those of the evaluation
 * that a slider selects. Without JavaScript all tables are visible.
 */
#include "report.h"
#include <math.h>

static void add_cell(buffer *out, const char *text)
{
    buffer_puts(out, "<td class=\"text\">");
    if (text) report_text(out, text);
    buffer_puts(out, "</td>");
}

/* The texts [begin, end) of one step. */
static void add_table(buffer *out, const report_run *r, size_t begin, size_t end)
{
    bool answers = false, scores = false;
    for (size_t i = begin; i < end; i++) {
        answers |= r->samples[i].answer != NULL;
        scores |= !isnan(r->samples[i].score);
    }
    buffer_print(out,
                 "<table class=\"samples\" data-step=\"%lld\"><caption>step "
                 "%lld</caption><tr><th>prompt</th><th>text</th>%s%s</tr>\n",
                 (long long)r->samples[begin].step, (long long)r->samples[begin].step,
                 answers ? "<th>expected</th>" : "", scores ? "<th>score</th>" : "");
    for (size_t i = begin; i < end; i++) {
        const report_sample *s = &r->samples[i];
        buffer_puts(out, "<tr>");
        add_cell(out, i > begin && s[-1].index == s->index ? "" : s->prompt);
        buffer_puts(out, "<td class=\"text\">");
        report_text(out, s->text);
        buffer_print(out, "%s</td>", s->is_cut ? " <span class=\"soft\">(cut)</span>" : "");
        if (answers) add_cell(out, s->answer);
        if (scores && isnan(s->score)) buffer_puts(out, "<td></td>");
        if (scores && !isnan(s->score)) buffer_print(out, "<td>%.3g</td>", s->score);
        buffer_puts(out, "</tr>\n");
    }
    buffer_puts(out, "</table>\n");
}

void report_samples(buffer *out, const report_run *runs, size_t n)
{
    bool any = false;
    for (size_t i = 0; i < n; i++) {
        const report_run *r = &runs[i];
        if (!r->n_samples) continue;
        if (!any) buffer_puts(out, "<h2>Samples</h2>\n");
        any = true;
        buffer_puts(out, "<div class=\"run-samples\">");
        if (n > 1) {
            buffer_puts(out, "<h3>");
            report_run_name(out, r, i);
            buffer_puts(out, "</h3>\n");
        }
        buffer_puts(out,
                    "<label class=\"slider\" hidden>step <input type=\"range\" min=\"0\"> <output></output></label>\n");
        for (size_t begin = 0, end; begin < r->n_samples; begin = end) {
            for (end = begin; end < r->n_samples && r->samples[end].step == r->samples[begin].step;)
                end++;
            add_table(out, r, begin, end);
        }
        buffer_puts(out, "</div>\n");
    }
}
