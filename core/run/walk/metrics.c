/*
 * metrics.c - the algorithm's numbers over a step or an evaluation, reduced as its rows say.
 */
#include "run/walk/metrics.h"
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
                                        "eval_seconds",
                                        "exported_step"};
enum { N_OWN = sizeof own_names / sizeof *own_names };

nrl_status metrics_check(const nrl_algorithm *algorithm, bool is_script, uint32_t *n)
{
    const nrl_metric *m = algorithm->metrics;
    const char *name = algorithm->plugin.name;
    const nrl_status mistake = is_script ? NRL_ERR_CONFIG : NRL_ERR_PLUGIN;
    *n = 0;
    for (uint32_t i = 0; m && m[i].name; i++) {
        if (i == METRICS_MAX)
            return nrl_fail(mistake,
                            "algorithm '%s' has more than %d metrics: '%s' is one too many; expected a "
                            "row without a name behind the last one",
                            name, METRICS_MAX, m[i].name);
        for (size_t k = 0; k < N_OWN; k++)
            if (!strcmp(own_names[k], m[i].name))
                return nrl_fail(mistake,
                                "algorithm '%s': metric '%s' has the name of the record's own value '%s'; "
                                "expected another name",
                                name, m[i].name, own_names[k]);
        for (uint32_t k = 0; k < i; k++)
            if (!strcmp(m[k].name, m[i].name))
                return nrl_fail(mistake, "algorithm '%s': metric '%s' is there twice", name, m[i].name);
        *n = i + 1;
    }
    return NRL_OK;
}

void metrics_open(metric_set *m, const nrl_algorithm *algorithm, uint32_t n, arena *a)
{
    *m = (metric_set){.algorithm = algorithm, .list = arena_alloc(a, (n + 1) * sizeof *m->list), .n = n};
}

void metrics_reset(metric_set *m)
{
    memset(m->list, 0, m->n * sizeof *m->list);
}

void metric_add(metric_sum *m, uint32_t reduce, double value, double weight)
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

nrl_status metrics_collect(metric_set *m, nrl_ctx *ctx)
{
    const nrl_algorithm *of = m->algorithm;
    const ctx_metric *list;
    int64_t n;
    NRL_TRY(ctx_take_metrics(ctx, &list, &n));
    for (int64_t i = 0; i < n; i++) {
        if (list[i].index >= m->n)
            return nrl_fail(NRL_ERR_PLUGIN, "algorithm '%s' reported metric %u of %u", of->plugin.name, list[i].index,
                            m->n);
        metric_add(&m->list[list[i].index], of->metrics[list[i].index].reduce, list[i].value, list[i].weight);
    }
    return NRL_OK;
}

static double metric_value(const metric_set *m, uint32_t i)
{
    const metric_sum *of = &m->list[i];
    switch (m->algorithm->metrics[i].reduce) {
    case NRL_REDUCE_DIFFERENCE:
        return i < 2 ? NAN : metric_value(m, i - 2) - metric_value(m, i - 1);
    case NRL_REDUCE_MEAN:
        return of->any ? of->value / of->weight : NAN;
    default:
        return of->any ? of->value : NAN;
    }
}

/* Whether the step has the number: it, or both that it is the difference of, were reported. */
static bool metric_is_known(const metric_set *m, uint32_t i)
{
    if (m->algorithm->metrics[i].reduce != NRL_REDUCE_DIFFERENCE) return m->list[i].any;
    return i >= 2 && metric_is_known(m, i - 2) && metric_is_known(m, i - 1);
}

void values_open(value_list *v, size_t n_values, arena *a)
{
    size_t room = n_values + N_OWN;
    *v = (value_list){.list = arena_alloc(a, room * sizeof *v->list), .room = room};
}

void values_add(value_list *v, const char *name, const char *unit, double value)
{
    NRL_ASSERT(v->n, <, v->room);
    v->list[v->n++] = (nrl_value){name, unit, value};
}

void values_add_metrics(value_list *v, const metric_set *m, const char *prefix, arena *names)
{
    for (uint32_t i = 0; i < m->n; i++) {
        const nrl_metric *row = &m->algorithm->metrics[i];
        if (!metric_is_known(m, i)) continue;
        const char *name = *prefix ? arena_printf(names, "%s%s", prefix, row->name) : row->name;
        values_add(v, name, row->unit, metric_value(m, i));
    }
}
