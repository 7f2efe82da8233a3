/*
 * strategy.c - opens the strategies of all axes on a model, and calls them in their order.
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

static nrl_parallel_plan question(const strategy_setup *setup, const nrl_unit_uses *units)
{
    const model *m = setup->m;
    return (nrl_parallel_plan){.size = sizeof(nrl_parallel_plan),
                               .instance = setup->instance,
                               .train = setup->train,
                               .quiet = setup->quiet,
                               .compute = setup->compute,
                               .n_states = setup->train ? setup->n_states : 0,
                               .reach = setup->reach,
                               .n_params = m->n_params,
                               .n_units = m->n_units,
                               .params = m->params,
                               .units = units,
                               .n_heads = m->facts.n_heads,
                               .n_kv_heads = m->facts.n_kv_heads,
                               .split16 = setup->train && setup->split16,
                               .bf16_gradients = setup->train && setup->bf16_gradients};
}

/* Ranks that step alone clip by a norm of their own, which other axes would have to share. */
static nrl_status check_local_steps(const strategy *s, const nrl_mesh *mesh)
{
    int32_t data = nrl_mesh_size(mesh, "data"), world = nrl_mesh_world(mesh);
    if (!s->plan.local_steps || data == world) return NRL_OK;
    return nrl_fail(NRL_ERR_CONFIG, "it lets ranks step alone (sync_every), which takes no axis beside data: %d of %d "
                                    "ranks are on it", (int)data, (int)world);
}

static nrl_status open_member(strategy *s, const strategy_setup *setup, const strategy_choice *choice)
{
    strategy_member *one = &s->of[s->n++];
    *one = (strategy_member){.table = choice->table, .plan = question(setup, s->units)};
    nrl_status st = one->table->create(choice->options, setup->mesh, &one->self);
    if (st != NRL_OK) one->self = NULL; /* whatever a failed create left there */
    else st = one->table->plan(one->self, &one->plan);
    if (st == NRL_OK) st = check_encodings(&one->plan);
    for (int32_t i = 0; i < setup->m->n_params; i++) layout_settle(setup->mesh, setup->m->params[i]);
    s->plan.gathers_work |= one->plan.gathers_work;
    s->plan.reduces_grads |= one->plan.reduces_grads;
    s->plan.local_steps |= one->plan.local_steps;
    s->plan.buffer_bytes += one->plan.buffer_bytes;
    if (st == NRL_OK) st = check_local_steps(s, setup->mesh);
    if (st != NRL_OK) nrl_note("parallel strategy '%s'", one->table->plugin.name);
    return st;
}

nrl_status strategy_open(const strategy_setup *setup, strategy *out)
{
    *out = (strategy){0};
    if (!setup->choices->n) return NRL_OK;
    out->units = units_of(setup->m);
    for (int32_t i = 0; i < setup->choices->n; i++) NRL_TRY(open_member(out, setup, &setup->choices->of[i]));
    return NRL_OK;
}

nrl_status strategy_bind(const strategy *s, nrl_ctx *ctx)
{
    for (int32_t i = 0; i < s->n; i++)
        if (s->of[i].table->bind) NRL_TRY(s->of[i].table->bind(s->of[i].self, ctx));
    return NRL_OK;
}

nrl_status strategy_updated(const strategy *s, nrl_ctx *ctx, int64_t step)
{
    for (int32_t i = 0; i < s->n; i++)
        if (s->of[i].table->updated) NRL_TRY(s->of[i].table->updated(s->of[i].self, ctx, step));
    return NRL_OK;
}

/* What the strategies do in between counts as communication. */
static ctx_phase phase_begin(const strategy *s, nrl_ctx *ctx)
{
    return s && s->n ? ctx_phase_set(ctx, CTX_PHASE_COMMUNICATION) : CTX_PHASE_NONE;
}

static nrl_status phase_end(nrl_ctx *ctx, ctx_phase before, nrl_status st)
{
    if (before != CTX_PHASE_NONE) ctx_phase_set(ctx, before);
    return st;
}

/* One axis answers: the others' members are NULL. */
static nrl_status answer_seam(void *user, nrl_ctx *ctx, uint32_t seam, bool back, nrl_tensor *x, nrl_tensor **y)
{
    const strategy *s = user;
    *y = x;
    for (int32_t k = 0; k < s->n; k++)
        if (s->of[k].table->seam) return s->of[k].table->seam(s->of[k].self, ctx, seam, back, x, y);
    return NRL_OK;
}

static bool answers_seams(const strategy *s)
{
    for (int32_t k = 0; s && k < s->n; k++)
        if (s->of[k].table->seam) return true;
    return false;
}

static nrl_status enter_all(const strategy *s, nrl_ctx *ctx, const nrl_visit *visits, int64_t i)
{
    ctx_set_seams(ctx, answers_seams(s) ? answer_seam : NULL, (void *)(uintptr_t)s);
    for (int32_t k = s ? s->n : 0; k-- > 0;)
        if (s->of[k].table->enter) NRL_TRY(s->of[k].table->enter(s->of[k].self, ctx, visits, i));
    return NRL_OK;
}

static nrl_status leave_all(const strategy *s, nrl_ctx *ctx, const nrl_visit *visits, int64_t i)
{
    for (int32_t k = 0; s && k < s->n; k++)
        if (s->of[k].table->leave) NRL_TRY(s->of[k].table->leave(s->of[k].self, ctx, visits, i));
    return NRL_OK;
}

static nrl_status finish_all(const strategy *s, nrl_ctx *ctx)
{
    for (int32_t k = s ? s->n : 0; k-- > 0;)
        if (s->of[k].table->finish) NRL_TRY(s->of[k].table->finish(s->of[k].self, ctx));
    return NRL_OK;
}

nrl_status strategy_enter(const strategy *s, nrl_ctx *ctx, const nrl_visit *visits, int64_t i)
{
    ctx_phase before = phase_begin(s, ctx);
    return phase_end(ctx, before, enter_all(s, ctx, visits, i));
}

nrl_status strategy_leave(const strategy *s, nrl_ctx *ctx, const nrl_visit *visits, int64_t i)
{
    ctx_phase before = phase_begin(s, ctx);
    return phase_end(ctx, before, leave_all(s, ctx, visits, i));
}

nrl_status strategy_finish(const strategy *s, nrl_ctx *ctx)
{
    ctx_phase before = phase_begin(s, ctx);
    return phase_end(ctx, before, finish_all(s, ctx));
}

void strategy_close(strategy *s, nrl_ctx *ctx)
{
    for (int32_t i = s->n; i-- > 0;) {
        const strategy_member *one = &s->of[i];
        if (one->self && ctx && one->table->unbind) one->table->unbind(one->self, ctx);
        if (one->self) one->table->destroy(one->self);
    }
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
