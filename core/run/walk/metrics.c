/*
 * metrics.c - reduces the metrics of plugins over a step or an evaluation, as their rows say.
 */
#include "run/walk/metrics.h"
#include "base/record_names.h"
#include "plugin/kinds.h"
#include <math.h>
#include <pthread.h>
#include <string.h>

nrl_status metrics_declare(metric_rows *rows, const nrl_plugin *of, const nrl_metric *m, nrl_status mistake, arena *a)
{
    const char *kind = plugin_kind_find(of->kind)->name, *name = of->name;
    uint32_t n = 0;
    while (m && m[n].name && n < METRICS_MAX)
        n++;
    if (n == METRICS_MAX)
        return nrl_fail(mistake,
                        "%s '%s' has more than %d metrics: '%s' is one too many; expected a row without a name after "
                        "the last one",
                        kind, name, METRICS_MAX - 1, m[n - 1].name);
    metric_row *list = arena_alloc(a, (rows->n + n + 1) * sizeof *list);
    if (rows->n) memcpy(list, rows->list, rows->n * sizeof *list);
    for (uint32_t i = 0; i < n; i++) {
        for (size_t k = 0; k < RECORD_N_NAMES; k++)
            if (!strcmp(record_names[k], m[i].name))
                return nrl_fail(mistake,
                                "%s '%s': metric '%s' has the name of the run's own metric '%s'; expected another name",
                                kind, name, m[i].name, record_names[k]);
        for (uint32_t k = 0; k < rows->n + i; k++)
            if (!strcmp(list[k].row->name, m[i].name))
                return nrl_fail(mistake, "%s '%s': metric '%s' is declared twice%s", kind, name, m[i].name,
                                k < rows->n ? ", also by another plugin of this run" : "");
        if (m[i].reduce == NRL_REDUCE_NONE || m[i].reduce > NRL_REDUCE_DIFFERENCE)
            return nrl_fail(mistake, "%s '%s': metric '%s' has no reduction; expected one of nrl_reduce", kind, name,
                            m[i].name);
        bool of_batch = of->kind == NRL_KIND_ALGORITHM || of->kind == NRL_KIND_MODEL || of->kind == NRL_KIND_ADAPTER;
        list[rows->n + i] = (metric_row){&m[i], of_batch};
    }
    *rows = (metric_rows){list, rows->n + n, rows->n_algorithm};
    return NRL_OK;
}

static pthread_mutex_t reporting = PTHREAD_MUTEX_INITIALIZER;
static metric_set *listening;                   /* the newest first */
static _Thread_local const metric_set *current; /* of several runs that are open; may be closed */
static _Atomic int32_t reported_shard;

bool metrics_has(const metric_rows *rows, const char *name)
{
    bool has = false;
    for (size_t k = 0; k < RECORD_N_NAMES; k++)
        has |= !strcmp(record_names[k], name);
    for (uint32_t k = 0; k < rows->n; k++)
        has |= !strcmp(rows->list[k].row->name, name);
    return has;
}

void metrics_open(metric_set *m, const metric_rows *rows, int32_t n_shards, arena *a)
{
    *m = (metric_set){.rows = rows,
                      .n_shards = n_shards,
                      .list = arena_alloc(a, ((size_t)n_shards * rows->n + 1) * sizeof *m->list),
                      .next = arena_alloc(a, ((size_t)n_shards * rows->n + 1) * sizeof *m->next)};
}

void metrics_listen(metric_set *m)
{
    pthread_mutex_lock(&reporting);
    m->older = listening;
    listening = m;
    pthread_mutex_unlock(&reporting);
    m->before = current;
    current = m;
}

void metrics_use(const metric_set *m)
{
    current = m;
}

void metrics_close(metric_set *m)
{
    pthread_mutex_lock(&reporting);
    metric_set **at = &listening;
    while (*at && *at != m)
        at = &(*at)->older;
    if (*at) *at = m->older;
    pthread_mutex_unlock(&reporting);
    if (current == m) current = m->before;
}

void metrics_begin(metric_set *m)
{
    m->shard = 0;
    metrics_take(m, m->list);
}

void metrics_take(metric_set *m, metric_sum *out)
{
    const size_t size = (size_t)m->n_shards * m->rows->n * sizeof *out;
    pthread_mutex_lock(&reporting);
    memcpy(out, m->next, size);
    memset(m->next, 0, size);
    pthread_mutex_unlock(&reporting);
}

