/*
 * state_io.c - saves the named numbers of a plugin as lists and restores them exactly; saves its tensors as entries of
 * slot "rank".
 */
#include "run/state/state_io.h"
#include "base/json.h"
#include "tensor/ctx.h"
#include <stdlib.h>
#include <string.h>

/* Numbers that are too many for a manifest are an entry of rank 0's file; the map has their number instead of a list.
 */
enum { LONG_LIST = 4096 };

static nrl_status io_entry(nrl_state_io *v, const char *name, void *numbers, nrl_dtype dtype, int64_t n)
{
    arena a = {0};
    bool found = true;
    const checkpoint_tensor c = checkpoint_rank_tensor(&a, v->owner, name, dtype, n);
    const layout_shard whole = piece_of_whole(1, c.dims);
    nrl_status st = NRL_OK;
    if (v->saved)
        st = checkpoint_read_rank(v->saved, 0, &c, numbers, &found);
    else if (v->rank == 0)
        checkpoint_add_tensor(v->writer, &c, &whole, numbers);
    arena_free(&a);
    return st != NRL_OK || found ? st : nrl_fail(NRL_ERR_CORRUPT, "the checkpoint has no state '%s'", name);
}

/* Saves or restores a list of n numbers: `reals`, or `integers` if that is NULL. */
static nrl_status io_numbers(nrl_state_io *v, const char *name, double *reals, int64_t *integers, int64_t n)
{
    void *numbers = reals ? (void *)reals : integers;
    const nrl_dtype dtype = reals ? NRL_DTYPE_F64 : NRL_DTYPE_I64;
    if (v->into && v->writer && v->same_on_all_ranks && n > LONG_LIST) {
        node_set(v->a, v->into, name, node_int(v->a, n));
        return io_entry(v, name, numbers, dtype, n);
    }
    if (v->into) {
        const size_t count = (size_t)n, room = node_room(count, 0) + count * node_room(0, 0);
        NRL_TRY(arena_reserve(v->a, room + node_room(1, strlen(name)), name));
        nrl_node *made = node_set(v->a, v->into, name, node_new(v->a, NRL_NODE_LIST));
        for (int64_t i = 0; i < n; i++)
            node_append(v->a, made, NULL, reals ? node_f64(v->a, reals[i]) : node_int(v->a, integers[i]));
        return NRL_OK;
    }
    if (v->optional && !v->from) return NRL_OK;
    const nrl_node *list = nrl_node_find(v->from, name);
    if (v->may_lack && !list) {
        if (!v->rank) nrl_warn("the checkpoint has no state '%s': it begins anew", name);
        return NRL_OK;
    }
    if (nrl_node_kind(list) == NRL_NODE_INT && nrl_node_int(list, 0) == n && v->saved)
        return io_entry(v, name, numbers, dtype, n);
    if (nrl_node_kind(list) != NRL_NODE_LIST)
        return nrl_fail(NRL_ERR_CORRUPT, "the checkpoint has no state '%s'", name);
    if ((int64_t)nrl_node_size(list) != n)
        return nrl_fail(NRL_ERR_CORRUPT, "state '%s' has %zu values in the checkpoint, expected %lld", name,
                        nrl_node_size(list), (long long)n);
    for (int64_t i = 0; i < n; i++) {
        const nrl_node *one = nrl_node_at(list, (size_t)i);
        if (integers) integers[i] = nrl_node_int(one, 0);
        if (reals ? !json_read_f64(one, &reals[i]) : nrl_node_kind(one) != NRL_NODE_INT)
            return nrl_fail(NRL_ERR_CORRUPT, "state '%s' contains a value that is not %s", name,
                            reals ? "a number" : "an integer");
    }
    return NRL_OK;
}

nrl_status nrl_state_io_f64(nrl_state_io *v, const char *name, double *values, int64_t n)
{
    return io_numbers(v, name, values, NULL, n);
}

nrl_status nrl_state_io_i64(nrl_state_io *v, const char *name, int64_t *values, int64_t n)
{
    return io_numbers(v, name, NULL, values, n);
}

/* ---- tensors of this rank ---- */

static nrl_status save_tensor(nrl_state_io *v, nrl_ctx *ctx, const checkpoint_tensor *c, nrl_tensor *t)
{
    void *room;
    layout_shard whole = piece_of_whole(1, c->dims);
    NRL_TRY(checkpoint_add_copy(v->writer, c, &whole, &room));
    return tensor_read(ctx, t, room);
}

static nrl_status load_tensor(nrl_state_io *v, nrl_ctx *ctx, const checkpoint_tensor *c, nrl_tensor *t, bool *found)
{
    size_t size = (size_t)c->dims[0] * nrl_dtype_size(c->dtype);
    if (checkpoint_world(v->saved) != v->world) return NRL_OK;
    void *host = mem_try(size, c->name);
    if (!host) return NRL_ERR_MEMORY;
    nrl_status st = checkpoint_read_rank(v->saved, v->rank, c, host, found);
    if (st == NRL_OK && *found) st = tensor_write(ctx, t, host);
    free(host);
    return st;
}

nrl_status nrl_state_io_tensor(nrl_state_io *v, nrl_ctx *ctx, const char *name, nrl_tensor *t, bool *found)
{
    arena a = {0};
    nrl_status st = NRL_OK;
    *found = false;
    if (v->writer || v->saved) {
        const checkpoint_tensor c =
            checkpoint_rank_tensor(&a, v->owner, name, nrl_tensor_dtype(t), nrl_tensor_numel(t));
        st = v->writer ? save_tensor(v, ctx, &c, t) : load_tensor(v, ctx, &c, t, found);
    }
    arena_free(&a);
    return st;
}
