/*
 * work.c - the walk of architecture.md: each visit is entered (the strategy fetches parameters),
 * computed, and left (the strategy drops and reduces). Tapes are cut at the carries between units, so
 * a unit's activations die as soon as its own backward is done.
 */
#include "run/work.h"
#include "run/loss.h"
#include <string.h>

void work_open(work *w)
{
    int32_t n = w->policy->n_units;
    w->first = model_first_trained(w->policy);
    w->micro.inputs = arena_alloc(&w->memory, (size_t)n * sizeof *w->micro.inputs);
    w->micro.tapes = arena_alloc(&w->memory, (size_t)n * sizeof *w->micro.tapes);
    w->forward_visits = arena_alloc(&w->memory, (size_t)n * sizeof *w->forward_visits);
    for (int32_t u = 0; u < n; u++) {
        const model_unit *unit = &w->policy->units[u];
        w->micro.tapes[u] = tape_create();
        w->forward_visits[u] = (nrl_visit){
            .pass = NRL_PASS_FORWARD, .instance = w->instance, .unit = u, .n_visits = n,
            .n_uses = unit->n_uses, .uses = unit->uses};
    }
}

static void carry_release(nrl_ctx *ctx, nrl_carry *c)
{
    for (int32_t i = 0; i < c->n; i++) tensor_release(ctx, c->tensors[i]);
    *c = (nrl_carry){0};
}

static nrl_carry carry_retain(const nrl_carry *c)
{
    for (int32_t i = 0; i < c->n; i++) tensor_retain(c->tensors[i]);
    return *c;
}

/* Drops whatever a micro-batch still holds: after an error, or when its visits are over. */
static void micro_clear(work *w)
{
    work_micro *m = &w->micro;
    for (int32_t u = 0; u < w->policy->n_units; u++) carry_release(w->ctx, &m->inputs[u]);
    carry_release(w->ctx, &m->carry);
    carry_release(w->ctx, &m->grads);
    tensor_release(w->ctx, m->extra);
    m->extra = NULL;
    for (int k = 0; k < NRL_MAX_TERMS; k++) {
        tensor_release(w->ctx, m->sums[k]);
        m->sums[k] = NULL;
    }
}

void work_close(work *w)
{
    if (!w->micro.tapes) return;
    micro_clear(w);
    for (int32_t u = 0; u < w->policy->n_units; u++) tape_destroy(w->ctx, w->micro.tapes[u]);
    for (int k = 0; k < NRL_MAX_TERMS; k++) tensor_release(w->ctx, w->seeds[k]);
    gradients_close(w->ctx, &w->gradients);
    arena_free(&w->memory);
    arena_free(&w->visit_memory);
}

/* A parameter's gradient is whole after the backward visit of the first unit that uses it. */
static int32_t first_use(const model *m, const nrl_param *p)
{
    for (int32_t u = 0; u < m->n_units; u++)
        for (int32_t i = 0; i < m->units[u].n_uses; i++)
            if (m->units[u].uses[i] == p) return u;
    return m->n_units;
}

static nrl_param *const *final_of(work *w, int32_t unit, int32_t *n)
{
    const model_unit *u = &w->policy->units[unit];
    nrl_param **list = arena_alloc(&w->visit_memory, (size_t)(u->n_uses ? u->n_uses : 1) * sizeof *list);
    *n = 0;
    for (int32_t i = 0; i < u->n_uses; i++)
        if (u->uses[i]->trained && first_use(w->policy, u->uses[i]) == unit) list[(*n)++] = u->uses[i];
    return list;
}

static void push_visit(work *w, nrl_pass pass, int32_t unit, int32_t micro, bool last)
{
    const model_unit *u = &w->policy->units[unit];
    nrl_visit *v = &w->visits[w->n_visits++];
    *v = (nrl_visit){.pass = pass, .unit = unit, .micro = micro, .n_uses = u->n_uses, .uses = u->uses};
    if (pass == NRL_PASS_BACKWARD && last) v->final = final_of(w, unit, &v->n_final);
}

