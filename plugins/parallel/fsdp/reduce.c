/*
 * reduce.c - gradients of whole groups become slices of their sum over ranks.
 *
 * A group's GRAD is bound when the backward first needs it. After the backward action of the first
 * unit that uses the group, a reduce_scatter starts. The strategy waits for it when its buffer is
 * needed, or at the end of the step, and then adds this rank's share to GRAD_SHARD. So micro-batches
 * are summed in f32 slices (with train.gradients: bf16 in bf16 slices, rounded once per micro-batch). What the first
 * part of a split backward computes waits in the buffer for the second part if no other group needs the buffer.
 * `shard: optimizer` and `reproducible` sum micro-batches in GRAD instead and reduce once, or once a shard of the
 * batch. Across replicas, slices are
 * summed once per step, after the last micro-batch.
 */
#include "fsdp.h"

static void bind_acc(const fsdp_group *g, bool there)
{
    for (int32_t i = 0; i < g->n_params; i++) {
        nrl_param_bind(g->params[i].param, NRL_SLOT_GRAD, there ? g->params[i].acc : NULL);
        nrl_param_set_grad_is_empty(g->params[i].param, true);
    }
}

/* GRAD becomes the sum of the micro-batches so far. */
static nrl_status resume_sum(nrl_ctx *ctx, const fsdp_group *g)
{
    for (int32_t i = 0; i < g->n_params; i++)
        nrl_param_set_grad_is_empty(g->params[i].param, false);
    return nrl_tensor_copy(ctx, g->grad, g->acc);
}

/* Zeroes what no backward wrote. */
static nrl_status fill_untouched(nrl_ctx *ctx, const fsdp_group *g)
{
    for (int32_t i = 0; i < g->n_params; i++) {
        if (!nrl_param_grad_is_empty(g->params[i].param)) continue;
        NRL_TRY(nrl_tensor_fill(ctx, g->params[i].acc, 0));
        nrl_param_set_grad_is_empty(g->params[i].param, false);
    }
    return NRL_OK;
}

/* ---- across replicas ---- */

static nrl_status replicate(fsdp *s, nrl_ctx *ctx, fsdp_group *g)
{
    if (!s->replica_comm || g->replicated || s->options.reproducible) return NRL_OK;
    nrl_comm_call call = {
        .size = sizeof call, .reduce = NRL_REDUCE_OP_SUM, .receive = g->grad, .what = g->replica_text};
    g->replicated = true;
    return nrl_comm_all_reduce(s->replica_comm, ctx, &call, &g->replicating);
}

/* ---- inside a copy ---- */

/* Waits for a group's reduction, if any, and adds this rank's share to GRAD_SHARD. */
static nrl_status settle(fsdp *s, nrl_ctx *ctx, fsdp_group *g)
{
    nrl_tensor *got = g->wire ? g->wire_own : g->acc_own;
    if (!g->pending) return NRL_OK;
    g->pending = false;
    NRL_TRY(nrl_work_wait(&g->reducing, ctx));
    if (fsdp_sums_whole(s)) nrl_tensor_expect(ctx, g->acc, false);
    if (s->options.reproducible) {
        g->n_added++;
        NRL_TRY(fsdp_tree_add(s, ctx, g));
        for (int i = 0; i < fsdp_tree_levels(s); i++)
            nrl_tensor_expect(ctx, g->levels[i], false);
        return NRL_OK;
    }
    if (g->n_added && !fsdp_continues(s))
        NRL_TRY(nrl_tensor_add(ctx, got, g->grad));
    else if (got != g->grad)
        NRL_TRY(nrl_tensor_copy(ctx, got, g->grad));
    nrl_tensor_expect(ctx, g->grad, false);
    g->n_added++;
    return g->final ? replicate(s, ctx, g) : NRL_OK;
}

/* Gives the slot to g after the exchange that uses the slot has completed. */
static nrl_status take_slot(fsdp *s, nrl_ctx *ctx, fsdp_slots *slots, int32_t slot, fsdp_group *g)
{
    fsdp_group *last = slots->occupant[slot];
    bool travels = slots == &s->wire_slots || !s->options.reduce_dtype;
    if (last && travels) NRL_TRY(settle(s, ctx, last));
    slots->occupant[slot] = g;
    return NRL_OK;
}

/* The sum is exchanged in place, or rounded into a buffer of its own. */
static nrl_status start(fsdp *s, nrl_ctx *ctx, fsdp_group *g)
{
    NRL_TRY(fill_untouched(ctx, g));
    if (g->wire) NRL_TRY(take_slot(s, ctx, &s->wire_slots, g->wire_slot, g));
    if (s->options.reproducible) {
        nrl_comm_call call = {.size = sizeof call, .send = g->acc, .receive = g->wire, .what = g->reduce_text};
        g->pending = true;
        return nrl_comm_all_to_all(s->comm, ctx, &call, &g->reducing);
    }
    if (g->wire) NRL_TRY(nrl_tensor_copy(ctx, g->acc, g->wire));
    if (g->acc_slot >= 0) bind_acc(g, false);
    g->held = false;
    g->pending = true;
    nrl_comm_call call = {.size = sizeof call,
                          .reduce = NRL_REDUCE_OP_SUM,
                          .send = g->wire ? g->wire : g->acc,
                          .receive = g->wire ? g->wire_own : g->acc_own,
                          .what = g->reduce_text};
    return nrl_comm_reduce_scatter(s->comm, ctx, &call, &g->reducing);
}

/* ---- the calls ---- */

