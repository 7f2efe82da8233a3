/*
 * strategy_plan.c - opens the strategies of all axes on a model: each writes layouts and answers. With stages
 * the other axes plan stage by stage (strategy.h); nothing is allocated on a device.
 */
#include "model/packed.h"
#include "run/walk/strategy.h"
#include <string.h>

enum { LARGEST_BLOCK = 4096 }; /* shards at multiples of larger ones would be uneven; such blocks are gathered */

/* The model as a strategy sees it. */
typedef struct {
    nrl_unit_uses *units; /* [n_units] */
    nrl_param **params;
    int32_t n_params;
    double *flops; /* [n_units] */
} view;

/* The layout of a part after the strategy of the stages, and as the first stage that has the part completed it. */
typedef struct {
    nrl_layout base, planned;
    bool is_planned;
} part_state;

typedef struct {
    strategy *s;
    const strategy_setup *setup;
    part_state **parts; /* [n_params][n_parts] */
} planning;

static arena *memory(planning *p)
{
    return &p->s->memory;
}

/* ---- what is seen ---- */

static view view_of_all(planning *p)
{
    const model *m = p->setup->m;
    view v = {.params = m->params, .n_params = m->n_params};
    v.units = arena_alloc(memory(p), (size_t)m->n_units * sizeof *v.units);
    v.flops = arena_alloc(memory(p), (size_t)m->n_units * sizeof *v.flops);
    for (int32_t u = 0; u < m->n_units; u++) {
        v.units[u] = (nrl_unit_uses){.name = m->units[u].name, .n_uses = m->units[u].n_uses, .uses = m->units[u].uses};
        v.flops[u] = model_unit_flops(m, u);
    }
    return v;
}

/* What a strategy that divides `divides` sees of v. A quantized weight has a width that is divided, and may be an
 * expert's; all else is its store's. Parameters of experts of other ranks are left out. */
static view seen_of(planning *p, const view *v, uint32_t divides)
{
    view seen = *v;
    seen.params = arena_alloc(memory(p), (size_t)v->n_params * sizeof *seen.params);
    seen.units = arena_alloc(memory(p), (size_t)p->setup->m->n_units * sizeof *seen.units);
    seen.n_params = 0;
    for (int32_t i = 0; i < v->n_params; i++) {
        const nrl_param *q = v->params[i];
        const bool of_weights = divides == NRL_DIVIDES_WIDTH || divides == NRL_DIVIDES_EXPERTS;
        if (q->packing ? of_weights : q->numel > 0) seen.params[seen.n_params++] = v->params[i];
    }
    for (int32_t u = 0; u < p->setup->m->n_units; u++) {
        const nrl_unit_uses *all = &v->units[u];
        nrl_param **uses = arena_alloc(memory(p), (size_t)all->n_uses * sizeof *uses + 1);
        seen.units[u] = (nrl_unit_uses){.name = all->name, .uses = uses};
        for (int32_t i = 0; i < all->n_uses; i++)
            if (all->uses[i]->numel > 0) uses[seen.units[u].n_uses++] = all->uses[i];
    }
    return seen;
}

static bool is_held_by(const nrl_param *q, int32_t stage)
{
    const bool *owner_stages = q->parts[0].layout.owner_stages;
    return !owner_stages || owner_stages[stage];
}

static nrl_parallel_plan question(const strategy_setup *setup, const view *v, bool quiet)
{
    return (nrl_parallel_plan){.size = sizeof(nrl_parallel_plan),
                               .instance = setup->instance,
                               .train = setup->train,
                               .quiet = setup->quiet || quiet,
                               .compute = setup->compute,
                               .n_states = setup->train ? setup->n_states : 0,
                               .block = setup->train && setup->block <= LARGEST_BLOCK ? setup->block : 1,
                               .n_params = v->n_params,
                               .n_units = setup->m->n_units,
                               .params = v->params,
                               .units = v->units,
                               .n_heads = setup->m->info.n_heads,
                               .n_kv_heads = setup->m->info.n_kv_heads,
                               .split16 = setup->train && setup->split16,
                               .bf16_gradients = setup->train && setup->bf16_gradients,
                               .repeats = setup->train && setup->repeats,
                               .two_passes = setup->train && setup->two_passes,
                               .unit_flops = v->flops};
}

/* ---- one strategy ---- */

static bool has_experts(const model *m)
{
    for (int32_t i = 0; i < m->n_params; i++)
        if (m->params[i]->expert) return true;
    return false;
}

/* A strategy that ignores a request would bind its usual tensors. The walk has the stages of the first strategy. Ranks
 * that step alone clip by a norm of their own, which other axes would have to share. */
