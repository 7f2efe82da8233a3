/*
 * params.c - maps the slots of parameters to the tensors of a checkpoint.
 */
#include "run/state/params.h"
#include "tensor/split16.h"
#include <stdlib.h>
#include <string.h>

enum {
    SHARE_GRAIN = 4096,    /* elements: shares of a shard that several ranks hold begin at multiples of this */
    WINDOW_BYTES = 4 << 20 /* copied to a device at a time */
};

/* The shard of one part that this rank holds, inside the tensor of a slot: each part is a flat range of the tensor. */
typedef struct {
    nrl_ctx *ctx;
    const params_scope *scope;
    nrl_tensor *t;
    nrl_param *split; /* a split master, of which t is one half; NULL: t itself is saved */
    int64_t begin;    /* first element in t */
    const nrl_part *part;
    int32_t ordinal; /* index of the part in the model */
    bool is_planned; /* see each_tensor */
    bool is_work;    /* t is the unsharded WEIGHT, without flat placements */
    int box;         /* box of the part, see layout_n_boxes */
    layout_shard piece;
} place;

typedef nrl_status (*part_action)(void *user, const checkpoint_tensor *part, place *at);

static int32_t own_rank(const params_scope *s)
{
    return s->mesh ? nrl_mesh_rank(s->mesh) : 0;
}

static layout_shard piece_on(const place *at, int32_t rank)
{
    return at->is_work ? layout_box_of(at->scope->mesh, rank, at->part, at->box)
                       : layout_shard_of(at->scope->mesh, rank, at->part, at->box);
}

/* Calls action for each box of each part of one slot of p. A slot holds the local shards, or the unsharded WEIGHT. */
static nrl_status each_part(place *at, nrl_param *p, nrl_tensor *t, const char *slot, part_action action, void *user)
{
    int64_t local = layout_local_numel(at->scope->mesh, p), unbound = at->is_planned ? local : 0;
    int64_t numel = t ? nrl_tensor_numel(t) : unbound;
    if (numel != local && numel != p->numel)
        return nrl_fail(NRL_ERR_BUG, "%s of parameter '%s' has %lld elements, expected %lld or %lld", slot, p->name,
                        (long long)numel, (long long)local, (long long)p->numel);
    at->t = t;
    at->begin = 0;
    at->is_work = numel != local;
    for (int i = 0; i < p->n_parts; i++, at->ordinal++) {
        at->part = &p->parts[i];
        checkpoint_tensor c = {.name = at->part->name, .slot = slot, .n_dims = at->part->n_dims};
        c.dtype = t && !at->split ? nrl_tensor_dtype(t) : NRL_DTYPE_F32;
        memcpy(c.dims, at->part->dims, sizeof c.dims);
        for (at->box = 0; at->box < layout_n_boxes(at->part); at->box++) {
            at->piece = piece_on(at, own_rank(at->scope));
            NRL_TRY(action(user, &c, at));
            at->begin += piece_numel(&at->piece);
        }
    }
    return NRL_OK;
}

/* `planned`: slots without a tensor count as f32 with the local number of elements. */
static nrl_status each_tensor(nrl_ctx *ctx, const model *m, const params_scope *scope, bool planned, part_action action,
                              void *user)
{
    place at = {.ctx = ctx, .scope = scope, .is_planned = planned};
    for (int32_t i = 0; i < m->n_params; i++) {
        nrl_param *p = m->params[i];
        if (scope->trained_only && !p->trained) continue;
        at.split = param_is_split(p) ? p : NULL;
        NRL_TRY(each_part(&at, p, param_exact(p), "weight", action, user));
        at.split = NULL;
        for (uint32_t k = 0; p->trained && k < scope->n_states; k++)
            NRL_TRY(each_part(&at, p, nrl_param_tensor(p, (nrl_slot)(NRL_SLOT_STATE0 + k)), scope->state_names[k],
                              action, user));
    }
    return NRL_OK;
}

/* ---- saving ---- */

/* Whether the pipeline stage of this rank owns the part. */
static bool is_here(const place *at)
{
    return layout_holds_part(at->scope->mesh, own_rank(at->scope), at->part);
}

/* Each of the ranks that hold the same shard saves a share of it. The first rank changes from part to part, so that
 * parts with few elements are not all saved by the same rank. */
static layout_shard own_share(const place *at)
{
    int32_t world = at->scope->mesh ? nrl_mesh_world(at->scope->mesh) : 1, n = 0, mine = 0;
    if (!is_here(at)) return at->piece;
    for (int32_t r = 0; r < world; r++) {
        if (!layout_holds_part(at->scope->mesh, r, at->part)) continue;
        layout_shard other = piece_on(at, r);
        if (!piece_is_same(&other, &at->piece)) continue;
        if (r == own_rank(at->scope)) mine = n;
        n++;
    }
    NRL_ASSERT(n, >, 0); /* this rank is one of them */
    return piece_share(&at->piece, (mine + at->ordinal) % n, n, SHARE_GRAIN);
}

static void *host_address(const place *at, int64_t begin)
{
    nrl_mat mat = nrl_tensor_mat(at->t);
    return (char *)mat.data + (at->begin + begin) * (int64_t)nrl_dtype_size(mat.dtype);
}

/* Copies elements [begin, begin + n) of the shard to `out`, or with NULL from `in`; joins or splits the halves of a
 * split master. */
