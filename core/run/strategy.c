/*
 * strategy.c - opens a strategy on a model.
 */
#include "run/strategy.h"
#include <stdlib.h>

static nrl_unit_uses *units_of(const model *m)
{
    nrl_unit_uses *units = mem_alloc((size_t)m->n_units * sizeof *units);
    for (int32_t u = 0; u < m->n_units; u++)
        units[u] = (nrl_unit_uses){.name = m->units[u].name, .n_uses = m->units[u].n_uses, .uses = m->units[u].uses};
    return units;
}

/* A strategy that does not answer would bind what it always does. */
static nrl_status check_encodings(const nrl_parallel_plan *plan)
{
    if (plan->split16 && !plan->takes_split16)
        return nrl_fail(NRL_ERR_CONFIG, "it holds masters in fp32, train.master is split16");
    if (plan->bf16_gradients && !plan->takes_bf16_gradients)
        return nrl_fail(NRL_ERR_CONFIG, "it holds gradients in fp32, train.gradients is bf16");
    return NRL_OK;
}

nrl_status strategy_open(const strategy_setup *setup, strategy *out)
{
    const model *m = setup->m;
    *out = (strategy){.choice = setup->choice};
    if (!setup->choice.table) return NRL_OK;
    out->units = units_of(m);
    out->plan = (nrl_parallel_plan){.size = sizeof out->plan,
                                    .instance = setup->instance,
                                    .train = setup->train,
                                    .quiet = setup->quiet,
                                    .compute = setup->compute,
                                    .n_states = setup->train ? setup->n_states : 0,
                                    .reach = setup->reach,
                                    .n_params = m->n_params,
                                    .n_units = m->n_units,
                                    .params = m->params,
                                    .units = out->units,
                                    .split16 = setup->train && setup->split16,
                                    .bf16_gradients = setup->train && setup->bf16_gradients};
    const nrl_parallel *t = setup->choice.table;
    nrl_status st = t->create(setup->choice.options, setup->mesh, &out->self);
    if (st != NRL_OK) out->self = NULL; /* whatever a failed create left there */
    else st = t->plan(out->self, &out->plan);
    if (st == NRL_OK) st = check_encodings(&out->plan);
    if (st != NRL_OK) nrl_note("parallel strategy '%s'", t->plugin.name);
    return st;
}

nrl_status strategy_bind(const strategy *s, nrl_ctx *ctx)
{
    return s->self && s->choice.table->bind ? s->choice.table->bind(s->self, ctx) : NRL_OK;
}

nrl_status strategy_updated(const strategy *s, nrl_ctx *ctx, int64_t step)
{
    return s->self && s->choice.table->updated ? s->choice.table->updated(s->self, ctx, step) : NRL_OK;
}

void strategy_close(strategy *s, nrl_ctx *ctx)
{
    if (s->self && ctx && s->choice.table->unbind) s->choice.table->unbind(s->self, ctx);
    if (s->self) s->choice.table->destroy(s->self);
    free(s->units);
    *s = (strategy){0};
}

storage_spec strategy_storage(const strategy *s, const strategy_setup *setup)
{
    return (storage_spec){.mesh = setup->mesh,
                          .compute = setup->compute,
                          .train = setup->train,
                          .split16 = setup->train && setup->split16,
                          .bf16_gradients = setup->train && setup->bf16_gradients,
                          .n_states = setup->n_states,
                          .gathers_work = s->plan.gathers_work,
                          .reduces_grads = s->plan.reduces_grads};
}

void strategy_attach(const strategy *s, work *w)
{
    w->strategy = s->choice.table;
    w->strategy_self = s->self;
}
