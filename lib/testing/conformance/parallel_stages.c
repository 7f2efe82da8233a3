/*
 * parallel_stages.c - rules for a strategy with stages: stages are consecutive units, a rank holds the
 * parameters that its units use, and the orders of actions of all ranks together can be completed.
 * Each rank compares the orders of all ranks as data; nothing is sent.
 */
#include "parallel.h"
#include "mesh/layout.h"
#include <stdlib.h>
#include <string.h>

#define RULE_STAGES "stages are consecutive units, at least one"
#define RULE_HELD "a stage holds what its units use"
#define RULE_ORDER "a micro-batch goes forward through a stage, then backward"
#define RULE_END "stages do not deadlock"

#define RULE_SENDS "a rank sends in the order in which the other uses it"

enum { MOST_VISITS = 3 * TOY_UNITS * TOY_MICRO };

bool toy_is_held(const toy *t, const nrl_param *p)
{
    return layout_is_held(t->mesh, t->rank, p);
}

/* ---- the plan ---- */

bool toy_check_stages(toy *t)
{
    const int32_t *stages = t->plan.stages;
    bool sound = stages && stages[0] == 0 && stages[TOY_UNITS - 1] == t->world - 1;
    for (int u = 1; sound && u < TOY_UNITS; u++)
        sound = stages[u] == stages[u - 1] || stages[u] == (stages[u - 1] + 1) % t->world;
    if (!report_check(t->report, sound, RULE_STAGES, "%d stages of %d units", t->world, TOY_UNITS))
        return !(t->over = true);
    for (int u = 0; u < TOY_UNITS; u++)
        for (int32_t k = 0; k < t->units[u].n_uses; k++)
            sound = report_check(t->report, layout_is_held(t->mesh, stages[u], t->units[u].uses[k]), RULE_HELD,
                                 "unit '%s' of stage %d uses '%s', which is not there", t->units[u].name, stages[u],
                                 nrl_param_name(t->units[u].uses[k])) &&
                    sound;
    t->over = t->over || !sound;
    return sound;
}

/* ---- an order ---- */

typedef struct {
    int32_t n;
    nrl_action actions[MOST_VISITS];
} order;

/* For each micro-batch, each unit of the rank goes forward once, in rising order, then backward once, in falling order.
 * A BACKWARD_WEIGHT follows its BACKWARD, which is then split. */
static bool check_order(toy *t, int32_t n_micro_batches, order *o)
{
    int32_t at[TOY_MICRO] = {0}, own[2 * TOY_UNITS], n = 0;
    nrl_action *backward[TOY_UNITS][TOY_MICRO] = {{NULL}};
    for (int32_t k = 0; k < 2 * TOY_UNITS; k++) {
        const int32_t u = k < TOY_UNITS ? k : 2 * TOY_UNITS - 1 - k;
        if (t->plan.stages[u] == t->rank) own[n++] = k;
    }
    bool sound = o->n >= 0 && o->n <= MOST_VISITS;
    for (int32_t i = 0; sound && i < o->n; i++) {
        nrl_action *v = &o->actions[i];
        sound = v->micro_batch >= 0 && v->micro_batch < n_micro_batches && v->unit >= 0 && v->unit < TOY_UNITS;
        if (!sound) break;
        nrl_action **its = &backward[v->unit][v->micro_batch];
        if (v->pass == NRL_PASS_BACKWARD_WEIGHT) {
            sound = *its && !(*its)->splits;
            if (sound) (*its)->splits = true;
            continue;
        }
        const int32_t place = v->pass == NRL_PASS_FORWARD ? v->unit : 2 * TOY_UNITS - 1 - v->unit;
        sound = (v->pass == NRL_PASS_FORWARD || v->pass == NRL_PASS_BACKWARD) && at[v->micro_batch] < n &&
                own[at[v->micro_batch]++] == place;
        if (v->pass == NRL_PASS_BACKWARD) *its = v;
        if (place == TOY_UNITS - 1)
            sound = sound && i + 1 < o->n && v[1].unit == v->unit && v[1].micro_batch == v->micro_batch;
    }
    for (int32_t m = 0; m < n_micro_batches; m++)
        sound = sound && at[m] == n;
    if (!report_check(t->report, sound, RULE_ORDER, "rank %d of %d, %d micro-batches", t->rank, t->world,
                      n_micro_batches))
        return !(t->over = true);
    return true;
}

/* ---- all stages together ---- */

typedef struct {
    bool there[2][TOY_UNITS][TOY_MICRO]; /* pass, unit */
} progress;

/* Whether the input of an action is available. */
static bool can_go(const progress *p, const nrl_action *v)
{
    if (v->pass == NRL_PASS_BACKWARD_WEIGHT) return true;
    if (v->pass == NRL_PASS_FORWARD) return v->unit == 0 || p->there[0][v->unit - 1][v->micro_batch];
    return v->unit == TOY_UNITS - 1 || p->there[1][v->unit + 1][v->micro_batch];
}