void metrics_report_to(int32_t shard)
{
    reported_shard = shard;
}

/* The index of a row, which a script's loss may have copied from its base; the number of rows: it is not among them. */
static uint32_t row_index(const metric_set *m, const nrl_metric *row)
{
    uint32_t i = 0;
    while (i < m->rows->n && m->rows->list[i].row != row && strcmp(m->rows->list[i].row->name, row->name))
        i++;
    return i;
}

nrl_status nrl_metric_report_f64(const nrl_metric *row, double value, double weight)
{
    pthread_mutex_lock(&reporting);
    metric_set *m = listening;
    while (m && m != current)
        m = m->older;
    if (!m || row_index(m, row) == m->rows->n) m = listening;
    while (m && row_index(m, row) == m->rows->n)
        m = m->older;
    const int32_t shard = reported_shard;
    const uint32_t before = m && shard < m->n_shards ? (uint32_t)shard * m->rows->n : 0;
    if (m) metric_add(&m->next[before + row_index(m, row)], row->reduce, value, weight);
    pthread_mutex_unlock(&reporting);
    return m ? NRL_OK : nrl_fail(NRL_ERR_PLUGIN, "metric '%s' is not declared by a plugin of an open run", row->name);
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

nrl_status metrics_collect(metric_set *m, nrl_ctx *ctx, bool next)
{
    const ctx_metric *list;
    int64_t n;
    NRL_TRY(ctx_take_metrics(ctx, &list, &n));
    for (int64_t i = 0; i < n; i++) {
        const nrl_metric *row = list[i].row;
        uint32_t at = row ? row_index(m, row) : list[i].index;
        if (at >= m->rows->n && row)
            return nrl_fail(NRL_ERR_PLUGIN, "metric '%s' is not declared by a plugin of this run", row->name);
        if (!row && at >= m->rows->n_algorithm)
            return nrl_fail(NRL_ERR_PLUGIN, "the algorithm reported metric %u of %u", at, m->rows->n_algorithm);
        pthread_mutex_lock(&reporting);
        metric_sum *to = next ? m->next : m->list + (size_t)m->shard * m->rows->n;
        metric_add(&to[at], m->rows->list[at].row->reduce, list[i].value, list[i].weight);
        pthread_mutex_unlock(&reporting);
    }
    return NRL_OK;
}

static double metric_value(const metric_set *m, uint32_t i)
{
    const metric_sum *of = &m->list[i];
    switch (m->rows->list[i].row->reduce) {
    case NRL_REDUCE_DIFFERENCE:
        return i < 2 ? NAN : metric_value(m, i - 2) - metric_value(m, i - 1);
    case NRL_REDUCE_MEAN:
        return of->any ? of->value / of->weight : NAN;
    default:
        return of->any ? of->value : NAN;
    }
}

/* Whether the step has the metric: it was reported, with some weight if it is a mean, or, for a difference, both of its
 * metrics were. */
static bool metric_is_known(const metric_set *m, uint32_t i)
{
    const uint32_t reduce = m->rows->list[i].row->reduce;
    const bool has_weight = reduce != NRL_REDUCE_MEAN || m->list[i].weight != 0;
    if (reduce != NRL_REDUCE_DIFFERENCE) return m->list[i].any && has_weight;
    return i >= 2 && metric_is_known(m, i - 2) && metric_is_known(m, i - 1);
}

void values_open(value_list *v, size_t n_values, arena *a)
{
    *v = (value_list){.list = arena_alloc(a, (n_values + RECORD_N_NAMES) * sizeof *v->list),
                      .room = n_values + RECORD_N_NAMES};
}

void values_add(value_list *v, const char *name, const char *unit, double value)
{
    NRL_ASSERT(v->n, <, v->room);
    v->list[v->n++] = (nrl_value){name, unit, value};
}

void values_add_metrics(value_list *v, const metric_set *m, const char *prefix, arena *names)
{
    for (uint32_t i = 0; i < m->rows->n; i++) {
        const nrl_metric *row = m->rows->list[i].row;
        if (!metric_is_known(m, i)) continue;
        const char *name = *prefix ? arena_printf(names, "%s%s", prefix, row->name) : row->name;
        values_add(v, name, row->unit, metric_value(m, i));
    }
}