static nrl_status check_answer(const planning *p, const strategy_member *one)
{
    bool depth = one->axis->divides == NRL_DIVIDES_DEPTH;
    int32_t own = nrl_mesh_size(p->setup->mesh, one->axis->name), world = nrl_mesh_world(p->setup->mesh);
    if (one->plan.split16 && !one->plan.takes_split16)
        return nrl_fail(NRL_ERR_CONFIG, "it stores masters in fp32, but train.master is split16");
    if (one->plan.bf16_gradients && !one->plan.takes_bf16_gradients)
        return nrl_fail(NRL_ERR_CONFIG, "it stores gradients in fp32, but train.gradients is bf16");
    if (one->plan.shards_tokens && (!p->setup->m->info.token_shards || !one->table->tokens))
        return nrl_fail(NRL_ERR_CONFIG,
                        "it shards tokens, which model '%s' does not support (token_shards of nrl/model.h)",
                        p->setup->m->type);
    if (one->plan.merges_attention && p->setup->backend &&
        device_attention_lacks(p->setup->backend, p->setup->delegate) & NRL_ATTENTION_MERGE)
        return nrl_fail(NRL_ERR_CONFIG,
                        "it merges attention over parts of the tokens, which backend '%s' does not support; expected "
                        "another backend or strategy",
                        p->setup->backend->plugin.name);
    if (one->plan.overlaps && !one->table->tp_region_begin)
        return nrl_fail(NRL_ERR_PLUGIN, "its plan sets `overlaps`, but it has no `tp_region_begin`");
    if (depth && one->axis != p->setup->choices->of[0].axis)
        return nrl_fail(NRL_ERR_CONFIG, "axis '%s' divides the units into stages, but axis '%s' already does",
                        one->axis->name, p->setup->choices->of[0].axis->name);
    if (depth != (one->plan.stages != NULL))
        return nrl_fail(NRL_ERR_PLUGIN, "its axis '%s' divides %s, and its plan has %s", one->axis->name,
                        depth ? "the depth" : "no depth", depth ? "no stages" : "stages");
    const model *m = p->setup->m;
    for (int32_t i = 0; i < m->n_terms && one->axis->divides == NRL_DIVIDES_TOKENS && own > 1 && p->setup->train; i++)
        if (!m->terms[i].sums_tokens)
            return nrl_fail(NRL_ERR_CONFIG,
                            "cannot shard the tokens of a micro-batch: the loss term '%s' of the model needs all "
                            "tokens (sums_tokens of nrl/model.h); expected no axis '%s', or a coefficient of 0",
                            m->terms[i].name, one->axis->name);
    if (one->axis->divides == NRL_DIVIDES_EXPERTS && !one->table->exchange)
        return nrl_fail(NRL_ERR_PLUGIN, "its axis '%s' divides the experts, but it has no `exchange`", one->axis->name);
    if (one->axis->divides == NRL_DIVIDES_EXPERTS && own > 1 && !has_experts(p->setup->m))
        return nrl_fail(NRL_ERR_CONFIG,
                        "model '%s' has no experts that %d ranks can divide; expected a mixture-of-experts model, or "
                        "no axis '%s'",
                        p->setup->m->type, (int)own, one->axis->name);
    if (!one->plan.local_steps || own == world) return NRL_OK;
    return nrl_fail(NRL_ERR_CONFIG,
                    "its sync_every cannot be combined with axes other than %s: %d of %d ranks are on this axis",
                    one->axis->name, (int)own, (int)world);
}

static nrl_status open_member(planning *p, const strategy_choice *choice, const view *v, bool own, strategy_member *one)
{
    const view seen = seen_of(p, v, choice->axis->divides);
    *one = (strategy_member){.table = choice->table, .axis = choice->axis, .plan = question(p->setup, &seen, !own)};
    nrl_status st = one->table->create(choice->options, p->setup->mesh, &one->self);
    if (st != NRL_OK)
        one->self = NULL; /* a failed create may have left a value here */
    else
        st = one->table->plan(one->self, &one->plan);
    for (int32_t i = 0; i < v->n_params; i++)
        layout_settle(p->setup->mesh, v->params[i]);
    if (st == NRL_OK) st = model_settle_packed(p->setup->m, p->setup->compute);
    if (st == NRL_OK) st = check_answer(p, one);
    if (st != NRL_OK) nrl_add_context("parallel strategy '%s'", one->table->plugin.name);
    if (st != NRL_OK && choice->at) nrl_add_context("%s", nrl_node_place(choice->at));
    return st;
}

static nrl_status open_own(planning *p, const strategy_choice *choice, const view *v)
{
    strategy *s = p->s;
    strategy_member *one = &s->of[s->n++];
    NRL_TRY(open_member(p, choice, v, true, one));
    s->plan.gathers_weights |= one->plan.gathers_weights;
    s->plan.reduces_grads |= one->plan.reduces_grads;
    s->plan.local_steps |= one->plan.local_steps;
    s->plan.buffer_bytes += one->plan.buffer_bytes;
    s->plan.offloaded_bytes += one->plan.offloaded_bytes;
    return NRL_OK;
}

