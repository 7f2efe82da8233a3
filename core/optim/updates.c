/*
 * updates.c - declares, places and binds the states of an optimizer, and updates what is not divided.
 */
#include "optim/updates.h"
#include "tensor/split16.h"
#include <stdlib.h>
#include <string.h>

enum {
    ROUND_ELEMENTS = 1 << 24, /* a rank gathers at most this many in one round, or one unit */
    GROUP_ELEMENTS = 1 << 24  /* of slices that are updated together, so that their temporaries stay small */
};

static const nrl_part *part_of(const update_unit *x)
{
    return &x->param->parts[x->part];
}

/* ---- declarations ---- */

static nrl_status wrong(const nrl_optimizer *table, const update_unit *x, const char *problem)
{
    return nrl_fail(NRL_ERR_PLUGIN, "optimizer '%s': cannot use its declaration of '%s': %s", table->plugin.name,
                    part_of(x)->name, problem);
}

static const char *problem_of_state(const nrl_declaration *d, const nrl_state *s)
{
    if (!s->name || !*s->name) return "a state has no name";
    if (!strcmp(s->name, "weight") || !strcmp(s->name, "rank")) return "'weight' and 'rank' are reserved names";
    if (!nrl_dtype_size((nrl_dtype)s->dtype)) return "a state has no dtype";
    if (s->shape < NRL_STATE_ELEMENT || s->shape > NRL_STATE_OWN) return "a state has an unknown shape";
    if (s->shape == NRL_STATE_BLOCK && (d->block < 1 || d->granularity == NRL_OPTIMIZER_ELEMENT))
        return "a state for each block needs granularity BLOCK or MATRIX, and block above 0";
    if (s->shape != NRL_STATE_OWN) return NULL;
    if (d->granularity != NRL_OPTIMIZER_MATRIX) return "a state with explicit dims needs granularity MATRIX";
    if (s->n_dims < 1 || s->n_dims > NRL_MAX_DIMS) return "a state has no dims";
    for (int i = 0; i < s->n_dims; i++)
        if (s->dims[i] < 1) return "a state has a dim below 1";
    return NULL;
}

static nrl_status check_declaration(const nrl_optimizer *table, const update_unit *x)
{
    const nrl_declaration *d = &x->what;
    if (d->granularity < NRL_OPTIMIZER_ELEMENT || d->granularity > NRL_OPTIMIZER_BLOCK)
        return wrong(table, x, "its granularity is none of ELEMENT, MATRIX, BLOCK");
    if (d->granularity == NRL_OPTIMIZER_BLOCK && d->block < 1) return wrong(table, x, "block is below 1");
    if (d->n_states > NRL_MAX_STATES) return wrong(table, x, "more states than NRL_MAX_STATES");
    for (uint32_t k = 0; k < d->n_states; k++) {
        const char *problem = problem_of_state(d, &d->states[k]);
        if (problem) return wrong(table, x, problem);
        for (uint32_t i = 0; i < k; i++)
            if (!strcmp(d->states[i].name, d->states[k].name)) return wrong(table, x, "two states have the same name");
    }
    return NRL_OK;
}

/* What a table without `declare` means. */
static void declare_by_table(const nrl_optimizer *table, nrl_declaration *d)
{
    d->granularity = table->granularity;
    d->n_states = table->n_states;
    for (uint32_t k = 0; k < table->n_states; k++)
        d->states[k] = (nrl_state){.name = table->state_names[k], .dtype = NRL_DTYPE_F32, .shape = NRL_STATE_ELEMENT};
}

static bool is_plain_state(const nrl_state *s)
{
    return s->dtype == NRL_DTYPE_F32 && s->shape == NRL_STATE_ELEMENT && !(s->initial < 0 || s->initial > 0);
}

/* Whether every unit works on elements alone, with plain states of the same names. */
static bool is_plain(const update_plan *u)
{
    for (int64_t i = 0; i < u->n_units; i++) {
        const nrl_declaration *d = &u->units[i].what, *first = &u->units[0].what;
        if (d->granularity != NRL_OPTIMIZER_ELEMENT || d->n_states != first->n_states) return false;
        for (uint32_t k = 0; k < d->n_states; k++)
            if (!is_plain_state(&d->states[k]) || strcmp(d->states[k].name, first->states[k].name)) return false;
    }
    return true;
}

