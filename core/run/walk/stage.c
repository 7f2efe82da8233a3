/*
 * stage.c - sends carries from stage to stage, as calls on the axis that divides the depth, matched by tag.
 */
#include "run/walk/stage.h"
#include "base/arena.h"
#include <stdlib.h>

enum { MAX_SENT = 16 }; /* messages of walks without gradients on their way before the oldest is waited for */

static const char *const what_of[] = {[NRL_PASS_FORWARD] = "carry", [NRL_PASS_BACKWARD] = "gradient of a carry"};

stage_link stage_whole(const model *m)
{
    stage_link s = {.n = 1, .n_units = m->n_units, .first_trained = model_first_trained(m), .n_carry = m->n_carry};
    for (int32_t k = 0; k < m->n_carry; k++)
        s.width[k] = m->carry_width[k];
    return s;
}

bool stage_goes_around(const stage_link *s)
{
    bool falls = false;
    for (int32_t u = 1; s->stages && u < s->n_units; u++)
        falls = falls || s->stages[u] < s->stages[u - 1];
    return falls;
}

uint32_t stage_begin(stage_link *s, bool is_step)
{
    return (s->n_begun[is_step]++ & 0x3ff) << 1 | (is_step ? STAGE_IS_STEP : 0);
}

/* The unit that the action's input comes from, or that its result goes to. */
static int32_t unit_beside(const nrl_action *v, bool behind)
{
    return (v->pass == NRL_PASS_FORWARD) == behind ? v->unit + 1 : v->unit - 1;
}

static bool passes_on(const stage_link *s, const nrl_action *v, bool behind)
{
    const int32_t other = unit_beside(v, behind);
    return s->comm && (v->pass == NRL_PASS_FORWARD || v->pass == NRL_PASS_BACKWARD) && other >= 0 &&
           other < s->n_units && !stage_has(s, other);
}

bool stage_receives(const stage_link *s, const nrl_action *v)
{
    return passes_on(s, v, false);
}

bool stage_sends(const stage_link *s, const nrl_action *v)
{
    return passes_on(s, v, true) && (v->pass == NRL_PASS_FORWARD || v->unit > s->first_trained);
}

/* 31 bits (a group of a collective takes 32, the highest are strategies' own): a walk, a micro-batch, how often the
 * units before have gone around the ranks, an instance, a direction, a tensor. Numbers are used again after their
 * messages have arrived. */
static uint64_t tag_of(const stage_link *s, const stage_message *m, int32_t k)
{
    uint32_t backward = m->pass == NRL_PASS_BACKWARD, changes = 0;
    for (int32_t u = 1; u < m->unit; u++)
        changes += s->stages[u] != s->stages[u - 1];
    return (uint64_t)(m->id << 20 | ((uint32_t)m->micro_batch & 0x3ff) << 10 | (changes / (uint32_t)s->n & 0x3f) << 4 |
                      (uint32_t)(s->instance & 1) << 3 | backward << 2 | (uint32_t)k);
}

static stage_message *push(stage_message **list, int32_t *n, int32_t *room, uint32_t id, const nrl_action *v,
                           int32_t unit)
{
    if (*n == *room) {
        *room = *room ? 2 * *room : 4;
        *list = mem_realloc(*list, (size_t)*room * sizeof **list);
    }
    (*list)[*n] = (stage_message){.id = id, .pass = v->pass, .unit = unit, .micro_batch = v->micro_batch};
    return &(*list)[(*n)++];
}

static void forget(stage_message *list, int32_t *n, int32_t i)
{
    for ((*n)--; i < *n; i++)
        list[i] = list[i + 1];
}

/* Allocates the tensors of a message, not yet written; each is counted for the caller. */
static nrl_status make_tensor(const stage_link *s, nrl_ctx *ctx, int32_t k, int64_t rows, nrl_tensor **out)
{
    const int64_t dims[] = {rows, s->width[k]};
    ctx_scope_begin(ctx);
    nrl_status st = nrl_tensor_new(ctx, s->dtype, 2, dims, out);
    if (st == NRL_OK) tensor_retain(*out);
    ctx_scope_end(ctx);
    return st;
}

static nrl_status wait_all(stage_message *m, nrl_ctx *ctx)
{
    nrl_status st = NRL_OK;
    for (int32_t k = 0; k < m->carry.n; k++) {
        nrl_status mine = nrl_work_wait(&m->works[k], ctx);
        if (st == NRL_OK) st = mine;
    }
    return st;
}

/* ---- receiving ---- */

static int32_t find(const stage_link *s, uint32_t id, const nrl_action *v, int32_t unit)
{
    for (int32_t i = 0; i < s->n_posted; i++) {
        const stage_message *m = &s->posted[i];
        if (m->id == id && m->pass == v->pass && m->unit == unit && m->micro_batch == v->micro_batch) return i;
    }
    return -1;
}

