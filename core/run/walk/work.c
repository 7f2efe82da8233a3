/*
 * work.c - walks the actions: each is entered (the strategy gathers parameters), computed, and left (the strategy frees
 * and reduces). Tapes are cut at the carries between units, so the activations of a unit are freed when its own
 * backward is done.
 */
#include "run/walk/work.h"
#include <string.h>

void work_open(work *w)
{
    if (!w->stage.n) w->stage = stage_whole(w->policy);
    const stage_link *s = &w->stage;
    w->first_trained = s->first_trained;
    int32_t n = 0;
    w->micro_batches = (work_micro_batches){.n_units = s->n_units};
    w->forward_actions = arena_alloc(&w->memory, (size_t)s->n_units * sizeof *w->forward_actions);
    for (int32_t u = 0; u < s->n_units; u++)
        if (stage_has(s, u))
            w->forward_actions[n++] = (nrl_action){.size = sizeof(nrl_action),
                                                   .pass = NRL_PASS_FORWARD,
                                                   .instance = w->instance,
                                                   .unit = u,
                                                   .stage = s->index,
                                                   .n_uses = w->policy->units[u].n_uses,
                                                   .uses = w->policy->units[u].uses};
    for (int32_t i = 0; i < n; i++)
        w->forward_actions[i].n_actions = n;
}

void work_close(work *w)
{
    if (!w->forward_actions) return;
    stage_close(&w->stage, w->ctx);
    micro_batches_close(&w->micro_batches, w->ctx);
    for (int k = 0; k < NRL_MAX_TERMS; k++)
        tensor_release(w->ctx, w->seeds[k]);
    tensor_release(w->ctx, w->decision);
    gradients_close(w->ctx, &w->gradients);
    actions_free(&w->actions);
    arena_free(&w->memory);
}

nrl_status work_schedule(work *w, int32_t n_micro_batches, int32_t shard)
{
    actions_source from = {.m = w->policy, .recompute = w->recompute, .stage = &w->stage};
    strategy_scheduler(w->strategy, &from.scheduler, &from.scheduler_self);
    NRL_TRY(actions_make(&w->actions, &from, n_micro_batches));
    for (int64_t i = 0; i < w->actions.n; i++)
        w->actions.list[i].shard = shard;
    return NRL_OK;
}

/* Dropout is on inside units of a training step, and a recompute has the masks of the first time. */
static void set_random(work *w, int32_t u, bool on)
{
    uint64_t key = (w->random ^ (uint64_t)(u + 1)) * 0x9e3779b97f4a7c15u;
    ctx_set_random(w->ctx, on && w->random ? key | 1 : 0);
}

/* Runs unit u on `carry` (borrowed) and leaves its result there, not yet counted. */
static nrl_status unit_forward(work *w, int32_t u, nrl_carry *carry)
{
    if (w->instance) ctx_mute_metrics(w->ctx, true);
    nrl_status st = w->policy->table.forward(w->policy->self, w->ctx, u, carry);
    if (st == NRL_OK && u == w->policy->n_units - 1) /* head and loss have the hidden states of all tokens */
        st = nrl_op_tp_region(w->ctx, NRL_TP_REGION_WHOLE_IN, carry->tensors[0], &carry->tensors[0]);
    if (w->instance) ctx_mute_metrics(w->ctx, false);
    if (st != NRL_OK) nrl_add_context("unit '%s' of model '%s'", w->policy->units[u].name, w->policy->type);
    return st;
}

static nrl_status taped_forward(work *w, int32_t u, nrl_carry *carry)
{
    for (int32_t i = 0; i < carry->n && u > w->first_trained; i++)
        tensor_set_leaf(carry->tensors[i]);
    ctx_tape_begin(w->ctx, w->micro_batch->tapes[u]);
    set_random(w, u, true);
    nrl_status st = unit_forward(w, u, carry);
    set_random(w, u, false);
    if (st != NRL_OK) ctx_tape_end(w->ctx);
    return st;
}

/* Values of the model's terms are counted in the forward passes of the policy alone. */
static void count_terms(const work *w, bool on)
{
    for (int32_t i = 0; i < w->policy->n_terms; i++)
        w->policy->terms[i].counts = on;
}

