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

void pipeline_balance(const double *costs, int32_t n_units, int32_t n_stages, int32_t *first)
{
    size_t size = (size_t)n_units * (size_t)n_stages;
    table t = {costs, n_units, calloc(size, sizeof *t.best), calloc(size, sizeof *t.from)};
    NRL_ASSERT(n_stages, <=, n_units);
    for (int32_t s = 0; t.best && t.from && s < n_stages; s++)
        for (int32_t u = s; u < n_units; u++)
            fill(&t, s, u);
    first[n_stages] = n_units;
    for (int32_t s = n_stages - 1; s >= 0; s--)
        first[s] = s == 0 ? 0 : t.from && t.best ? t.from[s * n_units + first[s + 1] - 1] : first[s + 1] - 1;
    free(t.best);
    free(t.from);
}

/* ---- by option ---- */

static nrl_status wrong(const pipeline *p, const char *problem, int64_t found)
{
    return nrl_fail(NRL_ERR_CONFIG,
                    "split: %s %lld; expected a list of %d numbers of units whose sum is %d ('%s' to '%s')", problem,
                    (long long)found, p->n * p->shape.n_chunks, p->plan.n_units, p->plan.units[0].name,
                    p->plan.units[p->plan.n_units - 1].name);
}

static nrl_status split_by_option(pipeline *p)
{
    const nrl_node *list = p->options.split;
    const int32_t n_stages = p->n * p->shape.n_chunks;
    int64_t total = 0;
    bool is_list = nrl_node_kind(list) == NRL_NODE_LIST;
    if (!is_list)
        return nrl_fail(NRL_ERR_CONFIG, "split: expected a list of %d numbers of units, such as [3, 3]", n_stages);
    if (nrl_node_size(list) != (size_t)n_stages)
        return wrong(p, "the number of stages is", (int64_t)nrl_node_size(list));
    for (int32_t s = 0; s < n_stages; s++) {
        int64_t units = nrl_node_int(nrl_node_at(list, (size_t)s), 0);
        if (units < 1) return wrong(p, "a stage's number of units is", units);
        if (units > p->plan.n_units) units = p->plan.n_units + 1;
        p->first[s] = (int32_t)total;
        total += units;
    }
    p->first[n_stages] = p->plan.n_units;
    return total == p->plan.n_units ? NRL_OK : wrong(p, "the sum of units is", total);
}

static bool is_given(const nrl_node *list)
{
    return nrl_node_kind(list) != NRL_NODE_NONE && nrl_node_kind(list) != NRL_NODE_NULL;
}

/* The option describes the policy; a reference model of another depth, or on fewer stages, is split by cost. */
static bool is_split_given(const pipeline *p)
{
    const nrl_node *list = p->options.split;
    int64_t total = 0;
    if (!is_given(list)) return false;
    if (p->plan.instance == 0) return true;
    for (size_t s = 0; s < nrl_node_size(list); s++)
        total += nrl_node_int(nrl_node_at(list, s), 0);
    return total == p->plan.n_units && nrl_node_size(list) == (size_t)(p->n * p->shape.n_chunks);
}

/* Costs of units as the option says: given, or those of the model's products, or all alike. */
static nrl_status set_costs(const pipeline *p, double *costs)
{
    const nrl_node *list = p->options.costs;
    const bool given = is_given(list) && p->plan.instance == 0;
    const size_t n = (size_t)p->plan.n_units;
    if (given && (nrl_node_kind(list) != NRL_NODE_LIST || nrl_node_size(list) != n))
        return nrl_fail(NRL_ERR_CONFIG, "costs: expected a list of %d numbers, one a unit ('%s' to '%s')",
                        p->plan.n_units, p->plan.units[0].name, p->plan.units[n - 1].name);
    for (size_t u = 0; u < n; u++) {
        costs[u] = p->options.balance == PIPELINE_BY_UNITS ? 1 : p->plan.unit_flops[u];
        if (given) costs[u] = nrl_node_f64(nrl_node_at(list, u), -1);
        if (!(costs[u] >= 0) || isinf(costs[u]))
            return nrl_fail(NRL_ERR_CONFIG, "costs: the cost of unit '%s' is not a number from 0",
                            p->plan.units[u].name);
    }
    return NRL_OK;
}

nrl_status pipeline_split(pipeline *p)
{
    const int32_t n_stages = p->n * p->shape.n_chunks;
    if (n_stages > p->plan.n_units)
        return nrl_fail(
            NRL_ERR_CONFIG,
            "cannot split the model into %d stages: it has %d units ('%s' to '%s'), and each stage needs one", n_stages,
            p->plan.n_units, p->plan.units[0].name, p->plan.units[p->plan.n_units - 1].name);
    NRL_TRY(set_costs(p, p->costs));
    if (is_split_given(p)) return split_by_option(p);
    pipeline_balance(p->costs, p->plan.n_units, n_stages, p->first);
    return NRL_OK;
}
