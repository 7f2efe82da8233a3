/*
 * loss_base.c - nrl.loss{base = "dpo"}: the plugin whose loss a Lua loss extends. It is opened with the run, whose
 * config says where plugins are and which are allowed, so each run has an instance of its own, with the state and the
 * parameters of that run. The needs, metrics and kind of example of that instance become the loss's.
 */
#include "loss.h"
#include "permit.h"

static nrl_status open_base(script_loss *l, const nrl_node *plugins)
{
    NRL_TRY(script_component_open(l->host, plugins, NRL_KIND_ALGORITHM, "base", l->base_config, &l->component));
    const nrl_algorithm *table = (const nrl_algorithm *)nrl_component_table(l->component);
    l->base_self = nrl_component_options(l->component);
    if (table->create) NRL_TRY(table->create(l->base_self, &l->base_self));
    l->base = table;
    const char *code = nrl_component_identity(l->component);
    if (!code) return NRL_ERR_IO;
    l->table.plugin.version = arena_printf(&l->host->memory, "script, base %s %s", table->plugin.name, code);
    return NRL_OK;
}

static size_t length(const char *const *words)
{
    size_t n = 0;
    while (words && words[n])
        n++;
    return n;
}

/* The needs of the base come first. */
static void add_needs(script_loss *l)
{
    const nrl_algorithm *base = l->base;
    const char *const *below = base->instance_needs ? base->instance_needs(l->base_self) : base->needs;
    const char *const *own = l->table.needs;
    const char **all = arena_alloc(&l->host->memory, (length(below) + length(own) + 1) * sizeof *all);
    size_t n = 0;
    for (; below && *below; below++)
        all[n++] = *below;
    for (; own && *own; own++)
        all[n++] = *own;
    l->table.needs = all;
}

static size_t count_metrics(const nrl_metric *rows)
{
    size_t n = 0;
    while (rows && rows[n].name)
        n++;
    return n;
}

/* The base numbers its own metrics from 0. */
static void add_metrics(script_loss *l)
{
    const nrl_metric *below = l->base->metrics, *own = l->table.metrics;
    if (below && l->base->instance_metrics) below = l->base->instance_metrics(l->base_self);
    nrl_metric *all = arena_alloc(&l->host->memory, (count_metrics(below) + count_metrics(own) + 1) * sizeof *all);
    size_t n = 0;
    for (; below && below->name; below++)
        all[n++] = *below;
    for (; own && own->name; own++)
        all[n++] = *own;
    l->table.metrics = all;
}

/* What the base adds to the table. The terms of the base come first. */
static nrl_status add_base(script_loss *l)
{
    const nrl_algorithm *base = l->base;
    const char *name = l->table.plugin.name;
    if (!l->table.n_terms) l->table.n_terms = base->n_terms;
    if (l->table.n_terms < base->n_terms)
        return nrl_fail(NRL_ERR_CONFIG, "loss '%s': terms: got %u, but its base has %u", name, l->table.n_terms,
                        base->n_terms);
    if (l->table.tokenwise && (!base->tokenwise || (base->couples && base->couples(l->base_self))))
        return nrl_fail(NRL_ERR_CONFIG, "loss '%s': tokenwise: the base %s needs whole batches", name,
                        base->plugin.name);
    if (!l->table.example_kind) l->table.example_kind = base->example_kind;
    l->table.best = base->best;
    if (base->state) l->table.state = loss_state;
    if (base->group) l->table.group = loss_group;
    if (base->step_end) l->table.step_end = loss_step_end;
    if (base->model) l->table.model = loss_model;
    if (base->model) l->table.bind = loss_bind;
    if (base->open) l->table.open = loss_open;
    if (base->rollout) l->table.rollout = loss_rollout;
    if (base->updates) l->table.updates = loss_updates;
    l->table.rollout_columns = base->rollout_columns;
    add_needs(l);
    add_metrics(l);
    return NRL_OK;
}

nrl_status loss_base_open(script_loss *l, const nrl_node *plugins)
{
    nrl_status st = open_base(l, plugins);
    if (st == NRL_OK) st = add_base(l);
    if (st != NRL_OK) loss_base_close(l);
    return st;
}

void loss_base_close(script_loss *l)
{
    if (l->base && l->base->create && l->base->destroy) l->base->destroy(l->base_self);
    nrl_component_close(l->component);
    l->base = NULL;
    l->component = NULL;
}

/* ---- in a call ---- */

static const script_loss *with_base(lua_State *L, const char *method)
{
    const script_loss *l = script_of(L)->call.loss;
    if (!l->base) script_fail(L, "%s: this loss has no base\nhint: nrl.loss{base = \"sft\", ...}", method);
    return l;
}

int loss_base_push_weight(lua_State *L, const nrl_batch *b)
{
    const script_loss *l = with_base(L, "base_weight");
    double weight[NRL_MAX_TERMS] = {0};
    uint32_t n = l->base->n_terms;
    l->base->weight(l->base_self, b, weight);
    if (n > 1) lua_createtable(L, (int)n, 0);
    for (uint32_t k = 0; k < n; k++) {
        lua_pushnumber(L, weight[k]);
        if (n > 1) lua_rawseti(L, -2, (lua_Integer)k + 1);
    }
    return 1;
}

int loss_base_push_loss(lua_State *L, const nrl_batch *b)
{
    const script_loss *l = with_base(L, "base_loss");
    nrl_tensor *sums[NRL_MAX_TERMS] = {0};
    uint32_t n = l->base->n_terms;
    if (!script_of(L)->call.ctx)
        return script_fail(L, "base_loss: not available in `weight`, which runs before any forward");
    tensor_try(L, l->base->loss(l->base_self, script_of(L)->call.ctx, b, sums));
    if (n > 1) lua_createtable(L, (int)n, 0);
    for (uint32_t k = 0; k < n; k++) {
        tensor_push(L, sums[k]);
        if (n > 1) lua_rawseti(L, -2, (lua_Integer)k + 1);
    }
    return 1;
}

/* ---- members of the table that come from the base ---- */

nrl_status loss_state(void *self, nrl_state_io *state_io)
{
    script_loss *l = self;
    return l->base->state(l->base_self, state_io);
}

int64_t loss_group(void *self)
{
    script_loss *l = self;
    return l->base->group(l->base_self);
}

nrl_status loss_model(void *self, const nrl_node *config, const nrl_model_info *info, nrl_algorithm_model *out)
{
    const script_loss *l = self;
    return l->base->model(l->base_self, config, info, out);
}

void loss_bind(void *self, nrl_param *const *params)
{
    const script_loss *l = self;
    l->base->bind(l->base_self, params);
}

nrl_status loss_open(void *self, const nrl_algorithm_run *run)
{
    const script_loss *l = self;
    return l->base->open(l->base_self, run);
}

nrl_status loss_rollout(void *self, nrl_rollout *rollout)
{
    const script_loss *l = self;
    return l->base->rollout(l->base_self, rollout);
}

int64_t loss_updates(void *self)
{
    const script_loss *l = self;
    return l->base->updates(l->base_self);
}