static void use_slots(update_plan *u)
{
    const nrl_declaration *d = u->n_units ? &u->units[0].what : NULL;
    const char **names = arena_alloc(&u->memory, NRL_MAX_STATES * sizeof *names);
    u->is_plain = true;
    u->n_states = d ? d->n_states : 0;
    for (uint32_t k = 0; k < u->n_states; k++)
        names[k] = d->states[k].name;
    u->state_names = names;
    u->n_units = 0;
}

nrl_status updates_declare(const nrl_optimizer *table, void *self, const model *m, update_plan *out)
{
    int64_t room = 0;
    *out = (update_plan){.table = table, .self = self, .block = 1};
    for (int32_t i = 0; i < m->n_params; i++)
        room += m->params[i]->n_parts;
    out->units = arena_alloc(&out->memory, (size_t)(room + 1) * sizeof *out->units);
    for (int32_t i = 0; i < m->n_params; i++)
        for (int k = 0; m->params[i]->trained && k < m->params[i]->n_parts; k++) {
            update_unit *x = &out->units[out->n_units++];
            *x = (update_unit){.param = m->params[i], .part = k, .owner = -1, .round = -1};
            x->what = (nrl_declaration){.size = sizeof x->what, .param = x->param, .part = part_of(x)};
            if (table->declare)
                NRL_TRY(table->declare(self, &x->what));
            else
                declare_by_table(table, &x->what);
            NRL_TRY(check_declaration(table, x));
            if (x->what.granularity == NRL_OPTIMIZER_BLOCK && x->what.block > out->block) out->block = x->what.block;
        }
    if (is_plain(out)) use_slots(out);
    return NRL_OK;
}

/* ---- places ---- */

static int32_t world_of(const update_plan *u)
{
    return u->mesh ? nrl_mesh_world(u->mesh) : 1;
}

static int32_t rank_of(const update_plan *u)
{
    return u->mesh ? nrl_mesh_rank(u->mesh) : 0;
}

static int64_t held_by(const update_plan *u, const nrl_part *part, int32_t rank)
{
    int64_t n = 0;
    for (int k = 0; k < layout_n_boxes(part); k++) {
        layout_shard shard = layout_shard_of(u->mesh, rank, part, k);
        n += piece_numel(&shard);
    }
    return n;
}

static bool holds_same(const update_plan *u, const nrl_part *part, int32_t a, int32_t b)
{
    for (int k = 0; k < layout_n_boxes(part); k++) {
        layout_shard x = layout_shard_of(u->mesh, a, part, k), y = layout_shard_of(u->mesh, b, part, k);
        if (!piece_is_same(&x, &y)) return false;
    }
    return true;
}

/* Whether no lower rank has the elements that `rank` has. */
static bool is_first(const update_plan *u, const nrl_part *part, int32_t rank)
{
    for (int32_t r = 0; r < rank; r++)
        if (layout_holds_part(u->mesh, r, part) && holds_same(u, part, r, rank)) return false;
    return true;
}

/* The elements of a rank, if they are one range of the part. */
static bool is_one_range(const update_plan *u, const nrl_part *part, int32_t rank, int64_t *begin, int64_t *n)
{
    int64_t at = 0;
    layout_shard shard = layout_shard_of(u->mesh, rank, part, 0);
    *begin = *n = 0;
    if (layout_n_boxes(part) > 1) return false;
    return !piece_next(&shard, &at, begin, n) || at == piece_numel(&shard);
}

/* Whether what `rank` has can be updated there. */
static bool is_intact(const update_plan *u, const update_unit *x, int32_t rank)
{
    const nrl_part *part = part_of(x);
    int64_t whole = part_numel(part), n = held_by(u, part, rank), begin;
    if (x->what.granularity == NRL_OPTIMIZER_ELEMENT || n == whole || !n) return true;
    if (x->what.granularity == NRL_OPTIMIZER_MATRIX || !is_one_range(u, part, rank, &begin, &n)) return false;
    return begin % x->what.block == 0 && (n % x->what.block == 0 || begin + n == whole);
}

