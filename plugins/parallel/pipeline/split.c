/*
 * split.c - assigns units to stages.
 */
#include "pipeline.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- by cost ---- */

/* best[s][u]: cost of the most expensive of s + 1 stages over the first u + 1 units; from[s][u]: first
 * unit of the last of these stages. */
typedef struct {
    const double *costs;
    int32_t n_units;
    double *best;
    int32_t *from;
} table;

static void fill(table *t, int32_t s, int32_t u)
{
    double last = 0, *best = &t->best[s * t->n_units + u];
    *best = INFINITY;
    for (int32_t b = u; b >= s; b--) { /* the last stage has units b .. u */
        last += t->costs[b];
        double before = s ? t->best[(s - 1) * t->n_units + b - 1] : b ? INFINITY : 0;
        double dearest = before > last ? before : last;
        if (dearest >= *best) continue;
        *best = dearest;
        t->from[s * t->n_units + u] = b;
    }
}

void pipeline_balance(const double *costs, int32_t n_units, int32_t n_stages, int32_t *stages)
{
    size_t size = (size_t)n_units * (size_t)n_stages;
    table t = {costs, n_units, calloc(size, sizeof *t.best), calloc(size, sizeof *t.from)};
    NRL_ASSERT(n_stages, <=, n_units);
    for (int32_t s = 0; t.best && t.from && s < n_stages; s++)
        for (int32_t u = s; u < n_units; u++)
            fill(&t, s, u);
    int32_t end = n_units;
    for (int32_t s = n_stages - 1; s >= 0; s--) {
        int32_t begin = s == 0 ? 0 : t.from && t.best ? t.from[s * n_units + end - 1] : end - 1;
        for (int32_t u = begin; u < end; u++)
            stages[u] = s;
        end = begin;
    }
    free(t.best);
    free(t.from);
}

/* ---- by option ---- */

static nrl_status wrong(const pipeline *p, const char *problem, int64_t found)
{
    return nrl_fail(NRL_ERR_CONFIG,
                    "split: %s %lld; expected a list of %d numbers of units whose sum is %d ('%s' to '%s')", problem,
                    (long long)found, p->n, p->plan.n_units, p->plan.units[0].name,
                    p->plan.units[p->plan.n_units - 1].name);
}

static nrl_status split_by_option(pipeline *p)
{
    const nrl_node *list = p->options.split;
    int64_t total = 0;
    bool is_list = nrl_node_kind(list) == NRL_NODE_LIST;
    if (!is_list)
        return nrl_fail(NRL_ERR_CONFIG, "split: expected a list of %d numbers of units, such as [3, 3]", p->n);
    if (nrl_node_size(list) != (size_t)p->n) return wrong(p, "the number of stages is", (int64_t)nrl_node_size(list));
    for (int32_t s = 0; s < p->n; s++) {
        const nrl_node *at = nrl_node_at(list, (size_t)s);
        int64_t units = nrl_node_int(at, 0);
        if (units < 1) return wrong(p, "a stage's number of units is", units);
        for (int64_t k = 0; k < units && total + k < p->plan.n_units; k++)
            p->stages[total + k] = s;
        if (units > p->plan.n_units) units = p->plan.n_units + 1;
        total += units;
    }
    return total == p->plan.n_units ? NRL_OK : wrong(p, "the sum of units is", total);
}

/* The option describes the policy; a reference model of another depth is split by cost. */
static bool is_split_given(const pipeline *p)
{
    const nrl_node *list = p->options.split;
    nrl_node_type type = nrl_node_kind(list);
    int64_t total = 0;
    if (type == NRL_NODE_NONE || type == NRL_NODE_NULL) return false;
    if (p->plan.instance == 0) return true;
    for (size_t s = 0; s < nrl_node_size(list); s++)
        total += nrl_node_int(nrl_node_at(list, s), 0);
    return total == p->plan.n_units;
}

nrl_status pipeline_split(pipeline *p)
{
    if (p->n > p->plan.n_units)
        return nrl_fail(
            NRL_ERR_CONFIG,
            "cannot split the model into %d stages: it has %d units ('%s' to '%s'), and each stage needs one", p->n,
            p->plan.n_units, p->plan.units[0].name, p->plan.units[p->plan.n_units - 1].name);
    if (is_split_given(p)) return split_by_option(p);
    pipeline_balance(p->plan.unit_flops, p->plan.n_units, p->n, p->stages);
    return NRL_OK;
}
