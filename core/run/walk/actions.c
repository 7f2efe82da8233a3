/*
 * actions.c - makes the array that is walked from an order of passes: inserts recomputations, and writes to each action
 * what it uses and what is final after it.
 */
#include "run/walk/actions.h"
#include <string.h>

/* A micro-batch passes forward through the units and back: returns unit number k of 2 n_units on this way. */
static int32_t unit_at(const actions_source *from, int32_t k)
{
    return k < from->m->n_units ? k : 2 * from->m->n_units - 1 - k;
}

/* Returns the next place on the way, from k on, whose unit belongs to this rank. */
static int32_t next_place(const actions_source *from, int32_t k)
{
    while (k < 2 * from->m->n_units && !stage_has(from->stage, unit_at(from, k)))
        k++;
    return k;
}

/* One micro-batch after another. */
static void plain_order(const actions_source *from, int32_t n_micro_batches, nrl_action *out, int64_t *n)
{
    *n = 0;
    for (int32_t m = 0; m < n_micro_batches; m++)
        for (int32_t k = next_place(from, 0); k < 2 * from->m->n_units; k = next_place(from, k + 1))
            out[(*n)++] = (nrl_action){.pass = k < from->m->n_units ? NRL_PASS_FORWARD : NRL_PASS_BACKWARD,
                                       .unit = unit_at(from, k),
                                       .micro_batch = m,
                                       .stage = from->stage->index};
}

/* ---- checks of a scheduler's order ---- */

static nrl_status unsound(const actions_source *from, const nrl_action *v, const char *problem)
{
    static const char *const names[] = {"no pass", "FORWARD", "RECOMPUTE", "BACKWARD", "BACKWARD_WEIGHT"};
    return nrl_fail(NRL_ERR_PLUGIN, "schedule of '%s': %s of unit %d, micro-batch %d: %s", from->scheduler->plugin.name,
                    v->pass <= NRL_PASS_BACKWARD_WEIGHT ? names[v->pass] : "unknown pass", (int)v->unit,
                    (int)v->micro_batch, problem);
}

/* Each micro-batch goes all the way through this rank's units. Sets `splits` of BACKWARDs with a BACKWARD_WEIGHT. */
static nrl_status check_order(action_list *v, const actions_source *from, int32_t n_micro_batches, nrl_action *order,
                              int64_t n)
{
    const int32_t units = from->m->n_units;
    int32_t *at = arena_alloc(&v->memory, (size_t)n_micro_batches * sizeof *at + 1);
    nrl_action **backward = arena_alloc(&v->memory, (size_t)n_micro_batches * (size_t)units * sizeof(nrl_action *) + 1);
    for (int64_t i = 0; i < n; i++) {
        nrl_action *a = &order[i];
        if (a->unit < 0 || a->unit >= units || !stage_has(from->stage, a->unit) || a->micro_batch < 0 ||
            a->micro_batch >= n_micro_batches)
            return unsound(from, a, "belongs to another rank");
        nrl_action **its = &backward[a->micro_batch * units + a->unit];
        if (a->pass == NRL_PASS_BACKWARD_WEIGHT) {
            if (!*its || (*its)->splits) return unsound(from, a, "expected once, after the BACKWARD");
            (*its)->splits = true;
            continue;
        }
        const int32_t place = next_place(from, at[a->micro_batch]);
        if (place == 2 * units || a->unit != unit_at(from, place) ||
            a->pass != (uint32_t)(place < units ? NRL_PASS_FORWARD : NRL_PASS_BACKWARD))
            return unsound(from, a, "is out of order");
        at[a->micro_batch] = place + 1;
        if (a->pass == NRL_PASS_BACKWARD) *its = a;
        /* The last FORWARD contains the loss and may already produce gradients, to which its BACKWARD adds. */
        if (place == units - 1 && !(i + 1 < n && a[1].unit == a->unit && a[1].micro_batch == a->micro_batch))
            return unsound(from, a, "the unit with the loss must be followed by its BACKWARD");
    }
    for (int32_t m = 0; m < n_micro_batches; m++)
        if (next_place(from, at[m]) < 2 * units)
            return nrl_fail(NRL_ERR_PLUGIN,
                            "schedule of '%s': micro-batch %d does not pass all units forward and backward",
                            from->scheduler->plugin.name, (int)m);
    return NRL_OK;
}

/* ---- what the walk needs to know about each action ---- */

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

/* The gradient of a parameter is complete after the last BACKWARD or BACKWARD_WEIGHT that uses it. */
static void find_final(action_list *v, const actions_source *from)
{
    bool *seen = arena_alloc(&v->memory, (size_t)(from->m->n_params ? from->m->n_params : 1));
    for (int64_t i = v->n - 1; i >= 0; i--) {
        nrl_action *at = &v->list[i];
        if (at->pass < NRL_PASS_BACKWARD) continue;
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
    size_t most = 3 * (size_t)from->m->n_units * (size_t)n_micro_batches;
    int64_t n = 0;
    arena_reset(&v->memory);
    nrl_action *order = arena_alloc(&v->memory, (most ? most : 1) * sizeof *order);
    v->list = NULL; /* set again when the list is complete */
    if (from->scheduler) {
        for (size_t i = 0; i < most; i++)
            order[i].size = sizeof *order;
        NRL_TRY(from->scheduler->schedule(from->scheduler_self, n_micro_batches, order, &n));
        NRL_TRY(check_order(v, from, n_micro_batches, order, n));
    } else {
        plain_order(from, n_micro_batches, order, &n);
    }
    nrl_action *list = arena_alloc(&v->memory, ((size_t)n * 3 / 2 + 1) * sizeof *list);
    *v = (action_list){.list = list, .n_micro_batches = n_micro_batches, .memory = v->memory};
    for (int64_t i = 0; i < n; i++) {
        if (order[i].pass >= NRL_PASS_BACKWARD && order[i].unit < from->stage->first_trained) continue;
        if (order[i].pass == NRL_PASS_BACKWARD && from->recompute[order[i].unit])
            push(v, from, &order[i], NRL_PASS_RECOMPUTE);
        push(v, from, &order[i], (nrl_pass)order[i].pass);
    }
    for (int64_t i = 0; i < v->n; i++)
        v->list[i].n_actions = (int32_t)v->n;
    find_final(v, from);
    v->last = arena_alloc(&v->memory, (size_t)(v->n_micro_batches ? v->n_micro_batches : 1) * sizeof *v->last);
    for (int64_t i = 0; i < v->n; i++)
        v->last[v->list[i].micro_batch] = i;
    return NRL_OK;
}

void actions_free(action_list *v)
{
    arena_free(&v->memory);
    *v = (action_list){0};
}