nrl_status work_schedule(work *w, int32_t n_micro)
{
    if (w->visits_for == n_micro) return NRL_OK;
    int32_t n_units = w->policy->n_units;
    size_t most = 3 * (size_t)n_units * (size_t)n_micro;
    arena_reset(&w->visit_memory);
    w->visits = arena_alloc(&w->visit_memory, most * sizeof *w->visits);
    w->n_visits = 0;
    for (int32_t m = 0; m < n_micro; m++) {
        for (int32_t u = 0; u < n_units; u++) push_visit(w, NRL_PASS_FORWARD, u, m, false);
        for (int32_t u = n_units - 1; u >= w->first; u--) {
            if (w->recompute[u]) push_visit(w, NRL_PASS_RECOMPUTE, u, m, false);
            push_visit(w, NRL_PASS_BACKWARD, u, m, m == n_micro - 1);
        }
    }
    for (int64_t i = 0; i < w->n_visits; i++) w->visits[i].n_visits = (int32_t)w->n_visits;
    w->visits_for = n_micro;
    return NRL_OK;
}

/* Runs unit u on `carry` (borrowed) and leaves its result there, not yet counted. */
static nrl_status unit_forward(work *w, int32_t u, nrl_carry *carry)
{
    nrl_status st = w->policy->table.forward(w->policy->self, w->ctx, u, carry);
    if (st != NRL_OK) nrl_note("unit '%s' of model '%s'", w->policy->units[u].name, w->policy->type);
    return st;
}

static nrl_status taped_forward(work *w, int32_t u, nrl_carry *carry)
{
    for (int32_t i = 0; i < carry->n && u > w->first; i++) tensor_set_leaf(carry->tensors[i]);
    ctx_tape_begin(w->ctx, w->micro.tapes[u]);
    nrl_status st = unit_forward(w, u, carry);
    if (st != NRL_OK) ctx_tape_end(w->ctx);
    return st;
}

/* Forward: keeps what the unit read; a tape only where nothing will be computed again. The last unit's
 * visit also holds the head and the loss, so that its parameters are there for both. */
static nrl_status visit_forward(work *w, int32_t u, nrl_tensor **totals)
{
    work_micro *m = &w->micro;
    nrl_carry out = m->carry;
    m->inputs[u] = m->carry;
    m->carry = (nrl_carry){0};
    if (w->recompute[u] || u < w->first) {
        NRL_TRY(unit_forward(w, u, &out));
    } else {
        NRL_TRY(taped_forward(w, u, &out));
        nrl_status st = NRL_OK;
        if (u == w->policy->n_units - 1) st = loss_forward(w, out.tensors[0], totals);
        else ctx_tape_end(w->ctx);
        NRL_TRY(st);
    }
    m->carry = carry_retain(&out);
    if (u < w->first) carry_release(w->ctx, &m->inputs[u]); /* nobody comes back for it */
    return NRL_OK;
}

static nrl_status visit_recompute(work *w, int32_t u)
{
    nrl_carry out = w->micro.inputs[u];
    NRL_TRY(taped_forward(w, u, &out));
    ctx_tape_end(w->ctx);
    carry_release(w->ctx, &w->micro.carry); /* the first pass's result: this one is on the tape */
    w->micro.carry = carry_retain(&out);
    return NRL_OK;
}

/* Backward: the gradient of what the unit gave becomes that of what it read, which is what the unit
 * before it gave. */
