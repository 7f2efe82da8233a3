/*
 * metrics.h - an algorithm's metrics over a step or an evaluation, reduced as its rows say, and the values of a record.
 */
#ifndef RUN_METRICS_H
#define RUN_METRICS_H
#include "base/arena.h"
#include "tensor/ctx.h"
#include <nrl/algorithm.h>
#include <nrl/logger.h>

enum { METRICS_MAX = 4096 }; /* beyond it a table is taken for one without an end */

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

typedef struct {
    const nrl_algorithm *algorithm;
    metric_sum *list; /* [n] */
    uint32_t n;
} metric_set;

/* Counts the rows of the algorithm. A name that a record has already, or that is there twice, is a mistake: of the
 * user's where the algorithm is a script's (NRL_ERR_CONFIG), else NRL_ERR_PLUGIN. */
nrl_status metrics_check(const nrl_algorithm *algorithm, bool is_script, uint32_t *n);
/* Of an algorithm that was checked. */
void metrics_open(metric_set *m, const nrl_algorithm *algorithm, uint32_t n, arena *a);
void metrics_reset(metric_set *m);
void metric_add(metric_sum *m, uint32_t reduce, double value, double weight);
/* Adds what nrl_metric_add gathered since the last call. */
nrl_status metrics_collect(metric_set *m, nrl_ctx *ctx);

void values_open(value_list *v, size_t n_values, arena *a);
void values_add(value_list *v, const char *name, const char *unit, double value);
/* Those that were reported, named PREFIX and their name, in `names` where the prefix is not empty. */
void values_add_metrics(value_list *v, const metric_set *m, const char *prefix, arena *names);

#endif