static nrl_status copy_values(const place *at, int64_t begin, int64_t n, void *out, const void *in)
{
    nrl_tensor *view;
    if (at->split) return param_exact_copy(at->ctx, at->split, at->begin + begin, n, out, in);
    NRL_TRY(tensor_flat_view(at->ctx, at->t, at->begin + begin, n, &view));
    nrl_status st = out ? tensor_read(at->ctx, view, out) : tensor_write(at->ctx, view, in);
    tensor_release(at->ctx, view);
    return st;
}

static nrl_status save_part(void *user, const checkpoint_tensor *part, place *at)
{
    checkpoint_writer *w = user;
    layout_shard share = own_share(at);
    int64_t begin = share.flat_begin - at->piece.flat_begin, n = piece_numel(&share);
    void *room;
    if (!is_here(at)) return NRL_OK;
    if (n == 0 && (own_rank(at->scope) > 0 || piece_numel(&at->piece) > 0)) return NRL_OK;
    if (n == 0 || (nrl_ctx_host_memory(at->ctx) && !at->split)) {
        checkpoint_add_tensor(w, part, &share, n ? host_address(at, begin) : NULL);
        return NRL_OK;
    }
    NRL_TRY(checkpoint_add_copy(w, part, &share, &room));
    return copy_values(at, begin, n, room, NULL);
}

nrl_status params_save(nrl_ctx *ctx, const model *m, const params_scope *scope, checkpoint_writer *w)
{
    return each_tensor(ctx, m, scope, false, save_part, w);
}

static nrl_status count_part(void *user, const checkpoint_tensor *part, place *at)
{
    layout_shard share = own_share(at);
    *(int64_t *)user += piece_numel(&share) * (int64_t)nrl_dtype_size(part->dtype);
    return NRL_OK;
}

int64_t params_bytes(const model *m, const params_scope *scope)
{
    int64_t total = 0;
    if (each_tensor(NULL, m, scope, true, count_part, &total) != NRL_OK) return 0;
    return total;
}

/* ---- loading ---- */

/* Loads the shard through host memory, a window at a time. */
static nrl_status load_windows(checkpoint *c, size_t i, const place *at, nrl_dtype dtype)
{
    int64_t width = (int64_t)nrl_dtype_size(dtype), each = WINDOW_BYTES / width;
    void *host = mem_try_grow(NULL, WINDOW_BYTES, checkpoint_tensor_at(c, i)->name);
    nrl_status st = host ? NRL_OK : NRL_ERR_MEMORY;
    for (int64_t begin = 0; begin < piece_numel(&at->piece) && st == NRL_OK; begin += each) {
        layout_shard window = at->piece;
        window.flat_begin += begin;
        if (window.flat_end > window.flat_begin + each) window.flat_end = window.flat_begin + each;
        st = checkpoint_read(c, i, &window, host);
        if (st == NRL_OK) st = copy_values(at, begin, piece_numel(&window), NULL, host);
    }
    free(host);
    return st;
}

static nrl_status load_part(void *user, const checkpoint_tensor *part, place *at)
{
    checkpoint *c = user;
    size_t i;
    NRL_TRY(checkpoint_expect_tensor(c, part, &i));
    if (!is_here(at)) return NRL_OK;
    if (piece_numel(&at->piece) == 0) return NRL_OK;
    if (at->split || !nrl_ctx_host_memory(at->ctx)) return load_windows(c, i, at, part->dtype);
    return checkpoint_read(c, i, &at->piece, host_address(at, 0));
}

typedef struct {
    const checkpoint *c;
    bool *is_read; /* [checkpoint_n_tensors] */
} reading;

static nrl_status mark_part(void *user, const checkpoint_tensor *part, place *at)
{
    const reading *r = user;
    int64_t i = checkpoint_find_tensor(r->c, part->name, part->slot);
    (void)at;
    if (i >= 0) r->is_read[i] = true;
    return NRL_OK;
}

nrl_status params_check_read(const model *m, const params_scope *scope, const checkpoint *c)
{
    size_t n = checkpoint_n_tensors(c), n_unread = 0, first = 0;
    reading r = {c, mem_try(n + 1, "the tensors of a checkpoint")};
    if (!r.is_read) return NRL_ERR_MEMORY;
    nrl_status st = each_tensor(NULL, m, scope, true, mark_part, &r);
    for (size_t i = n; i-- > 0;) {
        const checkpoint_tensor *t = checkpoint_tensor_at(c, i);
        if (!r.is_read[i] && !(scope->reads && scope->reads(scope->reads_user, t->name, t->slot))) {
            first = i;
            n_unread++;
        }
    }
    free(r.is_read);
    if (st != NRL_OK || !n_unread) return st;
    const checkpoint_tensor *t = checkpoint_tensor_at(c, first);
    return nrl_fail(NRL_ERR_CONFIG,
                    "%s: %zu of its %zu tensors do not exist in this run (first: %s of '%.200s'); the next save would "
                    "lose them",
                    checkpoint_dir(c), n_unread, n, t->slot, t->name);
}

nrl_status params_load(nrl_ctx *ctx, const model *m, const params_scope *scope, checkpoint *c)
{
    NRL_TRY(each_tensor(ctx, m, scope, false, load_part, c));
    for (int32_t i = 0; i < m->n_params; i++)
        nrl_param_touch(m->params[i]);
    return NRL_OK;
}
