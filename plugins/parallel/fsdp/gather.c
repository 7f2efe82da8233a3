/*
 * gather.c - gathers WEIGHT of whole groups from every rank's shard, ahead of its use.
 *
 * With full sharding, groups share slots; a group stays in its slot until another group needs the slot
 * or MASTER changes. While texts are generated no group needs the slot of another one (hold.c). Otherwise WEIGHT has a
 * buffer of its own and is gathered once per update; the first action that reads a group waits for it.
 */
#include "fsdp.h"

static void bind_work(const fsdp_group *g, bool there)
{
    for (int32_t i = 0; i < g->n_params; i++)
        nrl_param_bind(g->params[i].param, NRL_SLOT_WEIGHT, there ? g->params[i].work : NULL);
}

static void touch_work(const fsdp_group *g)
{
    for (int32_t i = 0; i < g->n_params; i++)
        nrl_param_touch(g->params[i].param);
}

/* Starts the gather: the shard is sent in the compute dtype, rounded into this rank's place in the buffer. */
static nrl_status start(fsdp *s, nrl_ctx *ctx, fsdp_group *g)
{
    bool casts = fsdp_casts(s, g), copies = casts || (s->options.offload && g->shard != g->work_own);
    if (casts)
        NRL_TRY(nrl_master_round(ctx, g->shard, g->work_own));
    else if (copies)
        NRL_TRY(nrl_tensor_copy(ctx, g->shard, g->work_own));
    nrl_tensor_expect(ctx, g->shard, false);
    nrl_comm_call call = {
        .size = sizeof call, .send = copies ? g->work_own : g->shard, .receive = g->work, .what = g->gather_text};
    NRL_TRY(nrl_comm_all_gather(s->comm, ctx, &call, &g->gathering));
    g->presence = FSDP_COMING;
    return NRL_OK;
}

static nrl_status wait_for(nrl_ctx *ctx, fsdp_group *g)
{
    if (g->presence != FSDP_COMING) return NRL_OK;
    g->presence = FSDP_NOTHING; /* also if the wait fails */
    NRL_TRY(nrl_work_wait(&g->gathering, ctx));
    g->presence = FSDP_THERE;
    if (g->work_slot >= 0)
        bind_work(g, true);
    else
        touch_work(g);
    return NRL_OK;
}

/* Removes the group from its slot. */
static nrl_status evict(nrl_ctx *ctx, fsdp_group *g)
{
    NRL_TRY(wait_for(ctx, g));
    if (g->presence == FSDP_THERE) bind_work(g, false);
    g->presence = FSDP_NOTHING;
    return NRL_OK;
}

/* Starts a group's gather unless the group is present or its slot is needed sooner. */
static nrl_status want(fsdp *s, nrl_ctx *ctx, fsdp_group *g)
{
    fsdp_group **occupant = &s->work_slots.occupant[g->work_slot];
    if (s->holds) return g->presence == FSDP_NOTHING ? start(s, ctx, g) : NRL_OK;
    if (g->wanted == s->serial) return NRL_OK;
    if (*occupant && *occupant != g) {
        if ((*occupant)->wanted == s->serial) return NRL_OK;
        NRL_TRY(evict(ctx, *occupant));
    }
    *occupant = g;
    g->wanted = s->serial;
    return g->presence == FSDP_NOTHING ? start(s, ctx, g) : NRL_OK;
}

/* Gathers what action i uses first, then the rest of its run and the next `prefetch` runs, in order. */
static nrl_status look_ahead(fsdp *s, nrl_ctx *ctx, const nrl_action *actions, int64_t i)
{
    int64_t runs = 0;
    int32_t run = s->run_of[nrl_action_at(actions, i)->unit];
    s->serial++;
    for (int64_t k = i; k < nrl_action_at(actions, i)->n_actions || k == i; k++) {
        const nrl_action *v = nrl_action_at(actions, k);
        if (v->instance != nrl_action_at(actions, i)->instance || v->pass == NRL_PASS_BACKWARD_WEIGHT) continue;
        if (s->run_of[v->unit] != run && ++runs > s->options.prefetch + (s->options.offload ? 1 : 0)) break;
        run = s->run_of[v->unit];
        for (int32_t u = 0; u < s->uses[v->unit].n; u++) {
            fsdp_group *g = s->uses[v->unit].groups[u];
            if (runs <= s->options.prefetch)
                NRL_TRY(want(s, ctx, g));
            else if (g->presence == FSDP_NOTHING)
                nrl_tensor_expect(ctx, g->shard, true);
            if (runs == 1 && v->pass == NRL_PASS_BACKWARD && g->n_added) nrl_tensor_expect(ctx, g->grad, true);
        }
    }
    return NRL_OK;
}

nrl_status fsdp_gather_for(fsdp *s, nrl_ctx *ctx, const nrl_action *actions, int64_t i)
{
    NRL_ASSERT(nrl_action_at(actions, i)->unit, <, s->plan.n_units);
    const fsdp_uses *uses = &s->uses[nrl_action_at(actions, i)->unit];
    if (s->options.shard == FSDP_FULL) NRL_TRY(look_ahead(s, ctx, actions, i));
    for (int32_t u = 0; u < uses->n; u++) {
        NRL_TRY(wait_for(ctx, uses->groups[u]));
        NRL_ASSERT(uses->groups[u]->presence, ==, FSDP_THERE);
    }
    return NRL_OK;
}

nrl_status fsdp_gather_drop(fsdp *s, nrl_ctx *ctx)
{
    for (int32_t k = 0; k < s->n_groups; k++)
        NRL_TRY(evict(ctx, &s->groups[k]));
    return NRL_OK;
}

nrl_status fsdp_gather_again(fsdp *s, nrl_ctx *ctx, bool wait)
{
    if (s->options.shard == FSDP_FULL) return fsdp_gather_drop(s, ctx);
    for (int32_t k = 0; k < s->n_groups; k++) {
        if (k + 1 < s->n_groups) nrl_tensor_expect(ctx, s->groups[k + 1].shard, true);
        NRL_TRY(wait_for(ctx, &s->groups[k]));
        NRL_TRY(start(s, ctx, &s->groups[k]));
    }
    for (int32_t k = 0; wait && k < s->n_groups; k++)
        NRL_TRY(wait_for(ctx, &s->groups[k]));
    return NRL_OK;
}

nrl_status fsdp_gather_settle(fsdp *s, nrl_ctx *ctx)
{
    nrl_status st = NRL_OK;
    for (int32_t k = 0; k < s->n_groups; k++) {
        nrl_status mine = nrl_work_wait(&s->groups[k].gathering, ctx);
        s->groups[k].presence = FSDP_NOTHING;
        if (st == NRL_OK) st = mine;
    }
    for (int32_t i = 0; i < s->work_slots.n; i++)
        s->work_slots.occupant[i] = NULL;
    return st;
}
