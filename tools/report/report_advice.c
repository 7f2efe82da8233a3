/*
 * report_advice.c - what limits the speed of a run, by fractions of its time, with the keys of nrl that change it. Uses
 * means of the last 100 records, and of the whole run what happens rarely (saves, evaluations). A limit below the
 * thresholds here is not worth a change.
 */
#include "report.h"
#include <math.h>
#include <string.h>

enum { LATE = 100 };
static const double DATA = 0.05, RANKS = 0.2, IDLE = 0.1, SAVES = 0.02, MEMORY = 0.92, STRAGGLER = 0.1;

static double late_mean(const report_run *r, const char *name)
{
    const report_series *s = report_find(r, name);
    size_t n = s ? s->n : 0, from = n > LATE ? n - LATE : 0;
    double sum = 0;
    for (size_t i = from; i < n; i++)
        sum += s->points[i].value;
    return n ? sum / (double)(n - from) : NAN;
}

static double total_of(const report_run *r, const char *name)
{
    const report_series *s = report_find(r, name);
    double sum = 0;
    for (size_t i = 0; s && i < s->n; i++)
        sum += s->points[i].value;
    return sum;
}

static double most_of(const report_run *r, const char *name)
{
    const report_series *s = report_find(r, name);
    double most = 0;
    for (size_t i = 0; s && i < s->n; i++)
        most = fmax(most, s->points[i].value);
    return most;
}

/* The share of the run in which no step was computed: evaluations, saves, hooks. Of a step's tokens and their rate
 * follows how long it took; gaps of over ten steps, such as those of an interruption, count as interruptions. */
static double idle_share(const report_run *r)
{
    const report_series *tokens = report_find(r, "tokens"), *rate = report_find(r, "tokens_per_s");
    double steps = 0, time = 0;
    for (size_t i = 1; tokens && rate && i < tokens->n && i < rate->n; i++) {
        const double gap = tokens->points[i].time - tokens->points[i - 1].time;
        const double step = (tokens->points[i].value - tokens->points[i - 1].value) / rate->points[i].value;
        if (!(step > 0) || !(gap > 0) || gap > 10 * step + 60 || tokens->points[i].step != rate->points[i].step)
            continue;
        steps += fmin(step, gap);
        time += gap;
    }
    return time > 0 ? 1 - steps / time : NAN;
}

typedef struct {
    buffer *out;
    const report_run *run;
    size_t index;
    bool begun, named, several;
} advice;

static void advise(advice *v, double share, double limit, const char *what, const char *keys)
{
    if (!(share > limit)) return;
    if (!v->begun) buffer_puts(v->out, "<h2>What limits the speed</h2>\n");
    v->begun = true;
    if (!v->named && v->several) {
        buffer_puts(v->out, "<p>");
        report_run_name(v->out, v->run, v->index);
        buffer_puts(v->out, "</p>\n");
    }
    if (!v->named) buffer_puts(v->out, "<ul>\n");
    v->named = true;
    buffer_print(v->out, "<li>%s: %.1f %%. %s</li>\n", what, 100 * share, keys);
}

void report_advice(buffer *out, const report_run *runs, size_t n)
{
    advice v = {.out = out, .several = n > 1};
    for (size_t i = 0; i < n; i++) {
        const report_run *r = &runs[i];
        const double wall = fmax(r->last_time - r->first_time, 1e-9), all = most_of(r, "mem_total_bytes");
        const double evals = total_of(r, "eval_seconds") / wall, stall = total_of(r, "save_stall_s") / wall;
        const double slow = late_mean(r, "step_s_max"), mean = late_mean(r, "step_s_mean");
        v.run = r;
        v.index = i;
        v.named = false;
        advise(&v, late_mean(r, "data_fraction"), DATA, "waiting for data",
               "Increase <code>data.workers</code> (threads that tokenize) or <code>data.prefetch</code> (steps that "
               "are prepared in advance); <code>data.cache</code> keeps tokens for later runs.");
        advise(&v, late_mean(r, "comm_fraction"), RANKS, "waiting for other ranks",
               "With a larger <code>train.global_batch</code> or <code>train.micro_batch_tokens</code> ranks "
               "communicate less often; <code>parallel: {data: {name: fsdp, prefetch}}</code> or <code>{name: ddp, "
               "bucket_cap_mb, compress}</code> hides or reduces communication; <code>parallel.tensor</code> should "
               "stay inside one machine.");
        advise(&v, slow > 0 && mean > 0 ? slow / mean - 1 : NAN, STRAGGLER, "the slowest rank, above the mean",
               "<code>nrl env</code> on its machine shows threads and devices; <code>data.packing: true</code> "
               "balances unequal lengths.");
        advise(&v, evals, IDLE, "evaluations",
               "Increase <code>eval.every</code>, or use fewer rows with <code>data.eval: {path, limit}</code>.");
        advise(&v, stall, SAVES, "saves that stopped the run",
               "Increase <code>checkpoint.every</code>; <code>checkpoint.async: true</code> and "
               "<code>checkpoint.threads</code> hide saves.");
        advise(&v, idle_share(r) - fmax(evals, 0) - fmax(stall, 0), IDLE, "idle between steps",
               "Hooks of a script, loggers and saves run between steps; <code>nrl profile</code> shows them.");
        advise(&v, all > 0 ? most_of(r, "mem_bytes") / all : NAN, MEMORY, "memory in use",
               "<code>train.activation_checkpointing: all</code>, a smaller <code>train.micro_batch_tokens</code> or "
               "<code>parallel: fsdp</code> reduce it.");
        if (v.named) buffer_puts(out, "</ul>\n");
    }
}
