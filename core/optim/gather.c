/*
 * gather.c - updates of parts that a strategy has divided. In a round each rank is the owner of some of them:
 *
 *   1. every rank sends to each owner gradient and master of its share, in f32, from the lowest rank that has the share
 *   2. an owner puts the shares together, and calls the optimizer
 *   3. an owner sends each rank the new master of its share
 *
 * The order of messages is the same everywhere: by owner, then by unit; a rank's share is [gradient][master].
 */
#include "optim/updates.h"
#include "tensor/device/backend_call.h"
#include "tensor/split16.h"
#include <stdlib.h>
#include <string.h>

typedef struct {
    update_plan *u;
    nrl_ctx *ctx;
    int32_t round, world, rank;
    const nrl_step_params *step;
    int64_t *sent, *received; /* [world] elements of an exchange */
} gathering;

/* ---- shares and whole parts ---- */

/* m ranges of n elements: `stride` apart in the whole part, consecutive in a share. */
typedef struct {
    int64_t begin, n, stride, m, packed;
} rows;

static nrl_status move_rows(nrl_ctx *ctx, const rows *r, nrl_tensor *whole, nrl_tensor *share, bool to_whole)
{
    float *part = (float *)nrl_tensor_mat(whole).data + r->begin,
          *own = (float *)nrl_tensor_mat(share).data + r->packed;
    const nrl_mat in_whole = {part, NRL_DTYPE_F32, 0, r->m, r->n, r->m > 1 ? r->stride : r->n};
    const nrl_mat in_share = {own, NRL_DTYPE_F32, 0, r->m, r->n, r->n};
    nrl_copy_args a = {
        .size = sizeof a, .alpha = 1, .x = to_whole ? in_share : in_whole, .y = to_whole ? in_whole : in_share};
    return backend_copy(ctx, &a);
}

/* Copies between a whole part and the share of a rank, whose first element is `packed` of `share`; ranges at equal
 * distances (columns of a matrix) are one copy. */
static nrl_status move_share(const gathering *g, const nrl_part *part, int32_t rank, nrl_tensor *whole,
                             nrl_tensor *share, int64_t packed, bool to_whole)
{
    rows r = {.packed = packed};
    for (int k = 0; k < layout_n_boxes(part); k++) {
        layout_shard shard = layout_shard_of(g->u->mesh, rank, part, k);
        int64_t at = 0, begin, n;
        while (piece_next(&shard, &at, &begin, &n)) {
            if (r.m == 1 && n == r.n) r.stride = begin - r.begin;
            if (r.m && n == r.n && begin == r.begin + r.m * r.stride) {
                r.m++;
                continue;
            }
            if (r.m) NRL_TRY(move_rows(g->ctx, &r, whole, share, to_whole));
            r = (rows){.begin = begin, .n = n, .m = 1, .packed = r.packed + r.m * r.n};
        }
    }
    return r.m ? move_rows(g->ctx, &r, whole, share, to_whole) : NRL_OK;
}

/* ---- exchanges ---- */

/* Calls `use` for each unit of the round, by owner; *at counts the elements before it. */
typedef nrl_status (*unit_use)(const gathering *g, const update_unit *x, nrl_tensor *t, int64_t *at);

static nrl_status each_unit(const gathering *g, nrl_tensor *t, unit_use use)
{
    int64_t at = 0;
    for (int32_t owner = 0; owner < g->world; owner++)
        for (int64_t i = 0; i < g->u->n_units; i++) {
            const update_unit *x = &g->u->units[i];
            if (x->is_gathered && x->round == g->round && x->owner == owner) NRL_TRY(use(g, x, t, &at));
        }
    return NRL_OK;
}

/* Counts what the ranks exchange: to the owners (2 elements for each of a share, from its first rank), or back. */
static void count_exchange(const gathering *g, bool back)
{
    memset(g->sent, 0, (size_t)g->world * sizeof *g->sent);
    memset(g->received, 0, (size_t)g->world * sizeof *g->received);
    for (int64_t i = 0; i < g->u->n_units; i++) {
        const update_unit *x = &g->u->units[i];
        if (!x->is_gathered || x->round != g->round) continue;
        for (int32_t r = 0; r < g->world; r++) {
            int64_t n = back ? x->shares[r].n : x->shares[r].is_first ? 2 * x->shares[r].n : 0;
            int32_t from = back ? x->owner : r, to = back ? r : x->owner;
            if (from == g->rank) g->sent[to] += n;
            if (to == g->rank) g->received[from] += n;
        }
    }
}