static bool is_divided(const update_plan *u, const update_unit *x)
{
    for (int32_t r = 0; r < world_of(u); r++)
        if (layout_holds_part(u->mesh, r, part_of(x)) && !is_intact(u, x, r)) return true;
    return false;
}

/* The rank with the least work among those that have elements of the unit; the lowest of equal ones. */
static int32_t choose_owner(const update_plan *u, const update_unit *x, const int64_t *load)
{
    int32_t best = -1;
    for (int32_t r = 0; r < world_of(u); r++)
        if (x->shares[r].n && (best < 0 || load[r] < load[best])) best = r;
    return best;
}

static void gather_unit(update_plan *u, update_unit *x, int64_t *load, int64_t *fill, int32_t *round)
{
    const nrl_part *part = part_of(x);
    int64_t n = part_numel(part);
    x->is_gathered = true;
    x->shares = arena_alloc(&u->memory, (size_t)world_of(u) * sizeof *x->shares);
    for (int32_t r = 0; r < world_of(u); r++) {
        int64_t held = held_by(u, part, r);
        x->shares[r] = (update_share){held, held && is_first(u, part, r)};
    }
    x->owner = choose_owner(u, x, load);
    load[x->owner] += n;
    if (fill[x->owner] && fill[x->owner] + n > ROUND_ELEMENTS) {
        fill[x->owner] = 0;
        round[x->owner]++;
    }
    fill[x->owner] += n;
    x->round = round[x->owner];
    if (x->round >= u->n_rounds) u->n_rounds = x->round + 1;
    x->is_here = x->is_saved_here = x->owner == rank_of(u);
}

static void place_unit(update_plan *u, update_unit *x)
{
    const nrl_part *part = part_of(x);
    int64_t n;
    x->is_here = x->n > 0;
    x->is_saved_here = x->is_here && is_first(u, part, rank_of(u));
    if (x->what.granularity == NRL_OPTIMIZER_BLOCK) (void)is_one_range(u, part, rank_of(u), &x->begin, &n);
}

/* Entries of state k on this rank. */
static int64_t entries_here(const update_unit *x, uint32_t k)
{
    const nrl_state *s = &x->what.states[k];
    int64_t n = x->is_gathered ? part_numel(part_of(x)) : x->n, own = 1;
    if (!x->is_here) return 0;
    if (s->shape == NRL_STATE_ELEMENT) return n;
    if (s->shape == NRL_STATE_BLOCK) return (n + x->what.block - 1) / x->what.block;
    for (int d = 0; d < s->n_dims; d++)
        own *= s->dims[d];
    return own;
}

void updates_place(update_plan *u, nrl_mesh *mesh)
{
    u->mesh = mesh;
    size_t world = (size_t)world_of(u);
    int64_t *load = arena_alloc(&u->memory, world * sizeof *load);
    int64_t *fill = arena_alloc(&u->memory, world * sizeof *fill);
    int32_t *round = arena_alloc(&u->memory, world * sizeof *round);
    int64_t at = 0;
    u->n_rounds = 0;
    u->state_bytes = 0;
    for (int64_t i = 0; i < u->n_units; i++) {
        update_unit *x = &u->units[i];
        if (i > 0 && x->param != u->units[i - 1].param) at = 0;
        x->at = at;
        x->n = held_by(u, part_of(x), rank_of(u));
        at += x->n;
        if (is_divided(u, x))
            gather_unit(u, x, load, fill, round);
        else
            place_unit(u, x);
        for (uint32_t k = 0; k < x->what.n_states; k++)
            u->state_bytes += entries_here(x, k) * (int64_t)nrl_dtype_size((nrl_dtype)x->what.states[k].dtype);
    }
}

/* ---- memory ---- */