static bool execute(const order *all, int32_t world)
{
    progress p = {0};
    int32_t next[PARALLEL_RANKS] = {0};
    bool moved = true, ended = true;
    while (moved) {
        moved = false;
        for (int32_t s = 0; s < world; s++)
            while (next[s] < all[s].n && can_go(&p, &all[s].actions[next[s]])) {
                const nrl_action *v = &all[s].actions[next[s]++];
                p.there[v->pass != NRL_PASS_FORWARD][v->unit][v->micro_batch] = true;
                moved = true;
            }
    }
    for (int32_t s = 0; s < world; s++)
        ended = ended && next[s] == all[s].n;
    return ended;
}

/* The next action from *at on whose result goes to, or whose input comes from, rank `other`; NULL: none. `unit`: the
 * later one of the two between which it passes. */
static const nrl_action *next_between(const toy *t, const order *o, int32_t other, bool sends, int32_t *at,
                                      int32_t *unit)
{
    while (*at < o->n) {
        const nrl_action *v = &o->actions[(*at)++];
        const int32_t beside = v->unit + ((v->pass == NRL_PASS_FORWARD) == sends ? 1 : -1);
        if (v->pass == NRL_PASS_BACKWARD_WEIGHT || beside < 0 || beside >= TOY_UNITS ||
            t->plan.stages[beside] != other || t->plan.stages[v->unit] == other)
            continue;
        *unit = beside > v->unit ? beside : v->unit;
        return v;
    }
    return NULL;
}

static bool ranks_agree(const toy *t, const order *all)
{
    for (int32_t from = 0; from < t->world; from++)
        for (int32_t to = 0; to < t->world; to++) {
            int32_t at = 0, other = 0, sent_unit = 0, used_unit = 0;
            const nrl_action *sent, *used;
            if (from == to) continue;
            do {
                sent = next_between(t, &all[from], to, true, &at, &sent_unit);
                used = next_between(t, &all[to], from, false, &other, &used_unit);
                if (!sent != !used) return false;
                if (sent &&
                    (sent->pass != used->pass || sent->micro_batch != used->micro_batch || sent_unit != used_unit))
                    return false;
            } while (sent);
        }
    return true;
}

static bool check_together(toy *t, int32_t n_micro_batches, const order *own)
{
    order all[PARALLEL_RANKS];
    if (!toy_ok(t, mesh_exchange(t->mesh, "orders", own, sizeof *own, all), RULE_END)) return false;
    bool good = report_check(t->report, execute(all, t->world), RULE_END, "%d ranks, %d micro-batches", t->world,
                             n_micro_batches);
    good = report_check(t->report, ranks_agree(t, all), RULE_SENDS, "%d ranks, %d micro-batches", t->world,
                        n_micro_batches) &&
           good;
    t->over = t->over || !good;
    return good;
}

/* ---- the order that the toy walks ---- */

static void mark_final(toy *t)
{
    bool seen[TOY_PARAMS] = {false};
    memset(t->n_final, 0, sizeof t->n_final);
    for (int32_t i = t->n_actions - 1; i >= 0; i--) {
        nrl_action *v = &t->actions[i];
        if (v->pass < NRL_PASS_BACKWARD) continue;
        nrl_param **list = t->final[v->unit];
        int32_t n = 0;
        for (int32_t k = 0; k < v->n_uses; k++) {
            const nrl_param *p = v->uses[k];
            if (!p->trained || seen[p->index]) continue;
            seen[p->index] = true;
            list[n++] = v->uses[k];
        }
        v->final = list;
        v->n_final = n;
    }
}

bool toy_schedule_stage(toy *t, int32_t n_micro_batches, bool train)
{
    order own = {0};
    int64_t n = 0;
    memset(t->wide, 0, sizeof t->wide);
    for (size_t i = 0; i < sizeof t->wide / sizeof *t->wide; i++)
        t->wide[i].action.size = sizeof *t->wide;
    if (!toy_ok(t, t->g->table->schedule(t->self, n_micro_batches, &t->wide->action, &n), "schedule succeeds"))
        return false;
    own.n = (int32_t)n;
    for (int32_t i = 0; i < own.n && i < MOST_VISITS; i++)
        own.actions[i] = t->wide[i].action;
    if (!check_order(t, n_micro_batches, &own) || !check_together(t, n_micro_batches, &own)) return false;
    t->n_actions = 0;
    for (int32_t i = 0; i < own.n; i++) {
        nrl_action v = own.actions[i];
        if (!train && v.pass != NRL_PASS_FORWARD) continue;
        v.instance = t->plan.instance;
        v.n_uses = t->units[v.unit].n_uses;
        v.uses = t->units[v.unit].uses;
        t->actions[t->n_actions++] = v;
    }
    for (int32_t i = 0; i < t->n_actions; i++)
        t->actions[i].n_actions = t->n_actions;
    if (train) mark_final(t);
    return true;
}