/* Forward: keeps the input of the unit, and a tape only if the unit is not computed again. The action of the last unit
 * also contains the head and the loss, so that its parameters are there for both. */
static nrl_status action_forward(work *w, int32_t u, nrl_tensor **totals)
{
    work_micro_batch *m = w->micro_batch;
    nrl_carry out = m->carry;
    m->inputs[u] = m->carry;
    m->carry = (nrl_carry){0};
    if (w->recompute[u] || u < w->first_trained) {
        set_random(w, u, true);
        nrl_status st = unit_forward(w, u, &out);
        set_random(w, u, false);
        NRL_TRY(st);
    } else {
        NRL_TRY(taped_forward(w, u, &out));
        nrl_status st = NRL_OK;
        if (u == w->policy->n_units - 1)
            st = loss_forward(w, out.tensors[0], totals);
        else
            ctx_tape_end(w->ctx);
        NRL_TRY(st);
    }
    m->carry = carry_retain(&out);
    if (u < w->first_trained) carry_release(w->ctx, &m->inputs[u]); /* no later action needs it */
    return NRL_OK;
}

static nrl_status action_recompute(work *w, int32_t u)
{
    nrl_carry out = w->micro_batch->inputs[u];
    ctx_mute_metrics(w->ctx, true);
    nrl_status st = taped_forward(w, u, &out);
    ctx_mute_metrics(w->ctx, false);
    NRL_TRY(st);
    ctx_tape_end(w->ctx);
    carry_release(w->ctx, &w->micro_batch->carry); /* the result of the first pass; the new one is on the tape */
    w->micro_batch->carry = carry_retain(&out);
    return NRL_OK;
}

/* Backward: the gradient of what the unit gave becomes that of what it read, which is what the unit
 * before it gave. */
static nrl_status action_backward(work *w, const nrl_action *v)
{
    const int32_t u = v->unit;
    work_micro_batch *m = w->micro_batch;
    nrl_carry *in = &m->inputs[u], back = {.n = in->n};
    nrl_status st;
    ctx_settings_of(w->ctx)->deferred = v->splits ? m->tapes[w->policy->n_units + u] : NULL;
    if (m->sums[0])
        st = tape_backward(w->ctx, m->tapes[u], m->sums, w->seeds, (int)w->algorithm->n_terms, in->tensors,
                           back.tensors, in->n);
    else
        st = tape_backward(w->ctx, m->tapes[u], m->carry.tensors, m->grads.tensors, m->carry.n, in->tensors,
                           back.tensors, in->n);
    ctx_settings_of(w->ctx)->deferred = NULL;
    for (int k = 0; k < NRL_MAX_TERMS; k++) {
        tensor_release(w->ctx, m->sums[k]);
        m->sums[k] = NULL;
    }
    carry_release(w->ctx, &m->grads);
    carry_release(w->ctx, &m->carry);
    m->grads = back;
    m->carry = *in;
    *in = (nrl_carry){0};
    return st;
}

static nrl_phase phase_of(const nrl_action *v)
{
    return v->pass == NRL_PASS_FORWARD     ? NRL_PHASE_FORWARD
           : v->pass == NRL_PASS_RECOMPUTE ? NRL_PHASE_RECOMPUTE
                                           : NRL_PHASE_BACKWARD;
}

/* Called before the first action of a micro-batch is entered: computing the column may take actions of the policy
 * itself. */
static nrl_status set_column(work *w)
{
    if (!w->extra_column) return NRL_OK;
    ctx_phase_set(w->ctx, NRL_PHASE_REFERENCE);
    return w->extra_column(w->extra_user, 0, w->micro_batch->batch, &w->micro_batch->extra);
}

static nrl_status compute(work *w, const nrl_action *v, nrl_tensor **totals)
{
    ctx_phase_set(w->ctx, phase_of(v));
    ctx_profile_unit(w->ctx, w->policy->units[v->unit].name, w->micro_batch->batch);
    switch (v->pass) {
    case NRL_PASS_FORWARD: {
        count_terms(w, true);
        nrl_status st = action_forward(w, v->unit, totals);
        count_terms(w, false);
        return st;
    }
    case NRL_PASS_RECOMPUTE:
        return action_recompute(w, v->unit);
    case NRL_PASS_BACKWARD_WEIGHT:
        return tape_backward(w->ctx, w->micro_batch->tapes[w->policy->n_units + v->unit], NULL, NULL, 0, NULL, NULL, 0);
    default:
        return action_backward(w, v);
    }
}