static nrl_status new_buffer(const gathering *g, const int64_t *counts, nrl_tensor **out)
{
    int64_t n = 0;
    for (int32_t r = 0; r < g->world; r++)
        n += counts[r];
    n = n ? n : 1; /* a rank with nothing to exchange takes part */
    return nrl_tensor_new(g->ctx, NRL_DTYPE_F32, 1, &n, out);
}

static nrl_status new_buffers(const gathering *g, bool back, nrl_tensor **send, nrl_tensor **receive)
{
    count_exchange(g, back);
    NRL_TRY(new_buffer(g, g->sent, send));
    return new_buffer(g, g->received, receive);
}

static nrl_status exchange(const gathering *g, nrl_tensor *send, nrl_tensor *receive, const char *what)
{
    nrl_phase before = ctx_phase_set(g->ctx, NRL_PHASE_COMMUNICATION);
    nrl_status st = mesh_all_to_all(g->u->mesh, g->ctx, what, send, g->sent, receive, g->received);
    ctx_phase_set(g->ctx, before);
    return st;
}

static int64_t before(const int64_t *counts, int32_t rank)
{
    int64_t n = 0;
    for (int32_t r = 0; r < rank; r++)
        n += counts[r];
    return n;
}

/* ---- 1: to the owners ---- */

static nrl_status read_range(const gathering *g, nrl_tensor *from, nrl_tensor *to, int64_t at, int64_t n)
{
    nrl_tensor *view;
    NRL_TRY(nrl_op_slice_rows(g->ctx, to, at, at + n, &view));
    return nrl_tensor_copy(g->ctx, from, view);
}

/* Gradient and master of this rank's share. */
static nrl_status pack_share(const gathering *g, const update_unit *x, nrl_tensor *send, int64_t *at)
{
    const nrl_slice *s = &x->local;
    nrl_tensor *master;
    if (!x->shares[g->rank].is_first) return NRL_OK;
    NRL_TRY(read_range(g, s->grad, send, *at, x->n));
    NRL_TRY(nrl_op_slice_rows(g->ctx, send, *at + x->n, *at + 2 * x->n, &master));
    *at += 2 * x->n;
    return s->low ? split16_join(g->ctx, s->work, s->low, master) : nrl_tensor_copy(g->ctx, s->master, master);
}

/* ---- 2: the update ---- */

/* Elements of `rank` for the units of this owner before x. */
static int64_t offset_of(const gathering *g, const update_unit *x, int32_t rank, bool back)
{
    int64_t n = 0;
    for (const update_unit *y = g->u->units; y < x; y++) {
        if (!y->is_gathered || y->round != g->round || y->owner != g->rank) continue;
        n += back ? y->shares[rank].n : y->shares[rank].is_first ? 2 * y->shares[rank].n : 0;
    }
    return n;
}

static nrl_status put_together(const gathering *g, const update_unit *x, nrl_tensor *received, nrl_slice *whole)
{
    const nrl_part *part = x->what.part;
    *whole = (nrl_slice){.param = x->param, .n = part_numel(part), .decay = x->local.decay, .part = x->part};
    memcpy(whole->states, x->states, sizeof whole->states);
    NRL_TRY(nrl_tensor_new(g->ctx, NRL_DTYPE_F32, 1, &whole->n, &whole->grad));
    NRL_TRY(nrl_tensor_new(g->ctx, NRL_DTYPE_F32, 1, &whole->n, &whole->master));
    for (int32_t r = 0; r < g->world; r++) {
        int64_t at = before(g->received, r) + offset_of(g, x, r, false);
        if (!x->shares[r].is_first) continue;
        NRL_TRY(move_share(g, part, r, whole->grad, received, at, true));
        NRL_TRY(move_share(g, part, r, whole->master, received, at + x->shares[r].n, true));
    }
    return NRL_OK;
}