/* ---- stages ---- */

static nrl_status check_stages(const planning *p, const strategy_member *one, int32_t n_stages)
{
    const int32_t *stages = one->plan.stages;
    const model *m = p->setup->m;
    bool sound = stages[0] == 0 && stages[m->n_units - 1] == n_stages - 1;
    for (int32_t u = 1; u < m->n_units; u++)
        sound = sound && (stages[u] == stages[u - 1] || stages[u] == (stages[u - 1] + 1) % n_stages);
    for (int32_t u = 0; sound && u < m->n_units; u++)
        for (int32_t i = 0; i < m->units[u].n_uses; i++)
            sound = sound && is_held_by(m->units[u].uses[i], stages[u]);
    if (sound) return NRL_OK;
    return nrl_fail(NRL_ERR_PLUGIN,
                    "parallel strategy '%s': expected stages of units that increase from 0 to %d in steps of 1, once "
                    "or several times, and contain the parameters that their units use",
                    one->table->plugin.name, n_stages - 1);
}

/* ---- layouts of a part that several stages have ---- */

static bool is_same_cut(const nrl_placement *a, const nrl_placement *b)
{
    size_t size = (size_t)a->n * sizeof *a->begin;
    return a->n == b->n && a->dim == b->dim && !strcmp(a->axis, b->axis) && !memcmp(a->begin, b->begin, size) &&
           !memcmp(a->end, b->end, size);
}

static bool is_same_layout(const nrl_layout *a, const nrl_layout *b)
{
    bool same = a->n_placements == b->n_placements;
    for (int32_t i = 0; same && i < a->n_placements; i++)
        same = is_same_cut(&a->placements[i], &b->placements[i]);
    return same;
}

static nrl_status plan_stage(planning *p, const int32_t *stages, int32_t stage)
{
    const strategy_choices *choices = p->setup->choices;
    strategy *s = p->s;
    /* Units keep their numbers: those of other stages use nothing. */
    const model *m = p->setup->m;
    view v = view_of_all(p);
    v.params = arena_alloc(memory(p), (size_t)m->n_params * sizeof *v.params);
    v.n_params = 0;
    for (int32_t i = 0; i < m->n_params; i++)
        if (is_held_by(m->params[i], stage)) v.params[v.n_params++] = m->params[i];
    for (int32_t u = 0; u < m->n_units; u++)
        if (stages[u] != stage) v.units[u].n_uses = 0;
    for (int32_t i = 0; i < v.n_params; i++) {
        for (int k = 0; k < v.params[i]->n_parts; k++)
            v.params[i]->parts[k].layout = p->parts[v.params[i]->index][k].base;
        layout_settle(p->setup->mesh, v.params[i]);
    }
    for (int32_t i = 1; i < choices->n; i++) {
        if (stage == s->index)
            NRL_TRY(open_own(p, &choices->of[i], &v));
        else
            NRL_TRY(open_member(p, &choices->of[i], &v, false, &s->elsewhere[s->n_elsewhere++]));
    }
    /* The placements of the others are added to the owner_stages. */
    for (int32_t i = 0; i < v.n_params; i++)
        for (int k = 0; k < v.params[i]->n_parts; k++) {
            nrl_part *part = &v.params[i]->parts[k];
            part_state *state = &p->parts[v.params[i]->index][k];
            part->layout.owner_stages = state->base.owner_stages;
            if (state->is_planned && !is_same_layout(&state->planned, &part->layout))
                return nrl_fail(NRL_ERR_PLUGIN, "'%s' is on several stages, which divide it in two ways", part->name);
            state->planned = part->layout;
            state->is_planned = true;
        }
    return NRL_OK;
}

static nrl_status plan_stages(planning *p)
{
    strategy *s = p->s;
    const strategy_member *staged = &s->of[0];
    const int32_t *stages = staged->plan.stages;
    size_t others = (size_t)s->n_stages * (size_t)p->setup->choices->n;
    NRL_TRY(check_stages(p, staged, s->n_stages));
    s->elsewhere = arena_alloc(memory(p), others * sizeof *s->elsewhere);
    const model *m = p->setup->m;
    p->parts = arena_alloc(memory(p), (size_t)m->n_params * sizeof *p->parts);
    for (int32_t i = 0; i < m->n_params; i++) {
        p->parts[i] = arena_alloc(memory(p), (size_t)m->params[i]->n_parts * sizeof **p->parts);
        for (int k = 0; k < m->params[i]->n_parts; k++)
            p->parts[i][k].base = m->params[i]->parts[k].layout;
    }
    for (int32_t k = 0; k < s->n_stages; k++)
        NRL_TRY(plan_stage(p, stages, k));
    return NRL_OK;
}