/* NRL_OK instead of NRL_ERR_MEMORY where the step may be repeated: the walk goes on without computing. */
static nrl_status tolerate(work *w, nrl_status st)
{
    ctx_retry *retry = &ctx_settings_of(w->ctx)->retry;
    if (st != NRL_ERR_MEMORY || !retry->allowed) return st;
    retry->lacked = true;
    return NRL_OK;
}

/* The gradients of such a step are discarded; strategies need not look for those that are missing. */
static nrl_status skip(const nrl_action *v)
{
    for (int32_t i = 0; v->pass >= NRL_PASS_BACKWARD && i < v->n_uses; i++)
        nrl_param_set_grad_is_empty(v->uses[i], false);
    return NRL_OK;
}

/* Waits for the tensors that come from another stage, and starts to send those that go to one. */
static nrl_status action(work *w, const nrl_action *v, bool begins, nrl_tensor **totals)
{
    work_micro_batch *m = w->micro_batch;
    stage_link *s = &w->stage;
    bool forward = v->pass == NRL_PASS_FORWARD;
    /* Sets the batch of the micro-batch, for operations that read its indices; backward uses what it has saved. */
    ctx_phase_set(w->ctx, phase_of(v));
    nrl_batch *own = batch_own(m->batch);
    bool known = v->pass >= NRL_PASS_BACKWARD || (!begins && ctx_batch(w->ctx) == own);
    NRL_TRY(known ? NRL_OK : ctx_set_batch(w->ctx, own));
    if (stage_receives(s, v)) {
        ctx_phase_set(w->ctx, NRL_PHASE_COMMUNICATION);
        NRL_TRY(stage_take(s, w->ctx, w->step, v, strategy_rows(w->strategy, own->n_tokens),
                           forward ? &m->carry : &m->grads));
        if (!forward && !w->recompute[v->unit]) {
            m->carry = m->inputs[v->unit + 1];
            m->inputs[v->unit + 1] = (nrl_carry){0};
        }
    }
    double before = ctx_settings_of(w->ctx)->flops;
    NRL_TRY(compute(w, v, totals));
    if (v->pass == NRL_PASS_RECOMPUTE) ctx_settings_of(w->ctx)->flops = before; /* counted by the forward */
    if (!stage_sends(s, v)) return NRL_OK;
    ctx_phase_set(w->ctx, NRL_PHASE_COMMUNICATION);
    NRL_TRY(
        stage_send(s, w->ctx, w->step, v, strategy_rows(w->strategy, own->n_tokens), forward ? &m->carry : &m->grads));
    if (forward && !w->recompute[v->unit] && v->unit >= w->first_trained) {
        m->inputs[v->unit + 1] = m->carry; /* the backward begins with it */
        m->carry = (nrl_carry){0};
    }
    carry_release(w->ctx, &m->carry);
    carry_release(w->ctx, &m->grads);
    return NRL_OK;
}

/* Starts the receives of later actions, so that the tensors travel while this action computes. They start in the order
 * of the sends: the forward of a micro-batch comes after the messages of its column. */
static nrl_status post_ahead(work *w, int64_t i, nrl_batch *const *batches)
{
    const action_list *all = &w->actions;
    const bool columns = w->extra_column && !stage_goes_around(&w->stage);
    int32_t n = 0;
    if (!w->stage.comm || !mesh_receives_early(w->stage.comm)) return NRL_OK;
    for (; i < all->n && n <= STAGE_AHEAD; i++) {
        const nrl_action *v = &all->list[i];
        if (!stage_receives(&w->stage, v) || (columns && v->pass == NRL_PASS_FORWARD)) continue;
        NRL_TRY(stage_post(&w->stage, w->ctx, w->step, v,
                           strategy_rows(w->strategy, batch_own(batches[v->micro_batch])->n_tokens)));
        n++;
    }
    return NRL_OK;
}

