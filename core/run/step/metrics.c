/*
 * metrics.c - the algorithm's numbers over a step or an evaluation, reduced as its rows say.
 */
#include "run/internal.h"
#include <math.h>
#include <string.h>

/* What records have beside metrics: `eval_` comes before those of evaluations, so they need no look at. */
static const char *const own_names[] = {"step",
                                        "time",
                                        "loss",
                                        "grad_norm",
                                        "lr",
                                        "epoch",
                                        "tokens",
                                        "tokens_per_s",
                                        "mfu",
                                        "mem_bytes",
                                        "mem_total_bytes",
                                        "data_fraction",
                                        "comm_fraction",
                                        "comm_bytes",
                                        "loss_scale",
                                        "overflows",
                                        "save_s",
                                        "save_stall_s",
                                        "save_snapshot_s",
                                        "eval_loss",
                                        "eval_tokens",
                                        "eval_seconds"};
enum { N_OWN = sizeof own_names / sizeof *own_names };

static nrl_status mistake(const run *r)
{
    return r->algorithm_is_script ? NRL_ERR_CONFIG : NRL_ERR_PLUGIN;
}

static nrl_status check_name(const run *r, uint32_t i)
{
    const nrl_metric *m = r->algorithm->metrics;
    for (size_t k = 0; k < N_OWN; k++)
        if (!strcmp(own_names[k], m[i].name))
            return nrl_fail(mistake(r),
                            "algorithm '%s': metric '%s': records have a value of that name already, "
                            "expected another name",
                            r->algorithm->plugin.name, m[i].name);
    for (uint32_t k = 0; k < i; k++)
        if (!strcmp(m[k].name, m[i].name))
            return nrl_fail(mistake(r), "algorithm '%s': metric '%s' is there twice", r->algorithm->plugin.name,
                            m[i].name);
    return NRL_OK;
}

nrl_status metrics_open(run *r)
{
    const nrl_metric *m = r->algorithm->metrics;
    for (uint32_t i = 0; m && m[i].name; i++) {
        if (i == RUN_MAX_METRICS)
            return nrl_fail(mistake(r),
                            "algorithm '%s' has more than %d metrics: '%s' is one too many; expected a "
                            "row without a name behind the last one",
                            r->algorithm->plugin.name, RUN_MAX_METRICS, m[i].name);
        NRL_TRY(check_name(r, i));
        r->n_metrics = i + 1;
    }
    r->values_room = r->n_metrics + N_OWN;
    r->metrics = arena_alloc(&r->memory, (r->n_metrics + 1) * sizeof *r->metrics);
    r->values = arena_alloc(&r->memory, r->values_room * sizeof *r->values);
    r->eval_values = arena_alloc(&r->memory, r->values_room * sizeof *r->eval_values);
    return NRL_OK;
}

void metrics_reset(run *r)
{
    memset(r->metrics, 0, r->n_metrics * sizeof *r->metrics);
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
            return nrl_fail(NRL_ERR_PLUGIN, "algorithm '%s' reported metric %u of %u", r->algorithm->plugin.name,
                            list[i].index, r->n_metrics);
        metric_add(&r->metrics[list[i].index], r->algorithm->metrics[list[i].index].reduce, list[i].value,
                   list[i].weight);
    }
    return NRL_OK;
}

void value_append(const run *r, nrl_value *values, size_t *n, const char *name, const char *unit, double value)
{
    NRL_ASSERT(*n, <, r->values_room);
    values[(*n)++] = (nrl_value){name, unit, value};
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
        value_append(r, values, n, name, row->unit, v);
    }
}
