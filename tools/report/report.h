/*
 * report.h - what the parts of `nrl report` share: runs as series of numbers, and charts of them.
 */
#ifndef REPORT_REPORT_H
#define REPORT_REPORT_H
#include "base/arena.h"
#include "base/buffer.h"
#include <nrl/node.h>

typedef struct {
    double step, value; /* value is finite */
} report_point;

typedef struct {
    const char *name; /* "loss", "eval_loss", "rewards/chosen" */
    report_point *points;
    size_t n, room;
    size_t n_odd; /* values that were not finite */
} report_series;

typedef struct {
    const char *dir, *name; /* name: the folder's own */
    report_series *series;  /* in order of appearance */
    size_t n_series;
    size_t n_records;
    double first_time, last_time, last_step;
    const char *config_text; /* OUT/config.yaml; NULL where there is none */
    const nrl_node *config;  /* the same, read */
    int64_t *checkpoints;    /* steps, rising */
    size_t n_checkpoints;
} report_run;

/* Reads DIR/metrics.jsonl, and config.yaml and checkpoints where they are there. A last line that is not
 * whole belongs to a run that goes on, and is omitted. Points and texts live in the arena. [main] */
nrl_status report_read(arena *a, const char *dir, report_run *out);
void report_free(report_run *r);
const report_series *report_find(const report_run *r, const char *name); /* NULL = the run has none */

/* Text with <, >, & and " as HTML wants them; other than valid UTF-8 becomes U+FFFD. */
void report_text(buffer *out, const char *text);

/* 12.35k, 8.192M; into text, which is returned. */
const char *report_number(double v, char text[32]);

/* One SVG: a line a run, over steps. */
void report_chart(buffer *out, const report_run *runs, size_t n_runs, const char *name);
/* The class that gives run i its colour. */
int report_color(size_t run);

void report_run_name(buffer *out, const report_run *r, size_t i); /* with its colour */
/* What the configs differ in; nothing of one run. */
void report_differences(buffer *out, const report_run *runs, size_t n);

/* The whole page. */
void report_page(buffer *out, const report_run *runs, size_t n);

#endif