static nrl_status enter(work *w, const nrl_action *actions, int64_t i)
{
    NRL_TRY(strategy_enter(w->strategy, w->ctx, actions, i));
    if (w->gradients.buffer) gradients_enter(&w->gradients, actions, i);
    return NRL_OK;
}

static nrl_status leave(work *w, const nrl_action *actions, int64_t i)
{
    if (w->gradients.buffer) NRL_TRY(gradients_leave(&w->gradients, w->ctx, &actions[i]));
    return strategy_leave(w->strategy, w->ctx, actions, i);
}

/* Waits until what the unit of action i needs is back from offload, and begins to fetch what the next backward
 * needs. */
static nrl_status bring_back(work *w, int64_t i)
{
    int n = 0;
    for (int64_t k = i; k < w->actions.n && n < 2; k++) {
        const nrl_action *v = &w->actions.list[k];
        if (v->pass == NRL_PASS_FORWARD || v->pass == NRL_PASS_BACKWARD_WEIGHT) continue;
        n++;
        for (int32_t m = 0; m < w->micro_batches.n; m++) {
            work_micro_batch *of = &w->micro_batches.list[m];
            if (of->batch && of->number == v->micro_batch)
                NRL_TRY(tape_saved_return(w->ctx, &of->away[v->unit], k == i));
        }
    }
    return NRL_OK;
}

/* After action i: frees what the forward of the action before has copied out, and copies out what this action saved,
 * unless it is needed soon. */
static nrl_status send_away(work *w, int64_t i)
{
    enum { SOON = 4 }; /* actions: two forwards, two backwards */
    const nrl_action *v = &w->actions.list[i];
    work_micro_batch *m = w->micro_batch;
    const nrl_carry *in = &m->inputs[v->unit];
    int64_t k = i + 1;
    NRL_TRY(w->leaving ? tape_saved_free(w->ctx, *w->leaving) : NRL_OK);
    w->leaving = NULL;
    if (v->pass != NRL_PASS_FORWARD) return NRL_OK;
    while (k < w->actions.n && k < i + SOON &&
           (w->actions.list[k].unit != v->unit || w->actions.list[k].micro_batch != v->micro_batch))
        k++;
    if (k < i + SOON) return NRL_OK;
    w->leaving = &m->away[v->unit];
    return tape_saved_leave(w->ctx, m->tapes[v->unit], in->tensors, in->n, w->leaving);
}

nrl_status work_train(work *w, nrl_batch *const *batches, nrl_tensor **totals)
{
    const action_list *all = &w->actions;
    const ctx_retry *retry = &ctx_settings_of(w->ctx)->retry;
    nrl_status st = NRL_OK;
    w->step = stage_begin(&w->stage, true);
    w->leaving = NULL;
    for (int32_t m = 0; m < all->n_micro_batches; m++)
        NRL_TRY(strategy_divide(w->strategy, batches[m]));
    /* Computes the columns of all micro-batches first. A column may pass around the ranks like the micro-batch; in the
     * middle of the step, where each rank is at another micro-batch, the ranks would wait for each other. */
    bool begins = stage_goes_around(&w->stage) && w->extra_column;
    for (int32_t m = 0; begins && m < all->n_micro_batches; m++) {
        w->micro_batch = micro_batch_at(&w->micro_batches, m, batches[m], &begins);
        NRL_TRY_DONE(set_column(w));
        NRL_TRY_DONE(ctx_set_batch(w->ctx, NULL));
    }
    for (int64_t i = 0; i < all->n && st == NRL_OK; i++) {
        const nrl_action *v = &all->list[i];
        const bool lacked = retry->lacked;
        w->micro_batch = micro_batch_at(&w->micro_batches, v->micro_batch, batches[v->micro_batch], &begins);
        NRL_TRY_DONE(post_ahead(w, i, batches));
        if (lacked) begins = v->pass == NRL_PASS_FORWARD && v->unit == w->forward_actions->unit;
        if (begins) NRL_TRY_DONE(tolerate(w, set_column(w)));
        NRL_TRY_DONE(enter(w, all->list, i));
        NRL_TRY_DONE(retry->lacked ? NRL_OK : tolerate(w, bring_back(w, i)));
        ctx_scope_begin(w->ctx);
        st = retry->lacked ? skip(v) : tolerate(w, action(w, v, begins, totals));
        ctx_scope_end(w->ctx);
        if (st == NRL_OK && !retry->lacked) st = send_away(w, i);
        if (st == NRL_OK) st = leave(w, all->list, i);
        if (all->last[v->micro_batch] == i) micro_batch_end(&w->micro_batches, w->micro_batch, w->ctx);
        if (retry->lacked) micro_batches_close(&w->micro_batches, w->ctx);
        if (retry->lacked) w->leaving = NULL;
    }
    ctx_phase_set(w->ctx, NRL_PHASE_COMMUNICATION);
    if (st == NRL_OK) st = stage_settle(&w->stage, w->ctx);
done:
    for (int32_t i = 0; st != NRL_OK && i < w->micro_batches.n; i++)
        micro_batch_end(&w->micro_batches, &w->micro_batches.list[i], w->ctx);
    return st;
}

