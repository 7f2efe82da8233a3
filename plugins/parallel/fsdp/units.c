/*
 * units.c - from the model's units to groups: the place of every parameter in its flat buffer. Trained
 * and frozen parameters never share a group, because only trained parameters have gradients and f32
 * masters.
 */
#include "fsdp.h"
#include <stdlib.h>
#include <string.h>

/* ---- the option ---- */

static nrl_status read_number(const nrl_node *node, const char *key, int64_t *out)
{
    const nrl_node *value = nrl_node_find(node, key);
    if (!value) return NRL_OK;
    *out = nrl_node_int(value, 0);
    if (*out > 0) return NRL_OK;
    return nrl_fail(NRL_ERR_CONFIG, "units.%s: expected a whole number from 1", key);
}

static bool are_names(const nrl_node *list)
{
    for (size_t i = 0; i < nrl_node_size(list); i++)
        if (!nrl_node_string(nrl_node_at(list, i), NULL)) return false;
    return nrl_node_kind(list) == NRL_NODE_LIST && nrl_node_size(list) > 0;
}

nrl_status fsdp_read_units(const nrl_node *node, fsdp_units *out)
{
    *out = (fsdp_units){0};
    nrl_node_type type = nrl_node_kind(node);
    const char *word = nrl_node_string(node, NULL);
    if (type == NRL_NODE_NONE || type == NRL_NODE_NULL || (word && (!*word || !strcmp(word, "model")))) return NRL_OK;
    NRL_TRY(read_number(node, "every", &out->every));
    NRL_TRY(read_number(node, "min_params", &out->min_params));
    out->begin = nrl_node_find(node, "begin");
    if (out->begin && !are_names(out->begin))
        return nrl_fail(NRL_ERR_CONFIG, "units.begin: expected a list of names of units");
    if (type == NRL_NODE_MAP && nrl_node_size(node) == 1 && (out->every || out->min_params || out->begin))
        return NRL_OK;
    return nrl_fail(NRL_ERR_CONFIG, "units: expected model, {every: n}, {min_params: n} or {begin: [UNIT, ...]}");
}

/* ---- runs: consecutive units that are gathered together ---- */

static int64_t unit_numel(const nrl_unit_uses *u)
{
    int64_t n = 0;
    for (int32_t i = 0; i < u->n_uses; i++)
        n += nrl_param_numel(u->uses[i]);
    return n;
}

static bool is_begin(const fsdp *s, int32_t unit)
{
    for (size_t i = 0; i < nrl_node_size(s->merge.begin); i++)
        if (!strcmp(nrl_node_string(nrl_node_at(s->merge.begin, i), ""), s->plan.units[unit].name)) return true;
    return false;
}

/* A reference may be another model, with other units. */
static nrl_status check_names(const fsdp *s)
{
    for (size_t i = 0; !s->plan.instance && i < nrl_node_size(s->merge.begin); i++) {
        const char *name = nrl_node_string(nrl_node_at(s->merge.begin, i), "");
        int32_t u = 0;
        while (u < s->plan.n_units && strcmp(name, s->plan.units[u].name))
            u++;
        if (u == s->plan.n_units)
            return nrl_fail(NRL_ERR_CONFIG,
                            "units.begin: the model has no unit '%s'; expected a name from '%s' to '%s'", name,
                            s->plan.units[0].name, s->plan.units[u - 1].name);
    }
    return NRL_OK;
}

static void number_runs(fsdp *s)
{
    int64_t gathered = 0;
    int32_t in_run = 0;
    bool apart = false; /* from this rank's unit before */
    s->n_runs = 0;
    for (int32_t u = 0; u < s->plan.n_units; u++) {
        bool full = s->merge.begin   ? is_begin(s, u)
                    : s->merge.every ? in_run >= s->merge.every
                                     : gathered >= s->merge.min_params;
        if (!s->plan.units[u].n_uses) { /* another stage runs this unit */
            s->run_of[u] = s->n_runs > 0 ? s->n_runs - 1 : 0;
            apart = true;
            continue;
        }
        if (!s->n_runs || full || apart) {
            s->n_runs++;
            gathered = in_run = 0;
            apart = false;
        }
        s->run_of[u] = s->n_runs - 1;
        gathered += unit_numel(&s->plan.units[u]);
        in_run++;
    }
}

/* ---- groups ---- */

/* Whether this mode shards the parameter at all. */
static bool takes(const fsdp *s, const nrl_param *p)
{
    return s->options.shard == FSDP_FULL || nrl_param_trained(p);
}

static fsdp_group *group_of(fsdp *s, const nrl_param *p)
{
    for (int32_t g = 0; g < s->n_groups; g++)
        for (int32_t i = 0; i < s->groups[g].n_params; i++)
            if (s->groups[g].params[i].param == p) return &s->groups[g];
    return NULL;
}

static bool is_trained(const fsdp *s, const nrl_param *p)
{
    return s->plan.train && nrl_param_trained(p);
}

static fsdp_group *new_group(fsdp *s, const char *name, int32_t unit, int32_t run, bool trained)
{
    fsdp_group *g = &s->groups[s->n_groups++];
    *g = (fsdp_group){.trained = trained,
                      .first_unit = unit,
                      .first_run = run,
                      .last_run = run,
                      .work_slot = -1,
                      .acc_slot = -1,
                      .wire_slot = -1};
    snprintf(g->name, sizeof g->name, "%s%s", name, trained || !s->plan.train ? "" : " (frozen)");
    snprintf(g->gather_text, sizeof g->gather_text, "gather %s", g->name);
    snprintf(g->reduce_text, sizeof g->reduce_text, "reduce %s", g->name);
    snprintf(g->replica_text, sizeof g->replica_text, "sum of replicas %s", g->name);
    return g;
}

