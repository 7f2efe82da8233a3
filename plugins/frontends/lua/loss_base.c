/*
 * loss_base.c - nrl.loss{base = "dpo"}: the plugin whose loss a Lua loss extends. The needs, metrics and kind of
 * example of the definition's instance become the definition's. Each run has an instance of its own, which has the
 * state and the parameters of that run.
 */
#include "loss.h"

nrl_status loss_base_create(script_loss *l)
{
    nrl_status st = nrl_component_open(&l->host->run, NRL_KIND_ALGORITHM, "base", l->base_config, &l->component);
    if (st != NRL_OK) return st;
    const nrl_algorithm *table = (const nrl_algorithm *)nrl_component_table(l->component);
    l->base_self = nrl_component_options(l->component);
    if (table->create) st = table->create(l->base_self, &l->base_self);
    if (st == NRL_OK)
        l->base = table;
    else
        loss_base_close(l);
    return st;
}

void loss_base_open(lua_State *L, script_loss *l)
{
    arena *a = &l->host->memory;
    if (lua_getfield(L, 1, "base") == LUA_TNIL) return;
    l->base_config = script_to_node(L, -1, a, "nrl.loss: base");
    nrl_status st = loss_base_create(l);
    const char *code = st == NRL_OK ? nrl_component_identity(l->component) : NULL;
    if (code) {
        l->table.plugin.version = arena_printf(a, "script, base %s %s", l->base->plugin.name, code);
        return;
    }
    loss_base_close(l);
    script_raise(L, st == NRL_OK ? NRL_ERR_IO : st);
}

void loss_base_close(script_loss *l)
{
    if (l->base && l->base->create && l->base->destroy) l->base->destroy(l->base_self);
    nrl_component_close(l->component);
    l->base = NULL;
    l->component = NULL;
}

const char *const *loss_base_needs(const script_loss *l)
{
    if (!l->base) return NULL;
    return l->base->instance_needs ? l->base->instance_needs(l->base_self) : l->base->needs;
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