/* Runs one unit of a pass without gradients; *carry is counted, before and after. */
static nrl_status forward_only(work *w, int64_t i, nrl_carry *carry, work_use use, void *user)
{
    int32_t u = w->forward_actions[i].unit;
    nrl_carry out = *carry;
    NRL_TRY(enter(w, w->forward_actions, i));
    ctx_scope_begin(w->ctx);
    bool skips = ctx_settings_of(w->ctx)->retry.lacked;
    nrl_status st = skips ? NRL_OK : unit_forward(w, u, &out);
    if (!skips && st == NRL_OK && u == w->policy->n_units - 1) st = use(user, out.tensors[0]);
    out = st == NRL_OK ? carry_retain(&out) : (nrl_carry){0};
    st = tolerate(w, st);
    ctx_scope_end(w->ctx);
    if (st != NRL_OK) return st;
    carry_release(w->ctx, carry);
    *carry = out;
    return leave(w, w->forward_actions, i);
}

nrl_status work_hidden(work *w, nrl_batch *batch, work_use use, void *user)
{
    stage_link *s = &w->stage;
    nrl_carry carry = {0};
    const int64_t rows = strategy_rows(w->strategy, batch->n_tokens);
    uint32_t id = stage_begin(s, false);
    nrl_status st = tolerate(w, ctx_set_batch(w->ctx, batch)); /* other ranks gather the weights of each unit */
    for (int64_t i = 0; i < w->forward_actions->n_actions && st == NRL_OK; i++) {
        const nrl_action *v = &w->forward_actions[i];
        if (stage_receives(s, v)) st = stage_take(s, w->ctx, id, v, rows, &carry);
        if (st == NRL_OK) st = forward_only(w, i, &carry, use, user);
        if (st != NRL_OK || !stage_sends(s, v)) continue;
        st = stage_send(s, w->ctx, id, v, rows, &carry);
        carry_release(w->ctx, &carry);
    }
    carry_release(w->ctx, &carry);
    return st;
}

typedef struct {
    work *work;
    nrl_tensor **totals;
} evaluation;

static nrl_status evaluate_hidden(void *user, nrl_tensor *hidden)
{
    evaluation *e = user;
    return loss_evaluate(e->work, hidden, e->totals);
}

nrl_status work_evaluate(work *w, size_t set, nrl_batch *batch, nrl_tensor **totals)
{
    nrl_tensor *extra = NULL;
    evaluation e = {w, totals};
    nrl_status st = NRL_OK;
    if (w->extra_column) st = w->extra_column(w->extra_user, set, batch, &extra);
    count_terms(w, true);
    if (st == NRL_OK) st = strategy_divide(w->strategy, batch);
    if (st == NRL_OK) st = work_hidden(w, batch_own(batch), evaluate_hidden, &e);
    count_terms(w, false);
    tensor_release(w->ctx, extra);
    return st;
}

bool work_needs(const nrl_algorithm *algorithm, const char *column)
{
    for (const char *const *n = algorithm->needs; n && *n; n++)
        if (!strcmp(*n, column)) return true;
    return false;
}