/* ---- experts of other ranks ---- */

/* The placement of a parameter along an axis; -1: none. */
static int32_t placement_on(const nrl_param *q, const char *axis)
{
    const nrl_layout *l = &q->parts[0].layout;
    int32_t i = l->n_placements - 1;
    while (i >= 0 && strcmp(l->placements[i].axis, axis))
        i--;
    return i;
}

static int32_t holder_of(const nrl_placement *of)
{
    int32_t c = 0;
    while (c < of->n && of->begin[c] == of->end[c])
        c++;
    return c;
}

/* The layouts that strategies of the batch wrote for this rank's experts of a unit also apply, in the same order, to
 * those of other ranks, because experts are alike. Afterwards the unit uses only parameters of this rank. */
static nrl_status plan_other_experts(planning *p, const strategy_member *experts, model_unit *unit)
{
    const char *axis = experts->axis->name;
    const int32_t size = nrl_mesh_size(p->s->mesh, axis), own = nrl_mesh_coord(p->s->mesh, axis);
    int32_t *n = arena_alloc(memory(p), (size_t)size * sizeof *n), n_here = 0, n_uses = 0;
    nrl_param **here = arena_alloc(memory(p), (size_t)unit->n_uses * sizeof *here + 1);
    for (int32_t i = 0; i < unit->n_uses; i++)
        if (unit->uses[i]->numel && placement_on(unit->uses[i], axis) >= 0) here[n_here++] = unit->uses[i];
    for (int32_t i = 0; i < unit->n_uses; i++) {
        nrl_param *q = unit->uses[i];
        const int32_t at = placement_on(q, axis), c = at < 0 ? own : holder_of(&q->parts[0].layout.placements[at]);
        if (q->numel) unit->uses[n_uses++] = q;
        if (c == own) continue;
        const nrl_param *like = n[c] < n_here ? here[n[c]] : q;
        const nrl_layout *from = &like->parts[0].layout;
        nrl_layout *to = &q->parts[0].layout;
        if (like == q || like->trained != q->trained || like->whole != q->whole)
            return nrl_fail(NRL_ERR_CONFIG,
                            "cannot divide the experts over the axis '%s': '%s' and '%s' differ in shape, or only one "
                            "of them is trained; expected experts with equal parameters",
                            axis, q->name, like == q ? unit->name : like->name);
        n[c]++;
        for (to->n_placements = at + 1; to->n_placements < from->n_placements; to->n_placements++)
            to->placements[to->n_placements] = from->placements[to->n_placements];
    }
    unit->n_uses = n_uses;
    return NRL_OK;
}

/* Whether x plans before y does. */
static bool is_before(const nrl_mesh_axis *x, const nrl_mesh_axis *y)
{
    static const int place[] = {[NRL_DIVIDES_DEPTH] = 0,
                                [NRL_DIVIDES_WIDTH] = 1,
                                [NRL_DIVIDES_EXPERTS] = 2,
                                [NRL_DIVIDES_TOKENS] = 3,
                                [NRL_DIVIDES_BATCH] = 4};
    return x->divides != y->divides ? place[x->divides] < place[y->divides] : x->order < y->order;
}

void strategy_choose(strategy_choices *all, strategy_choice one)
{
    int32_t at = all->n++;
    NRL_ASSERT(at, <, STRATEGY_MAX);
    for (; at > 0 && is_before(one.axis, all->of[at - 1].axis); at--)
        all->of[at] = all->of[at - 1];
    all->of[at] = one;
}

nrl_status strategy_open(const strategy_setup *setup, strategy *out)
{
    planning p = {.s = out, .setup = setup};
    *out = (strategy){.mesh = setup->mesh, .n_stages = 1};
    if (!setup->choices->n) return NRL_OK;
    const view all = view_of_all(&p);
    NRL_TRY(open_own(&p, &setup->choices->of[0], &all));
    if (out->of[0].plan.stages) {
        out->n_stages = nrl_mesh_size(setup->mesh, out->of[0].axis->name);
        out->index = nrl_mesh_coord(setup->mesh, out->of[0].axis->name);
        NRL_TRY(plan_stages(&p));
    }
    for (int32_t i = 1; i < setup->choices->n && !out->of[0].plan.stages; i++)
        NRL_TRY(open_own(&p, &setup->choices->of[i], &all));
    const strategy_member *experts = strategy_dividing(out, NRL_DIVIDES_EXPERTS);
    for (int32_t u = 0; experts && u < setup->m->n_units; u++)
        NRL_TRY(plan_other_experts(&p, experts, &setup->m->units[u]));
    return NRL_OK;
}
