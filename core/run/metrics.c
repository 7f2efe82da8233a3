/*
 * metrics.c - the algorithm's numbers over a step or an evaluation, reduced as its rows say.
 */
#include "run/internal.h"
#include <math.h>
#include <string.h>

void metrics_reset(run *r)
{
    memset(r->metrics, 0, sizeof r->metrics);
}

void metric_add(run_metric *m, uint32_t reduce, double value, double weight)
{
    switch (reduce) {
    case NRL_REDUCE_MAX:
        m->value = m->any ? fmax(m->value, value) : value;
        break;
    case NRL_REDUCE_MIN:
        m->value = m->any ? fmin(m->value, value) : value;
        break;
    default:
        m->value += value;
        m->weight += weight;
    }
    m->any = true;
}

nrl_status metrics_collect(run *r)
{
    const ctx_metric *list;
    int64_t n;
    NRL_TRY(ctx_take_metrics(r->ctx, &list, &n));
    for (int64_t i = 0; i < n; i++) {
        if (list[i].index >= r->n_metrics)
            return nrl_fail(NRL_ERR_PLUGIN, "algorithm '%s' reported metric %u of %u",
                            r->algorithm->plugin.name, list[i].index, r->n_metrics);
        metric_add(&r->metrics[list[i].index], r->algorithm->metrics[list[i].index].reduce, list[i].value,
                   list[i].weight);
    }
    return NRL_OK;
}

void value_append(nrl_value *values, size_t *n, const char *name, const char *unit, double value)
{
    if (*n < RUN_MAX_VALUES) values[(*n)++] = (nrl_value){name, unit, value};
}

static double value_of(const run *r, uint32_t i)
{
    const run_metric *m = &r->metrics[i];
    switch (r->algorithm->metrics[i].reduce) {
    case NRL_REDUCE_DIFFERENCE:
        return i < 2 ? NAN : value_of(r, i - 2) - value_of(r, i - 1);
    case NRL_REDUCE_MEAN:
        return m->any ? m->value / m->weight : NAN;
    default:
        return m->any ? m->value : NAN;
    }
}

/* Whether the step has the number: it, or both that it is the difference of, were reported. */
static bool is_known(const run *r, uint32_t i)
{
    if (r->algorithm->metrics[i].reduce != NRL_REDUCE_DIFFERENCE) return r->metrics[i].any;
    return i >= 2 && is_known(r, i - 2) && is_known(r, i - 1);
}

void metrics_append(const run *r, const char *prefix, nrl_value *values, size_t *n, arena *names)
{
    for (uint32_t i = 0; i < r->n_metrics; i++) {
        const nrl_metric *row = &r->algorithm->metrics[i];
        if (!is_known(r, i)) continue;
        double v = value_of(r, i);
        const char *name = *prefix ? arena_printf(names, "%s%s", prefix, row->name) : row->name;
        value_append(values, n, name, row->unit, v);
    }
}