static nrl_status update_own(const gathering *g, const update_unit *x, nrl_tensor *received, nrl_tensor *master)
{
    const nrl_step_params own = updates_step_of(x->param, g->step);
    nrl_slice whole;
    nrl_tensor *before = NULL;
    NRL_TRY(put_together(g, x, received, &whole));
    if (g->u->moved) NRL_TRY(slices_copy(g->ctx, &whole, &before));
    NRL_TRY(g->u->table->update(g->u->self, g->ctx, &whole, 1, &own));
    if (g->u->moved) NRL_TRY(slices_moved(g->ctx, &whole, before, g->u->moved));
    return nrl_tensor_copy(g->ctx, whole.master, master);
}

/* ---- 3: back ---- */

static nrl_status unpack_share(const gathering *g, const update_unit *x, nrl_tensor *received, int64_t *at)
{
    const nrl_slice *s = &x->local;
    nrl_tensor *master;
    if (!x->n) return NRL_OK;
    NRL_TRY(nrl_op_slice_rows(g->ctx, received, *at, *at + x->n, &master));
    *at += x->n;
    if (s->low) return split16_split(g->ctx, master, s->work, s->low);
    NRL_TRY(nrl_tensor_copy(g->ctx, master, s->master));
    return s->work ? nrl_master_round(g->ctx, s->master, s->work) : NRL_OK;
}

/* Updates the units of this owner, each in a scope of its own; the new masters stay in `masters`. */
static nrl_status update_owned(const gathering *g, nrl_tensor *received, nrl_tensor **masters)
{
    nrl_status st = NRL_OK;
    for (int64_t i = 0; i < g->u->n_units; i++) {
        const update_unit *x = &g->u->units[i];
        int64_t n = part_numel(x->what.part);
        if (!x->is_gathered || x->round != g->round || x->owner != g->rank) continue;
        NRL_TRY(nrl_tensor_new(g->ctx, NRL_DTYPE_F32, 1, &n, &masters[i]));
        ctx_scope_begin(g->ctx);
        st = update_own(g, x, received, masters[i]);
        ctx_scope_end(g->ctx);
        NRL_TRY(st);
    }
    return NRL_OK;
}

static nrl_status pack_masters(const gathering *g, nrl_tensor **masters, nrl_tensor *send)
{
    for (int64_t i = 0; i < g->u->n_units; i++) {
        const update_unit *x = &g->u->units[i];
        for (int32_t r = 0; masters[i] && r < g->world; r++)
            if (x->shares[r].n)
                NRL_TRY(move_share(g, x->what.part, r, masters[i], send, before(g->sent, r) + offset_of(g, x, r, true),
                                   false));
    }
    return NRL_OK;
}

static nrl_status run_round(const gathering *g, nrl_tensor **masters)
{
    nrl_tensor *send, *receive;
    NRL_TRY(new_buffers(g, false, &send, &receive));
    NRL_TRY(each_unit(g, send, pack_share));
    NRL_TRY(exchange(g, send, receive, "gradients to the owners of updates"));
    NRL_TRY(update_owned(g, receive, masters));
    NRL_TRY(new_buffers(g, true, &send, &receive));
    NRL_TRY(pack_masters(g, masters, send));
    NRL_TRY(exchange(g, send, receive, "updated masters"));
    return each_unit(g, receive, unpack_share);
}

nrl_status updates_gather_round(update_plan *u, nrl_ctx *ctx, int32_t round, const nrl_step_params *step)
{
    int32_t world = nrl_mesh_world(u->mesh);
    gathering g = {.u = u, .ctx = ctx, .round = round, .world = world, .rank = nrl_mesh_rank(u->mesh), .step = step};
    nrl_tensor **masters = mem_alloc((size_t)(u->n_units + 1) * sizeof(nrl_tensor *));
    g.sent = mem_alloc(2 * (size_t)world * sizeof *g.sent);
    g.received = g.sent + world;
    ctx_scope_begin(ctx);
    nrl_status st = run_round(&g, masters);
    ctx_scope_end(ctx);
    free(g.sent);
    free(masters);
    return st;
}
