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

static void add(run_metric *m, uint32_t reduce, double value, double weight)
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
        add(&r->metrics[list[i].index], r->algorithm->metrics[list[i].index].reduce, list[i].value,
            list[i].weight);
    }
    return NRL_OK;
}

void value_append(nrl_value *values, size_t *n, const char *name, const char *unit, double value)
{
    if (*n < RUN_MAX_VALUES) values[(*n)++] = (nrl_value){name, unit, value};
}

void metrics_append(const run *r, const char *prefix, nrl_value *values, size_t *n, arena *names)
{
    for (uint32_t i = 0; i < r->n_metrics; i++) {
        const nrl_metric *row = &r->algorithm->metrics[i];
        const run_metric *m = &r->metrics[i];
        if (!m->any) continue;
        double v = row->reduce == NRL_REDUCE_MEAN ? m->value / m->weight : m->value;
        const char *name = *prefix ? arena_printf(names, "%s%s", prefix, row->name) : row->name;
        value_append(values, n, name, row->unit, v);
    }
}
