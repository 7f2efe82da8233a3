/*
 * optimizer_state.c - declared states by the names of part and state, in shapes that no number of ranks changes.
 */
#include "run/state/state.h"
#include "run/state/state_io.h"
#include <stdlib.h>
#include <string.h>

/* Calls `use` for each piece of each state that this rank has, or that it saves. */
typedef nrl_status (*piece_use)(void *user, const checkpoint_tensor *t, nrl_tensor *state, const update_piece *piece);

static nrl_status each_piece(const update_plan *u, bool saved, piece_use use, void *user)
{
    update_piece piece;
    for (int64_t i = 0; i < u->n_units; i++) {
        const update_unit *x = &u->units[i];
        for (uint32_t k = 0; k < x->what.n_states && (saved ? x->is_saved_here : x->is_here); k++) {
            const nrl_state *s = &x->what.states[k];
            checkpoint_tensor t = {.name = x->what.part->name, .slot = s->name, .dtype = (nrl_dtype)s->dtype};
            updates_state_dims(x, k, &t.n_dims, t.dims);
            for (int at = 0; updates_next_piece(u, x, k, &at, &piece);)
                if (piece.n) NRL_TRY(use(user, &t, x->states[k], &piece));
        }
    }
    return NRL_OK;
}

/* ---- saving ---- */

static nrl_status count_piece(void *user, const checkpoint_tensor *t, nrl_tensor *state, const update_piece *piece)
{
    (void)state;
    *(int64_t *)user += piece->n * (int64_t)nrl_dtype_size(t->dtype);
    return NRL_OK;
}

int64_t optimizer_state_bytes(const update_plan *u)
{
    int64_t total = 0;
    (void)each_piece(u, true, count_piece, &total);
    return total;
}

typedef struct {
    nrl_ctx *ctx;
    checkpoint_writer *writer;
    checkpoint *saved;
} transfer;

static nrl_status save_piece(void *user, const checkpoint_tensor *t, nrl_tensor *state, const update_piece *piece)
{
    const transfer *to = user;
    nrl_tensor *view;
    void *room;
    if (nrl_ctx_host_memory(to->ctx)) {
        const char *first = nrl_tensor_mat(state).data;
        checkpoint_add_tensor(to->writer, t, &piece->shard, first + piece->begin * (int64_t)nrl_dtype_size(t->dtype));
        return NRL_OK;
    }
    NRL_TRY(checkpoint_add_copy(to->writer, t, &piece->shard, &room));
    NRL_TRY(tensor_flat_view(to->ctx, state, piece->begin, piece->n, &view));
    nrl_status st = tensor_read(to->ctx, view, room);
    tensor_release(to->ctx, view);
    return st;
}

nrl_status optimizer_state_save(const update_plan *u, nrl_ctx *ctx, arena *a, checkpoint_writer *w)
{
    transfer to = {.ctx = ctx, .writer = w};
    NRL_TRY(each_piece(u, true, save_piece, &to));
    if (!u->table->state && !u->table->state_version) return NRL_OK;
    nrl_state_io v = {.a = a, .into = node_new(a, NRL_NODE_MAP)};
    nrl_node *map = node_new(a, NRL_NODE_MAP);
    node_append(a, map, "version", node_int(a, u->table->state_version));
    if (u->table->state) NRL_TRY(u->table->state(u->self, &v));
    node_append(a, map, "state", v.into);
    checkpoint_add_node(w, "optimizer", map);
    return NRL_OK;
}

/* ---- loading ---- */

nrl_status optimizer_state_check(const update_plan *u, const checkpoint *c)
{
    int64_t was = nrl_node_int(nrl_node_find(checkpoint_node(c, "optimizer"), "version"), 0);
    if (was == u->table->state_version) return NRL_OK;
    return nrl_fail(NRL_ERR_CONFIG, "%s: cannot read the states of optimizer '%s': version is %lld, expected %u",
                    checkpoint_dir(c), u->table->plugin.name, (long long)was, u->table->state_version);
}

static nrl_status load_piece(void *user, const checkpoint_tensor *t, nrl_tensor *state, const update_piece *piece)
{
    const transfer *from = user;
    nrl_tensor *view;
    size_t i;
    NRL_TRY(checkpoint_expect_tensor(from->saved, t, &i));
    if (nrl_ctx_host_memory(from->ctx)) {
        char *first = nrl_tensor_mat(state).data;
        return checkpoint_read(from->saved, i, &piece->shard, first + piece->begin * (int64_t)nrl_dtype_size(t->dtype));
    }
    void *host = mem_try((size_t)piece->n * nrl_dtype_size(t->dtype), t->slot);
    if (!host) return NRL_ERR_MEMORY;
    nrl_status st = checkpoint_read(from->saved, i, &piece->shard, host);
    if (st == NRL_OK) st = tensor_flat_view(from->ctx, state, piece->begin, piece->n, &view);
    if (st == NRL_OK) {
        st = tensor_write(from->ctx, view, host);
        tensor_release(from->ctx, view);
    }
    free(host);
    return st;
}

nrl_status optimizer_state_load(const update_plan *u, nrl_ctx *ctx, checkpoint *c)
{
    transfer from = {.ctx = ctx, .saved = c};
    NRL_TRY(each_piece(u, false, load_piece, &from));
    if (!u->table->state) return NRL_OK;
    nrl_state_io v = {.from = nrl_node_find(checkpoint_node(c, "optimizer"), "state")};
    return u->table->state(u->self, &v);
}

bool optimizer_state_reads(const void *user, const char *name, const char *slot)
{
    const update_plan *u = user;
    for (int64_t i = 0; i < u->n_units; i++)
        for (uint32_t k = 0; k < u->units[i].what.n_states; k++)
            if (!strcmp(u->units[i].what.part->name, name) && !strcmp(u->units[i].what.states[k].name, slot))
                return true;
    return false;
}