nrl_status stage_post(stage_link *s, nrl_ctx *ctx, uint32_t id, const nrl_action *v, int64_t rows)
{
    const int32_t from = unit_beside(v, false), unit = from > v->unit ? from : v->unit;
    if (find(s, id, v, unit) >= 0) return NRL_OK;
    stage_message *m = push(&s->posted, &s->n_posted, &s->posted_room, id, v, unit);
    for (int32_t k = 0; k < s->n_carry; k++) {
        NRL_TRY(make_tensor(s, ctx, k, rows, &m->carry.tensors[k]));
        m->carry.n = k + 1;
        nrl_comm_call call = {.size = sizeof call,
                              .peer = s->stages[from],
                              .receive = m->carry.tensors[k],
                              .tag = tag_of(s, m, k),
                              .what = what_of[v->pass]};
        NRL_TRY(nrl_comm_recv(s->comm, ctx, &call, &m->works[k]));
    }
    return NRL_OK;
}

nrl_status stage_take(stage_link *s, nrl_ctx *ctx, uint32_t id, const nrl_action *v, int64_t rows, nrl_carry *out)
{
    NRL_TRY(stage_post(s, ctx, id, v, rows));
    int32_t i = find(s, id, v, v->pass == NRL_PASS_FORWARD ? v->unit : v->unit + 1);
    NRL_TRY(wait_all(&s->posted[i], ctx));
    *out = s->posted[i].carry;
    forget(s->posted, &s->n_posted, i);
    return NRL_OK;
}

/* ---- sending ---- */

static bool has_left(const stage_message *m)
{
    for (int32_t k = 0; k < m->carry.n; k++)
        if (m->works[k] && !nrl_work_done(m->works[k])) return false;
    return true;
}

static nrl_status drop_sent(stage_link *s, nrl_ctx *ctx, int32_t i)
{
    nrl_status st = wait_all(&s->sent[i], ctx);
    carry_release(ctx, &s->sent[i].carry);
    forget(s->sent, &s->n_sent, i);
    return st;
}

/* Returns t itself, counted, if it is contiguous and has the dtype of messages; else a copy, or zeros. */
static nrl_status sendable(const stage_link *s, nrl_ctx *ctx, int32_t unit, int32_t k, int64_t rows, nrl_tensor *t,
                           nrl_tensor **out)
{
    nrl_mat mat = t ? nrl_tensor_mat(t) : (nrl_mat){0};
    bool fits = t && mat.dtype == s->dtype && (mat.rows <= 1 || mat.stride == mat.cols);
    if (t && (mat.rows != rows || mat.cols != s->width[k]))
        return nrl_fail(NRL_ERR_PLUGIN, "carry %d of unit %d is [%lld,%lld], but the model declared [%lld,%lld]", k,
                        unit, (long long)mat.rows, (long long)mat.cols, (long long)rows, (long long)s->width[k]);
    if (fits) {
        *out = tensor_retain(t);
        return NRL_OK;
    }
    NRL_TRY(make_tensor(s, ctx, k, rows, out));
    return t ? nrl_tensor_copy(ctx, t, *out) : nrl_tensor_fill(ctx, *out, 0);
}

nrl_status stage_send(stage_link *s, nrl_ctx *ctx, uint32_t id, const nrl_action *v, int64_t rows,
                      const nrl_carry *carry)
{
    /* Drops messages that have been sent. Beyond MAX_SENT it waits for the oldest one, unless the schedule of a step
     * bounds them: with gpipe a rank receives its first gradient after all forwards, whatever the last stage has sent
     * by then. */
    for (int32_t i = 0; i < s->n_sent;) {
        if (has_left(&s->sent[i]))
            NRL_TRY(drop_sent(s, ctx, i));
        else
            i++;
    }
    if (s->n_sent > MAX_SENT && !(id & STAGE_IS_STEP)) NRL_TRY(drop_sent(s, ctx, 0));
    if (carry->n != s->n_carry)
        return nrl_fail(NRL_ERR_PLUGIN, "unit %d passes %d tensors, but the model declared %d", v->unit, carry->n,
                        s->n_carry);
    const int32_t to = unit_beside(v, true);
    stage_message *m = push(&s->sent, &s->n_sent, &s->sent_room, id, v, to > v->unit ? to : v->unit);
    for (int32_t k = 0; k < s->n_carry; k++) {
        m->carry.n = k + 1; /* whatever fails below, the counted tensors are released */
        NRL_TRY(sendable(s, ctx, v->unit, k, rows, carry->tensors[k], &m->carry.tensors[k]));
        nrl_comm_call call = {.size = sizeof call,
                              .peer = s->stages[to],
                              .send = m->carry.tensors[k],
                              .tag = tag_of(s, m, k),
                              .what = what_of[v->pass]};
        NRL_TRY(nrl_comm_send(s->comm, ctx, &call, &m->works[k]));
    }
    return NRL_OK;
}

nrl_status stage_settle(stage_link *s, nrl_ctx *ctx)
{
    nrl_status st = NRL_OK;
    while (s->n_sent) {
        nrl_status mine = drop_sent(s, ctx, 0);
        if (st == NRL_OK) st = mine;
    }
    return st;
}

/* Receives may be pending after an error. The caller has reported it to the other ranks, so no wait is long. */
void stage_close(stage_link *s, nrl_ctx *ctx)
{
    (void)stage_settle(s, ctx);
    for (int32_t i = 0; i < s->n_posted; i++) {
        (void)wait_all(&s->posted[i], ctx);
        carry_release(ctx, &s->posted[i].carry);
    }
    free(s->posted);
    free(s->sent);
    s->posted = s->sent = NULL;
    s->n_posted = s->n_sent = 0;
}
