/*
 * report.h - what the parts of `nrl report` share: runs as series of numbers, and charts of them.
 */
#ifndef REPORT_REPORT_H
#define REPORT_REPORT_H
#include "base/arena.h"
#include "base/buffer.h"
#include <nrl/node.h>
#include <stdbool.h>

typedef struct {
    double step, time, value; /* value is finite; time: Unix seconds */
} report_point;

typedef struct {
    const char *name; /* "loss", "eval_loss", "rewards/chosen" */
    report_point *points;
    size_t n, room;
    size_t n_odd;     /* values that were not finite */
    const char *unit; /* as the program reported it; NULL = not known */
} report_series;

/* A text of eval.samples. */
typedef struct {
    int64_t step, index;
    const char *prompt, *text, *answer; /* answer: NULL = unknown */
    double score;                       /* NaN = unknown */
    bool is_cut;
} report_sample;

typedef struct {
    const char *dir, *name; /* name: the last part of dir */
    report_series *series;  /* in order of appearance */
    size_t n_series;
    size_t n_records;
    double first_time, last_time, last_step;
    report_sample *samples; /* in order of their steps */
    size_t n_samples, samples_room;
    const char *config_text; /* OUT/config.yaml; NULL if missing */
    const nrl_node *config;  /* config_text, parsed; NULL if it cannot be read */
    size_t n_restarts;       /* lines of restarts.jsonl */
    int64_t *checkpoints;    /* steps, ascending */
    size_t n_checkpoints;
} report_run;

/* Reads DIR/metrics.jsonl, and config.yaml and checkpoints if they exist. An incomplete last line
 * is skipped: the run is still writing it. Points and texts live in the arena. [main] */
nrl_status report_read(arena *a, const char *dir, report_run *out);
void report_free(report_run *r);
const report_series *report_find(const report_run *r, const char *name); /* NULL if the run does not have the series */

/* Escapes <, >, & and " for HTML; bytes that are not valid UTF-8 become U+FFFD. */
void report_text(buffer *out, const char *text);

/* Writes 12.35k or 8.192M to `text` and returns `text`. */
const char *report_number(double v, char text[32]);

/* The JSON that report.js draws: of each chart the series of that name, and eval_NAME, of all runs. */
void report_data(buffer *out, const report_run *runs, size_t n_runs, const char *const *charts, size_t n_charts);
/* The CSS class that gives run i its color. */
int report_color(size_t run);

void report_run_name(buffer *out, const report_run *r, size_t i); /* with a dot in its color */
/* The options that differ between the runs; writes nothing for one run. */
void report_differences(buffer *out, const report_run *runs, size_t n);

/* What limits the speed of each run, and which keys change it (report_advice.c); writes nothing without data. */
void report_advice(buffer *out, const report_run *runs, size_t n);

/* The whole page. `state`: how the only run stands now; NULL = not known. `tune`: of report_read_tune; NULL = none. */
void report_page(buffer *out, const report_run *runs, size_t n, const char *state, const nrl_node *tune);

/* The output of `nrl tune --json`, and its table and plots; writes nothing for NULL. */
nrl_status report_read_tune(arena *a, const char *path, const nrl_node **out);
void report_tune(buffer *out, const nrl_node *tune);

/* The texts that the runs generated, a table per step that a slider selects; writes nothing without any. */
void report_samples(buffer *out, const report_run *runs, size_t n);

#endif