/* Announces the whole gradients of the next unit, if they hold a sum already. */
static void expect_next(const fsdp *s, nrl_ctx *ctx, const nrl_action *actions, int64_t i)
{
    const nrl_action *v = nrl_action_at(actions, i), *next = v;
    for (int64_t k = i + 1; k < v->n_actions && (next->unit == v->unit || next->pass < NRL_PASS_BACKWARD); k++)
        next = nrl_action_at(actions, k);
    for (int32_t u = 0; next->unit != v->unit && u < s->uses[next->unit].n; u++) {
        const fsdp_group *g = s->uses[next->unit].groups[u];
        if (g->trained && !nrl_param_grad_is_empty(g->params[0].param)) nrl_tensor_expect(ctx, g->acc, true);
    }
}

nrl_status fsdp_reduce_enter(fsdp *s, nrl_ctx *ctx, const nrl_action *actions, int64_t i)
{
    const nrl_action *v = nrl_action_at(actions, i);
    const fsdp_uses *uses = &s->uses[v->unit];
    if (s->options.offload && fsdp_sums_whole(s)) expect_next(s, ctx, actions, i);
    for (int32_t u = 0; u < uses->n; u++) {
        fsdp_group *g = uses->groups[u];
        /* the last shard of the batch must have been sent */
        if (g->trained && s->options.reproducible) NRL_TRY(settle(s, ctx, g));
        if (!g->trained || g->acc_slot < 0 || g->held) continue;
        NRL_TRY(take_slot(s, ctx, &s->acc_slots, g->acc_slot, g));
        bind_acc(g, true);
        if (g->n_added && fsdp_continues(s)) NRL_TRY(resume_sum(ctx, g));
        g->held = true;
    }
    return NRL_OK;
}

/* Whether the part of a group's gradient that the split BACKWARD i has computed can wait in its buffer for the next
 * BACKWARD_WEIGHT, and be reduced with it: no other group takes the buffer before. */
static bool can_wait(const fsdp *s, const fsdp_group *g, const nrl_action *actions, int64_t i)
{
    const nrl_action *v = nrl_action_at(actions, i), *next = v;
    for (int64_t k = i + 1; v->splits && k < v->n_actions; k++) {
        next = nrl_action_at(actions, k);
        if (next->unit == v->unit && next->pass == NRL_PASS_BACKWARD_WEIGHT) return true;
        for (int32_t u = 0; next->pass >= NRL_PASS_BACKWARD && u < s->uses[next->unit].n; u++) {
            const fsdp_group *other = s->uses[next->unit].groups[u];
            if (other != g && other->trained && other->acc_slot == g->acc_slot) return false;
        }
    }
    return false;
}

nrl_status fsdp_reduce_leave(fsdp *s, nrl_ctx *ctx, const nrl_action *actions, int64_t i)
{
    const nrl_action *v = nrl_action_at(actions, i);
    const fsdp_uses *uses = &s->uses[v->unit];
    for (int32_t u = 0; u < uses->n; u++) {
        fsdp_group *g = uses->groups[u];
        bool final = v->n_final > 0;
        if (!g->trained || g->first_unit != v->unit) continue;
        if (fsdp_sums_whole(s) && !final) {
            nrl_tensor_expect(ctx, g->acc, false);
            continue;
        }
        if (can_wait(s, g, actions, i)) continue;
        NRL_TRY(start(s, ctx, g)); /* settles the previous micro-batch */
        g->final = final;
        g->reduced = v->shard;
        for (int32_t k = 0; v->shard < s->n_shards - 1 && k < g->n_params; k++)
            nrl_param_set_grad_is_empty(g->params[k].param, true);
    }
    return NRL_OK;
}

/* A group that this step never reduced: its sum if micro-batches added one up, else zero. */
static nrl_status reduce_rest(fsdp *s, nrl_ctx *ctx, fsdp_group *g)
{
    if (g->n_added || g->pending) return NRL_OK;
    if (!s->options.reproducible && (g->acc_slot < 0 || g->held)) return start(s, ctx, g);
    g->n_added = 1;
    return nrl_tensor_fill(ctx, g->grad, 0);
}

nrl_status fsdp_reduce_finish(fsdp *s, nrl_ctx *ctx)
{
    for (int32_t k = 0; k < s->n_groups; k++) {
        fsdp_group *g = &s->groups[k];
        if (!g->trained) continue;
        NRL_TRY(reduce_rest(s, ctx, g));
        NRL_TRY(settle(s, ctx, g));
        NRL_TRY(replicate(s, ctx, g));
    }
    for (int32_t k = 0; k < s->n_groups; k++) {
        fsdp_group *g = &s->groups[k];
        NRL_TRY(nrl_work_wait(&g->replicating, ctx));
        g->n_added = 0;
        g->final = g->replicated = false;
        for (int32_t i = 0; g->trained && i < g->n_params; i++)
            nrl_param_set_grad_is_empty(g->params[i].param, true);
    }
    return NRL_OK;
}

nrl_status fsdp_reduce_settle(fsdp *s, nrl_ctx *ctx)
{
    nrl_status st = NRL_OK;
    for (int32_t k = 0; k < s->n_groups; k++) {
        fsdp_group *g = &s->groups[k];
        nrl_status reduced = nrl_work_wait(&g->reducing, ctx), summed = nrl_work_wait(&g->replicating, ctx);
        g->pending = g->held = g->final = g->replicated = false;
        g->n_added = 0;
        if (st == NRL_OK) st = reduced != NRL_OK ? reduced : summed;
    }
    return st;
}