/* A parameter that several stages hold is in a group of its own, so that all of them shard it alike. */
static bool stands_alone(nrl_param *p)
{
    const bool *owner_stages = nrl_param_part(p, 0)->layout.owner_stages;
    int32_t n = 0;
    for (int32_t k = 0; owner_stages && k < nrl_param_part(p, 0)->layout.n_holders; k++)
        n += owner_stages[k];
    return n > 1;
}

/* The open group of a run for trained or for frozen parameters; created at its first parameter. */
static fsdp_group *open_group(fsdp *s, fsdp_group **open, int32_t unit, bool trained)
{
    if (!open[trained] || open[trained]->first_run != s->run_of[unit])
        open[trained] = new_group(s, s->plan.units[unit].name, unit, s->run_of[unit], trained);
    return open[trained];
}

static nrl_status add_param(const fsdp *s, fsdp_group *g, nrl_param *p)
{
    fsdp_param *more = realloc(g->params, (size_t)(g->n_params + 1) * sizeof *more);
    if (!more) return nrl_fail(NRL_ERR_MEMORY, "out of memory for strategy 'fsdp'");
    g->params = more;
    g->params[g->n_params++] = (fsdp_param){.param = p, .offset = g->numel};
    g->whole += nrl_param_numel(p);
    g->numel += (nrl_param_numel(p) + s->align - 1) / s->align * s->align;
    return NRL_OK;
}

/* Even shares, and this rank's range of each parameter. */
static void divide(const fsdp *s, fsdp_group *g)
{
    int64_t unit = s->n_ranks * s->align;
    g->padded = (g->numel + unit - 1) / unit * unit;
    g->share = g->padded / s->n_ranks;
    for (int32_t i = 0; i < g->n_params; i++) {
        fsdp_param *p = &g->params[i];
        int64_t n = nrl_param_numel(p->param), begin = s->rank * g->share - p->offset, end = begin + g->share;
        p->begin = begin < 0 ? 0 : begin > n ? n : begin;
        p->end = end < 0 ? 0 : end > n ? n : end;
        g->local += p->end - p->begin;
    }
}

static nrl_status fill_groups(fsdp *s)
{
    fsdp_group *open[2] = {NULL, NULL};
    for (int32_t u = 0; u < s->plan.n_units; u++)
        for (int32_t i = 0; i < s->plan.units[u].n_uses; i++) {
            nrl_param *p = s->plan.units[u].uses[i];
            if (!takes(s, p) || group_of(s, p)) continue;
            NRL_TRY(add_param(s,
                              stands_alone(p) ? new_group(s, nrl_param_name(p), u, s->run_of[u], is_trained(s, p))
                                              : open_group(s, open, u, is_trained(s, p)),
                              p));
        }
    return NRL_OK;
}

/* Parameters that no unit uses: no action computes their gradient, which is zero, but they are saved and counted. */
static nrl_status fill_unused(fsdp *s)
{
    fsdp_group *unused[2] = {NULL, NULL};
    for (int32_t i = 0; i < s->plan.n_params; i++) {
        nrl_param *p = s->plan.params[i];
        bool trained = is_trained(s, p);
        if (!takes(s, p) || group_of(s, p)) continue;
        if (!unused[trained]) unused[trained] = new_group(s, "unused", -1, s->n_runs, trained);
        NRL_TRY(add_param(s, unused[trained], p));
    }
    return NRL_OK;
}

/* The groups that a unit uses, each once. */
static nrl_status fill_uses(fsdp *s, int32_t u)
{
    const nrl_unit_uses *unit = &s->plan.units[u];
    fsdp_uses *uses = &s->uses[u];
    uses->groups = calloc((size_t)unit->n_uses + 1, sizeof(fsdp_group *));
    if (!uses->groups) return nrl_fail(NRL_ERR_MEMORY, "out of memory for strategy 'fsdp'");
    for (int32_t i = 0; i < unit->n_uses; i++) {
        fsdp_group *g = group_of(s, unit->uses[i]);
        bool known = !g;
        for (int32_t k = 0; k < uses->n; k++)
            known = known || uses->groups[k] == g;
        if (known) continue;
        uses->groups[uses->n++] = g;
        g->last_run = s->run_of[u];
    }
    return NRL_OK;
}

nrl_status fsdp_build_groups(fsdp *s)
{
    size_t n = (size_t)s->plan.n_units + 1;
    s->run_of = calloc(n, sizeof *s->run_of);
    s->uses = calloc(n, sizeof *s->uses);
    s->groups = calloc(2 * n + 2 + (size_t)s->plan.n_params, sizeof *s->groups);
    if (!s->run_of || !s->uses || !s->groups) return nrl_fail(NRL_ERR_MEMORY, "out of memory for strategy 'fsdp'");
    NRL_TRY(check_names(s));
    number_runs(s);
    NRL_TRY(fill_groups(s));
    NRL_TRY(fill_unused(s));
    for (int32_t g = 0; g < s->n_groups; g++)
        divide(s, &s->groups[g]);
    for (int32_t u = 0; u < s->plan.n_units; u++)
        NRL_TRY(fill_uses(s, u));
    return NRL_OK;
}

void fsdp_free_groups(fsdp *s)
{
    for (int32_t g = 0; s->groups && g < s->n_groups; g++)
        free(s->groups[g].params);
    for (int32_t u = 0; s->uses && u < s->plan.n_units; u++)
        free(s->uses[u].groups);
    free(s->groups);
    free(s->uses);
    free(s->run_of);
    free(s->ranges);
}