static void keep(update_plan *u, nrl_tensor *t)
{
    u->tensors = mem_realloc(u->tensors, (size_t)(u->n_tensors + 1) * sizeof(nrl_tensor *));
    u->tensors[u->n_tensors++] = t;
}

static nrl_status view(update_plan *u, nrl_ctx *ctx, const update_unit *x, nrl_tensor *of, nrl_tensor **out)
{
    *out = NULL;
    if (!of) return NRL_OK;
    NRL_TRY(tensor_flat_view(ctx, of, x->at, x->n, out));
    keep(u, *out);
    return NRL_OK;
}

/* The slice of the elements here: views of the parameter's slots. */
static nrl_status bind_local(update_plan *u, nrl_ctx *ctx, update_unit *x)
{
    nrl_slice whole;
    NRL_TRY(slices_fill(x->param, 0, &whole));
    x->local = (nrl_slice){.param = x->param, .n = x->n, .decay = whole.decay, .part = x->part};
    NRL_TRY(view(u, ctx, x, whole.master, &x->local.master));
    NRL_TRY(view(u, ctx, x, whole.grad, &x->local.grad));
    NRL_TRY(view(u, ctx, x, whole.work, &x->local.work));
    return view(u, ctx, x, whole.low, &x->local.low);
}

static nrl_status bind_state(update_plan *u, nrl_ctx *ctx, update_unit *x, uint32_t k)
{
    const nrl_state *s = &x->what.states[k];
    int64_t n = entries_here(x, k);
    NRL_TRY(tensor_offloaded(ctx, (nrl_dtype)s->dtype, n, true, &x->states[k]));
    keep(u, x->states[k]);
    if (!x->is_gathered) x->local.states[k] = x->states[k];
    if (!(s->initial < 0 || s->initial > 0)) return NRL_OK;
    return nrl_tensor_fill(ctx, x->states[k], s->initial);
}

nrl_status updates_bind(update_plan *u, nrl_ctx *ctx)
{
    nrl_status st = NRL_OK;
    for (int64_t i = 0; i < u->n_units && st == NRL_OK; i++) {
        update_unit *x = &u->units[i];
        if (x->n) st = bind_local(u, ctx, x);
        for (uint32_t k = 0; x->is_here && k < x->what.n_states && st == NRL_OK; k++)
            st = bind_state(u, ctx, x, k);
    }
    if (st != NRL_OK) nrl_add_context("states of optimizer '%s'", u->table->plugin.name);
    return st;
}

void updates_unbind(update_plan *u, nrl_ctx *ctx)
{
    for (int64_t i = u->n_tensors; i-- > 0;)
        tensor_release(ctx, u->tensors[i]);
    for (int64_t i = 0; i < u->n_units; i++) {
        u->units[i].local = (nrl_slice){0};
        memset(u->units[i].states, 0, sizeof u->units[i].states);
    }
    free(u->tensors);
    u->tensors = NULL;
    u->n_tensors = 0;
}

void updates_close(update_plan *u)
{
    arena_free(&u->memory);
    free(u->tensors);
    *u = (update_plan){0};
}

/* ---- updates ---- */

/* Announces the use of tensors of a slice that a strategy keeps elsewhere. */
static void expect_slice(nrl_ctx *ctx, const nrl_slice *slice, bool soon)
{
    nrl_tensor *const all[] = {slice->master, slice->low, slice->grad};
    for (size_t k = 0; k < sizeof all / sizeof *all; k++)
        nrl_tensor_expect(ctx, all[k], soon);
}

nrl_step_params updates_step_of(const nrl_param *p, const nrl_step_params *step)
{
    nrl_step_params own = *step;
    own.lr *= p->lr_ratio;
    return own;
}

