/*
 * metrics.h - the metrics of plugins over a step or an evaluation, reduced as their rows define, and the values of a
 * record.
 */
#ifndef RUN_METRICS_H
#define RUN_METRICS_H
#include "base/arena.h"
#include "tensor/ctx.h"
#include <nrl/algorithm.h>
#include <nrl/logger.h>

enum { METRICS_MAX = 4096 }; /* a longer table is treated as one without an end row */

/* One number of the records of a run. */
typedef struct {
    const nrl_metric *row;
    bool of_batch; /* ranks with the same batch report the same */
} metric_row;

/* Those of the algorithm come first. */
typedef struct {
    metric_row *list; /* [n] */
    uint32_t n, n_algorithm;
} metric_rows;

/* Reduced over a step or an evaluation. */
typedef struct {
    double value, weight;
    bool any;
} metric_sum;

/* The values of one record: room for every metric and what the core adds. */
typedef struct {
    nrl_value *list;
    size_t n, room;
} value_list;

typedef struct metric_set metric_set;
struct metric_set {
    const metric_rows *rows;
    metric_sum *list, *next;  /* [n_shards, rows->n] of the step, and of the next one */
    int32_t n_shards, shard;  /* of this rank; the current one */
    metric_set *older;        /* of those that receive nrl_metric_report_f64 */
    const metric_set *before; /* what metrics_listen has replaced in this thread */
};

/* Adds rows of a plugin, NULL-ended, in `a`. A name that records already have, or that occurs twice, is the error
 * `mistake`: NRL_ERR_CONFIG for a script, else NRL_ERR_PLUGIN. */
nrl_status metrics_declare(metric_rows *rows, const nrl_plugin *of, const nrl_metric *m, nrl_status mistake, arena *a);
/* Whether records have a value of this name: the core's, or a metric of these rows. */
bool metrics_has(const metric_rows *rows, const char *name);
void metrics_open(metric_set *m, const metric_rows *rows, int32_t n_shards, arena *a);
/* Directs values of nrl_metric_report_f64 to this set, until metrics_close: those of this thread, and those of others
 * that no set of their own thread takes. */
void metrics_listen(metric_set *m);
void metrics_use(const metric_set *m); /* this thread calls the run of this set, which listens, from now on */
void metrics_close(metric_set *m);
/* Begins a step with the values that have come since the last one's metrics_collect. */
void metrics_begin(metric_set *m);
/* Moves the values reported since metrics_begin to `out` [n_shards, rows->n]. */
void metrics_take(metric_set *m, metric_sum *out);
/* Sets the shard of this rank to which values of nrl_metric_report_f64 belong; initially 0. */
void metrics_report_to(int32_t shard);
void metric_add(metric_sum *m, uint32_t reduce, double value, double weight);
/* Adds what was reported to the context since the last call to the step's current shard, or to the next step. */
nrl_status metrics_collect(metric_set *m, nrl_ctx *ctx, bool next);

void values_open(value_list *v, size_t n_values, arena *a);
void values_add(value_list *v, const char *name, const char *unit, double value);
/* Adds the metrics that were reported, named PREFIX and their name; the names are allocated in `names` if the prefix is
 * not empty. */
void values_add_metrics(value_list *v, const metric_set *m, const char *prefix, arena *names);

#endif
