/*
 * strategy.c - calls the strategies of all axes in their order; strategy_plan.c has opened them.
 */
#include "run/walk/strategy.h"
#include <stdlib.h>

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

/* Enters the state, or leaves it. */
static nrl_status set_state(const strategy_member *m, strategy_state state, nrl_ctx *ctx, bool on)
{
    nrl_status (*set)(void *, nrl_ctx *, bool) = state == STRATEGY_AVERAGE ? m->table->average : m->table->hold;
    return set ? set(m->self, ctx, on) : NRL_OK;
}

nrl_status strategy_begin(const strategy *s, strategy_state state, nrl_ctx *ctx)
{
    for (int32_t i = 0; i < s->n; i++)
        NRL_TRY(set_state(&s->of[i], state, ctx, true));
    return NRL_OK;
}

nrl_status strategy_end(const strategy *s, strategy_state state, nrl_ctx *ctx, nrl_status st)
{
    for (int32_t i = s->n; i-- > 0;) {
        nrl_status own = set_state(&s->of[i], state, ctx, false);
        if (st == NRL_OK) st = own;
    }
    return st;
}

/* The time of strategies in between counts as communication. */
static nrl_phase phase_begin(const strategy *s, nrl_ctx *ctx)
{
    return s && s->n ? ctx_phase_set(ctx, NRL_PHASE_COMMUNICATION) : NRL_PHASE_NONE;
}

static nrl_status phase_end(nrl_ctx *ctx, nrl_phase before, nrl_status st)
{
    if (before != NRL_PHASE_NONE) ctx_phase_set(ctx, before);
    return st;
}

static nrl_status answer_tp_region(void *user, nrl_ctx *ctx, uint32_t tp_region, bool back, nrl_tensor *x,
                                   nrl_tensor **y)
{
    const strategy_member *one = user;
    return one->table->tp_region(one->self, ctx, tp_region, back, x, y);
}

static nrl_status begin_tp_region(void *user, nrl_ctx *ctx, uint32_t tp_region, bool back, nrl_tensor *x,
                                  nrl_tensor **y, nrl_work **work)
{
    const strategy_member *one = user;
    return one->table->tp_region_begin(one->self, ctx, tp_region, back, x, y, work);
}

static void answer_tokens(void *user, int64_t n, int64_t *begin, int64_t *end)
{
    const strategy_member *one = user;
    one->table->tokens(one->self, n, begin, end);
}

/* Only one axis can answer: the others do not have the member. */
static void set_tp_regions(const strategy *s, nrl_ctx *ctx)
{
    ctx_settings_of(ctx)->tp_regions = (ctx_tp_regions){0};
    for (int32_t k = 0; s && k < s->n; k++) {
        const strategy_member *one = &s->of[k];
        const ctx_tp_regions regions = {.answer = answer_tp_region,
                                        .begin = one->plan.overlaps ? begin_tp_region : NULL,
                                        .wait = nrl_work_wait,
                                        .tokens = one->plan.shards_tokens ? answer_tokens : NULL,
                                        .user = (void *)(uintptr_t)one};
        if (one->table->tp_region) ctx_settings_of(ctx)->tp_regions = regions;
    }
}

int64_t strategy_rows(const strategy *s, int64_t n)
{
    int64_t begin = 0, end = n;
    for (int32_t k = 0; s && k < s->n; k++)
        if (s->of[k].plan.shards_tokens) s->of[k].table->tokens(s->of[k].self, n, &begin, &end);
    return end - begin;
}

const strategy_member *strategy_dividing(const strategy *s, nrl_divides what)
{
    for (int32_t k = 0; s && k < s->n; k++)
        if (s->of[k].axis->divides == what && nrl_mesh_size(s->mesh, s->of[k].axis->name) > 1) return &s->of[k];
    return NULL;
}

nrl_status strategy_divide(const strategy *s, nrl_batch *batch)
{
    const strategy_member *one = strategy_dividing(s, NRL_DIVIDES_TOKENS);
    if (!one || batch->is_tail || (batch->own && batch->own->n_extra == batch->n_extra)) return NRL_OK;
    int32_t *own = mem_try((size_t)batch->n_tokens * sizeof *own, "tokens of this rank");
    if (!own) return NRL_ERR_MEMORY;
    int64_t n = one->table->divide(one->self, batch->n_tokens, own);
    const bool divides = n > 0;
    for (; !divides && n < batch->n_tokens; n++)
        own[n] = (int32_t)n;
    nrl_status st = batch_divide(batch, own, n, divides || !nrl_mesh_coord(s->mesh, one->axis->name));
    free(own);
    return st;
}

nrl_status strategy_whole(const strategy *s, nrl_ctx *ctx, const int32_t *number, int64_t n, int64_t rows,
                          nrl_tensor **x)
{
    const strategy_member *one = strategy_dividing(s, NRL_DIVIDES_TOKENS);
    const int64_t dims[] = {rows, nrl_tensor_n_dims(*x) > 1 ? nrl_tensor_dim(*x, 1) : 1};
    if (n)
        NRL_TRY(nrl_op_segment_sum(ctx, *x, number, n, rows, x));
    else
        NRL_TRY(nrl_tensor_new(ctx, nrl_tensor_dtype(*x), nrl_tensor_n_dims(*x), dims, x));
    if (!n) NRL_TRY(nrl_tensor_fill(ctx, *x, 0));
    return one->table->sum(one->self, ctx, *x);
}