static nrl_status visit_backward(work *w, int32_t u)
{
    work_micro *m = &w->micro;
    nrl_carry *in = &m->inputs[u], back = {.n = in->n};
    nrl_status st;
    if (m->sums[0])
        st = tape_backward(w->ctx, m->tapes[u], m->sums, w->seeds, (int)w->algorithm->n_terms,
                           in->tensors, back.tensors, in->n);
    else
        st = tape_backward(w->ctx, m->tapes[u], m->carry.tensors, m->grads.tensors, m->carry.n,
                           in->tensors, back.tensors, in->n);
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

static nrl_status visit(work *w, int64_t i, nrl_batch *const *batches, nrl_tensor **totals)
{
    const nrl_visit *v = &w->visits[i];
    if (v->pass == NRL_PASS_FORWARD && v->unit == 0) {
        w->micro.batch = batches[v->micro];
        if (w->extra_column)
            NRL_TRY(w->extra_column(w->extra_user, 0, w->micro.batch, &w->micro.extra));
        NRL_TRY(ctx_set_batch(w->ctx, w->micro.batch));
    }
    switch (v->pass) {
    case NRL_PASS_FORWARD:
        return visit_forward(w, v->unit, totals);
    case NRL_PASS_RECOMPUTE:
        return visit_recompute(w, v->unit);
    default:
        return visit_backward(w, v->unit);
    }
}

static nrl_status enter(work *w, const nrl_visit *visits, int64_t i)
{
    NRL_TRY(strategy_enter(w->strategy, w->ctx, visits, i));
    if (w->gradients.buffer) gradients_enter(&w->gradients, visits, i);
    return NRL_OK;
}

static nrl_status leave(work *w, const nrl_visit *visits, int64_t i)
{
    if (w->gradients.buffer) NRL_TRY(gradients_leave(&w->gradients, w->ctx, &visits[i]));
    return strategy_leave(w->strategy, w->ctx, visits, i);
}

nrl_status work_train(work *w, nrl_batch *const *batches, nrl_tensor **totals)
{
    nrl_status st = NRL_OK;
    for (int64_t i = 0; i < w->n_visits && st == NRL_OK; i++) {
        NRL_TRY_DONE(enter(w, w->visits, i));
        ctx_scope_begin(w->ctx);
        st = visit(w, i, batches, totals);
        ctx_scope_end(w->ctx);
        if (st == NRL_OK) st = leave(w, w->visits, i);
        if (w->visits[i].pass == NRL_PASS_BACKWARD && w->visits[i].unit == w->first) micro_clear(w);
    }
done:
    if (st != NRL_OK) micro_clear(w);
    return st;
}

/* One unit of a pass without gradients; *carry is counted, before and after. */
static nrl_status forward_only(work *w, int32_t u, nrl_carry *carry, work_use use, void *user)
{
    nrl_carry out = *carry;
    NRL_TRY(enter(w, w->forward_visits, u));
    ctx_scope_begin(w->ctx);
    nrl_status st = unit_forward(w, u, &out);
    if (st == NRL_OK && u == w->policy->n_units - 1) st = use(user, out.tensors[0]);
    if (st == NRL_OK) out = carry_retain(&out);
    ctx_scope_end(w->ctx);
    if (st != NRL_OK) return st;
    carry_release(w->ctx, carry);
    *carry = out;
    return leave(w, w->forward_visits, u);
}

nrl_status work_hidden(work *w, nrl_batch *batch, work_use use, void *user)
{
    nrl_carry carry = {0};
    nrl_status st = ctx_set_batch(w->ctx, batch);
    for (int32_t u = 0; u < w->policy->n_units && st == NRL_OK; u++)
        st = forward_only(w, u, &carry, use, user);
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
    return ctx_batch(e->work->ctx)->is_tail ? NRL_OK : loss_evaluate(e->work, hidden, e->totals);
}

nrl_status work_evaluate(work *w, nrl_batch *batch, nrl_tensor **totals)
{
    nrl_tensor *extra = NULL;
    evaluation e = {w, totals};
    nrl_status st = NRL_OK;
    if (w->extra_column) st = w->extra_column(w->extra_user, 1, batch, &extra);
    if (st == NRL_OK) st = work_hidden(w, batch, evaluate_hidden, &e);
    tensor_release(w->ctx, extra);
    return st;
}

bool work_needs(const nrl_algorithm *algorithm, const char *column)
{
    for (const char *const *n = algorithm->needs; n && *n; n++)
        if (!strcmp(*n, column)) return true;
    return false;
}