nrl_status updates_one(update_plan *u, nrl_ctx *ctx, nrl_slice *slice, bool counts, const nrl_step_params *step)
{
    const nrl_step_params own = updates_step_of(slice->param, step);
    nrl_tensor *before = NULL;
    const bool is_watched = u->moved && counts;
    ctx_scope_begin(ctx); /* temporaries of one slice at a time */
    ctx_offload_use(ctx, slice->low ? slice->low : slice->master);
    for (int k = 0; k < NRL_MAX_STATES; k++)
        ctx_offload_use(ctx, slice->states[k]);
    nrl_status st = is_watched ? slices_copy(ctx, slice, &before) : NRL_OK;
    if (st == NRL_OK) st = slices_update(ctx, u->table, u->self, slice, &own);
    if (st == NRL_OK && is_watched) st = slices_moved(ctx, slice, before, u->moved);
    expect_slice(ctx, slice, false);
    ctx_scope_end(ctx);
    return st;
}

static bool has_rate_of(const nrl_slice *a, const nrl_slice *b)
{
    return !(a->param->lr_ratio < b->param->lr_ratio || a->param->lr_ratio > b->param->lr_ratio);
}

/* Updates slices from `first` on together, those with one learning rate and as many as GROUP_ELEMENTS allow, or one;
 * *end is the next one. */
static nrl_status update_group(update_plan *u, nrl_ctx *ctx, nrl_slice *slices, int64_t n_slices, int64_t first,
                               const nrl_step_params *step, int64_t *end)
{
    const nrl_step_params own = updates_step_of(slices[first].param, step);
    int64_t n = slices[first].n;
    for (*end = first + 1; *end < n_slices && n + slices[*end].n <= GROUP_ELEMENTS; (*end)++) {
        if (!has_rate_of(&slices[*end], &slices[first])) break;
        n += slices[*end].n;
    }
    ctx_scope_begin(ctx);
    nrl_status st = u->table->update(u->self, ctx, slices + first, *end - first, &own);
    ctx_scope_end(ctx);
    return st;
}

nrl_tensor **updates_tensor(nrl_slice *s, int k)
{
    nrl_tensor **const own[] = {
        [UPDATES_GRAD] = &s->grad, [UPDATES_WORK] = &s->work, [UPDATES_MASTER] = &s->master, [UPDATES_LOW] = &s->low};
    return k < UPDATES_STATES ? own[k] : &s->states[k - UPDATES_STATES];
}

nrl_status updates_view(nrl_ctx *ctx, const nrl_slice *s, int64_t at, int64_t n, int64_t block, nrl_slice *out)
{
    nrl_slice of = *s;
    *out = (nrl_slice){.param = s->param, .n = n, .decay = s->decay, .part = s->part};
    for (int k = 0; k < UPDATES_TENSORS; k++) {
        nrl_tensor *t = *updates_tensor(&of, k);
        const int64_t entry = t && nrl_tensor_numel(t) < s->n ? block : 1;
        if (t) NRL_TRY(tensor_flat_view(ctx, t, at / entry, (n + entry - 1) / entry, updates_tensor(out, k)));
    }
    return NRL_OK;
}

void updates_release(nrl_ctx *ctx, nrl_slice *views)
{
    for (int k = 0; k < UPDATES_TENSORS; k++)
        tensor_release(ctx, *updates_tensor(views, k));
    *views = (nrl_slice){0};
}

static int64_t range_at(const nrl_slice *s, int64_t at)
{
    return s->n - at < UPDATES_RANGE ? s->n - at : UPDATES_RANGE;
}

/* Updates a slice range by range, so that only a few ranges of tensors that are elsewhere are in memory; `next` is the
 * slice after it, or NULL. The optimizer works on each element alone. */
static nrl_status update_ranges(update_plan *u, nrl_ctx *ctx, const nrl_slice *s, const nrl_slice *next, bool counts,
                                const nrl_step_params *step)
{
    nrl_slice now, later;
    nrl_status st = NRL_OK;
    for (int64_t at = 0; at < s->n && st == NRL_OK; at += UPDATES_RANGE) {
        const bool is_last = at + UPDATES_RANGE >= s->n;
        const nrl_slice *ahead = is_last ? next : s;
        const int64_t from = is_last ? 0 : at + UPDATES_RANGE;
        if (ahead) {
            NRL_TRY(updates_view(ctx, ahead, from, range_at(ahead, from), 1, &later));
            expect_slice(ctx, &later, true);
            updates_release(ctx, &later);
        }
        NRL_TRY(updates_view(ctx, s, at, range_at(s, at), 1, &now));
        st = updates_one(u, ctx, &now, counts, step);
        updates_release(ctx, &now);
    }
    return st;
}