nrl_status strategy_enter(const strategy *s, nrl_ctx *ctx, const nrl_action *actions, int64_t i)
{
    double flops = ctx_settings_of(ctx)->flops;
    nrl_phase before = phase_begin(s, ctx);
    nrl_status st = NRL_OK;
    set_tp_regions(s, ctx);
    const strategy_member *tokens = strategy_dividing(s, NRL_DIVIDES_TOKENS),
                          *experts = strategy_dividing(s, NRL_DIVIDES_EXPERTS);
    ctx_experts divided = {.n = 1};
    if (experts)
        divided = (ctx_experts){experts->table->exchange, experts->self, nrl_mesh_size(s->mesh, experts->axis->name),
                                nrl_mesh_coord(s->mesh, experts->axis->name)};
    ctx_settings_of(ctx)->experts = divided;
    if (tokens)
        ctx_settings_of(ctx)->divided = (ctx_divided){tokens->table->attention, tokens->table->sum, tokens->self};
    for (int32_t k = s ? s->n : 0; k-- > 0 && st == NRL_OK;)
        if (s->of[k].table->enter) st = s->of[k].table->enter(s->of[k].self, ctx, actions, i);
    ctx_settings_of(ctx)->flops = flops; /* products of a compression are not part of the model */
    return phase_end(ctx, before, st);
}

nrl_status strategy_leave(const strategy *s, nrl_ctx *ctx, const nrl_action *actions, int64_t i)
{
    double flops = ctx_settings_of(ctx)->flops;
    nrl_phase before = phase_begin(s, ctx);
    nrl_status st = NRL_OK;
    for (int32_t k = 0; s && k < s->n && st == NRL_OK; k++)
        if (s->of[k].table->leave) st = s->of[k].table->leave(s->of[k].self, ctx, actions, i);
    ctx_settings_of(ctx)->flops = flops; /* products of a compression are not part of the model */
    return phase_end(ctx, before, st);
}

nrl_status strategy_finish(const strategy *s, nrl_ctx *ctx)
{
    nrl_phase before = phase_begin(s, ctx);
    nrl_status st = NRL_OK;
    for (int32_t k = s ? s->n : 0; k-- > 0 && st == NRL_OK;)
        if (s->of[k].table->finish) st = s->of[k].table->finish(s->of[k].self, ctx);
    return phase_end(ctx, before, st);
}

static void close_member(const strategy_member *one, nrl_ctx *ctx)
{
    if (one->self && ctx && one->table->unbind) one->table->unbind(one->self, ctx);
    if (one->self) one->table->destroy(one->self);
}

void strategy_close(strategy *s, nrl_ctx *ctx)
{
    for (int32_t i = s->n; i-- > 0;)
        close_member(&s->of[i], ctx);
    for (int32_t i = s->n_elsewhere; i-- > 0;)
        close_member(&s->elsewhere[i], NULL);
    arena_free(&s->memory);
    *s = (strategy){0};
}

stage_link strategy_stage(const strategy *s, const strategy_setup *setup)
{
    stage_link whole = stage_whole(setup->m), own = whole;
    if (s->n_stages < 2) return whole;
    own.comm = nrl_mesh_comm(setup->mesh, s->of[0].axis->name);
    own.n = s->n_stages;
    own.index = s->index;
    own.stages = s->of[0].plan.stages;
    own.instance = setup->instance;
    own.dtype = setup->compute;
    return own;
}

void strategy_scheduler(const strategy *s, const nrl_parallel **scheduler, void **self)
{
    *scheduler = NULL;
    for (int32_t i = 0; s && i < s->n; i++) {
        if (!s->of[i].plan.stages || !s->of[i].table->schedule) continue;
        *scheduler = s->of[i].table;
        *self = s->of[i].self;
    }
}

storage_spec strategy_storage(const strategy *s, const strategy_setup *setup)
{
    return (storage_spec){.mesh = setup->mesh,
                          .compute = setup->compute,
                          .train = setup->train,
                          .split16 = setup->train && setup->split16,
                          .bf16_gradients = setup->train && setup->bf16_gradients,
                          .n_states = setup->n_states,
                          .gathers_weights = s->plan.gathers_weights,
                          .reduces_grads = s->plan.reduces_grads};
}

/* ---- shards of the batch ---- */

nrl_status strategy_shards(const strategy_choices *all, const nrl_mesh *mesh, data_shards *out)
{
    *out = (data_shards){.n = 1};
    for (int32_t i = 0; i < all->n; i++) {
        const strategy_choice *c = &all->of[i];
        int32_t ranks = nrl_mesh_size(mesh, c->axis->name);
        int32_t n = c->table->shards ? c->table->shards(c->options, &out->strided) : 0;
        if (n <= 0) continue;
        if (n % ranks || ranks != mesh_n_batches(mesh))
            return nrl_fail(NRL_ERR_CONFIG,
                            "strategy '%s' divides each batch into %d shards, but %d ranks have their own batches; "
                            "expected only ranks of the axis '%s', in a number that divides %d",
                            c->table->plugin.name, n, mesh_n_batches(mesh), c->axis->name, n);
        out->n = n / ranks;
        out->fixed = true;
    }
    return NRL_OK;
}
