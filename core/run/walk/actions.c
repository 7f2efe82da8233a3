/*
 * actions.c - from an order of passes to the array that is walked: recomputations go in, what each action
 * uses and makes final is written to it, and micro-batches in flight are counted.
 */
#include "run/walk/actions.h"
#include <string.h>

/* One micro-batch after another: forward through all units, then back. */
static void plain_order(const actions_source *from, int32_t n_micro_batches, nrl_action *out, int64_t *n)
{
    *n = 0;
    for (int32_t m = 0; m < n_micro_batches; m++) {
        for (int32_t u = from->first; u < from->end; u++)
            out[(*n)++] = (nrl_action){.pass = NRL_PASS_FORWARD, .unit = u, .micro_batch = m, .stage = from->stage};
        for (int32_t u = from->end - 1; u >= from->first; u--)
            out[(*n)++] = (nrl_action){.pass = NRL_PASS_BACKWARD, .unit = u, .micro_batch = m, .stage = from->stage};
    }
}

/* ---- what a scheduler may not do ---- */

static nrl_status unsound(const actions_source *from, const nrl_action *v, const char *problem)
{
    return nrl_fail(NRL_ERR_PLUGIN, "schedule of '%s': %s of unit %d, micro-batch %d: %s", from->scheduler->plugin.name,
                    v->pass == NRL_PASS_FORWARD ? "FORWARD" : "BACKWARD", (int)v->unit, (int)v->micro_batch, problem);
}

/* `at` [n_micro_batches]: how far each micro-batch has come, of 2 (end - first) actions in a fixed order. */
static nrl_status check_action(const actions_source *from, int32_t n_micro_batches, const nrl_action *v, int32_t *at)
{
    int32_t units = from->end - from->first;
    if (v->pass != NRL_PASS_FORWARD && v->pass != NRL_PASS_BACKWARD)
        return unsound(from, v, "expected FORWARD and BACKWARD actions alone");
    if (v->unit < from->first || v->unit >= from->end || v->micro_batch < 0 || v->micro_batch >= n_micro_batches)
        return unsound(from, v, "is not this rank's");
    bool forward = v->pass == NRL_PASS_FORWARD;
    int32_t place = forward ? v->unit - from->first : 2 * units - 1 - (v->unit - from->first);
    if (at[v->micro_batch]++ != place) return unsound(from, v, "comes out of order");
    return NRL_OK;
}

/* ---- what the walk wants to know of each action ---- */

static void push(action_list *v, const actions_source *from, const nrl_action *order, nrl_pass pass)
{
    const model_unit *u = &from->m->units[order->unit];
    v->list[v->n] = *order;
    v->list[v->n].size = sizeof *order;
    v->list[v->n].pass = pass;
    v->list[v->n].n_uses = u->n_uses;
    v->list[v->n].uses = u->uses;
    v->n++;
}

/* A parameter's gradient is whole after the last BACKWARD that uses it. */
static void find_final(action_list *v, const actions_source *from)
{
    bool *seen = arena_alloc(&v->memory, (size_t)(from->m->n_params ? from->m->n_params : 1));
    for (int64_t i = v->n - 1; i >= 0; i--) {
        nrl_action *at = &v->list[i];
        if (at->pass != NRL_PASS_BACKWARD) continue;
        nrl_param **list = NULL;
        for (int32_t k = 0; k < at->n_uses; k++) {
            nrl_param *p = at->uses[k];
            if (!p->trained || seen[p->index]) continue;
            seen[p->index] = true;
            if (!list) list = arena_alloc(&v->memory, (size_t)at->n_uses * sizeof *list);
            list[at->n_final++] = p;
        }
        at->final = list;
    }
}

nrl_status actions_make(action_list *v, const actions_source *from, int32_t n_micro_batches)
{
    if (v->n_micro_batches == n_micro_batches && v->list) return NRL_OK;
    size_t most = 2 * (size_t)from->m->n_units * (size_t)n_micro_batches;
    int64_t n = 0;
    arena_reset(&v->memory);
    nrl_action *order = arena_alloc(&v->memory, (most ? most : 1) * sizeof *order);
    v->list = NULL; /* until it is whole */
    if (from->scheduler) {
        for (size_t i = 0; i < most; i++)
            order[i].size = sizeof *order;
        NRL_TRY(from->scheduler->schedule(from->scheduler_self, n_micro_batches, order, &n));
        int32_t units = from->end - from->first;
        int32_t *at = arena_alloc(&v->memory, (size_t)(n_micro_batches ? n_micro_batches : 1) * sizeof *at);
        if (n != 2 * (int64_t)units * n_micro_batches)
            return nrl_fail(NRL_ERR_PLUGIN,
                            "schedule of '%s': %lld actions for %d units and %d micro-batches, expected %lld",
                            from->scheduler->plugin.name, (long long)n, (int)units, (int)n_micro_batches,
                            2 * (long long)units * n_micro_batches);
        for (int64_t i = 0; i < n; i++) {
            const nrl_action *one = &order[i];
            NRL_TRY(check_action(from, n_micro_batches, one, at));
            /* The loss lies in the last FORWARD, and may give gradients there that its BACKWARD goes on with. */
            if (one->pass == NRL_PASS_FORWARD && one->unit == from->m->n_units - 1 &&
                !(i + 1 < n && one[1].unit == one->unit && one[1].micro_batch == one->micro_batch))
                return unsound(from, one, "the unit with the loss must be followed by its BACKWARD");
        }
    } else {
        plain_order(from, n_micro_batches, order, &n);
    }
    nrl_action *list = arena_alloc(&v->memory, ((size_t)n * 3 / 2 + 1) * sizeof *list);
    *v = (action_list){.list = list, .n_micro_batches = n_micro_batches, .memory = v->memory};
    for (int64_t i = 0; i < n; i++) {
        if (order[i].pass == NRL_PASS_BACKWARD && order[i].unit < from->first_trained) continue;
        if (order[i].pass == NRL_PASS_BACKWARD && from->recompute[order[i].unit])
            push(v, from, &order[i], NRL_PASS_RECOMPUTE);
        push(v, from, &order[i], (nrl_pass)order[i].pass);
    }
    for (int64_t i = 0; i < v->n; i++)
        v->list[i].n_actions = (int32_t)v->n;
    find_final(v, from);
    int32_t now = 0;
    bool *begun = arena_alloc(&v->memory, (size_t)(v->n_micro_batches ? v->n_micro_batches : 1));
    v->last = arena_alloc(&v->memory, (size_t)(v->n_micro_batches ? v->n_micro_batches : 1) * sizeof *v->last);
    for (int64_t i = 0; i < v->n; i++)
        v->last[v->list[i].micro_batch] = i;
    v->in_flight = 0;
    for (int64_t i = 0; i < v->n; i++) {
        int32_t m = v->list[i].micro_batch;
        if (!begun[m]) now++;
        begun[m] = true;
        if (now > v->in_flight) v->in_flight = now;
        if (v->last[m] == i) now--;
    }
    return NRL_OK;
}

void actions_free(action_list *v)
{
    arena_free(&v->memory);
    *v = (action_list){0};
}