nrl_status updates_step(update_plan *u, nrl_ctx *ctx, nrl_slice *slices, int64_t n_slices, const nrl_step_params *step)
{
    nrl_status st = u->host ? update_host_step(u, ctx, slices, n_slices, step) : NRL_OK;
    const bool here = u->is_plain && !u->host, alone = ctx_offloads(ctx) || u->moved || !u->table->encoded;
    for (int64_t i = 0; here && !alone && i < n_slices && st == NRL_OK;)
        st = update_group(u, ctx, slices, n_slices, i, step, &i);
    for (int64_t i = 0; here && alone && i < n_slices && st == NRL_OK; i++) {
        const bool counts = !u->counts || u->counts[i];
        st = ctx_offloads(ctx) || u->moved /* whose sum depends on the ranges */
                 ? update_ranges(u, ctx, &slices[i], i + 1 < n_slices ? &slices[i + 1] : NULL, counts, step)
                 : updates_one(u, ctx, &slices[i], counts, step);
    }
    for (int64_t i = 0; i < u->n_units && st == NRL_OK; i++) {
        if (i + 1 < u->n_units) expect_slice(ctx, &u->units[i + 1].local, true);
        if (u->units[i].is_here && !u->units[i].is_gathered && !update_host_takes(u, &u->units[i]))
            st = updates_one(u, ctx, &u->units[i].local, u->units[i].is_saved_here, step);
    }
    for (int32_t r = 0; r < u->n_rounds && st == NRL_OK; r++)
        st = updates_gather_round(u, ctx, r, step);
    if (st != NRL_OK) nrl_add_context("optimizer '%s'", u->table->plugin.name);
    return st;
}

/* ---- pieces of states ---- */

void updates_state_dims(const update_unit *x, uint32_t k, int *n_dims, int64_t dims[NRL_MAX_DIMS])
{
    const nrl_state *s = &x->what.states[k];
    const nrl_part *part = part_of(x);
    memset(dims, 0, NRL_MAX_DIMS * sizeof *dims);
    *n_dims = s->shape == NRL_STATE_OWN ? s->n_dims : s->shape == NRL_STATE_BLOCK ? 1 : part->n_dims;
    if (s->shape == NRL_STATE_BLOCK)
        dims[0] = (part_numel(part) + x->what.block - 1) / x->what.block;
    else
        memcpy(dims, s->shape == NRL_STATE_OWN ? s->dims : part->dims, (size_t)*n_dims * sizeof *dims);
}

bool updates_next_piece(const update_plan *u, const update_unit *x, uint32_t k, int *at, update_piece *piece)
{
    const nrl_state *s = &x->what.states[k];
    const nrl_part *part = part_of(x);
    bool whole = x->is_gathered || s->shape == NRL_STATE_OWN || x->n == part_numel(part);
    int n_pieces = whole || s->shape == NRL_STATE_BLOCK ? 1 : layout_n_boxes(part);
    if (*at >= n_pieces) return false;
    int box = (*at)++;
    if (!whole && s->shape == NRL_STATE_ELEMENT) {
        *piece = (update_piece){.shard = layout_shard_of(u->mesh, rank_of(u), part, box)};
        for (int b = 0; b < box; b++) {
            layout_shard before = layout_shard_of(u->mesh, rank_of(u), part, b);
            piece->begin += piece_numel(&before);
        }
        piece->n = piece_numel(&piece->shard);
        return true;
    }
    layout_shard *shard = &piece->shard;
    *piece = (update_piece){.n = entries_here(x, k)};
    updates_state_dims(x, k, &shard->n_dims, shard->dims);
    memcpy(shard->end, shard->dims, sizeof shard->end);
    shard->flat_begin = whole ? 0 : x->begin / x->what.block;
    shard->flat_end = shard->flat_begin + piece->n;
    return true;
}
