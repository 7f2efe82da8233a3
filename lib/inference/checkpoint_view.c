/*
 * checkpoint_view.c - nrl/checkpoint.h: checkpoints for programs that train nothing.
 */
#include "base/disk.h"
#include "checkpoint/checkpoint.h"
#include "run/state/state.h"
#include <nrl/checkpoint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct nrl_checkpoint {
    checkpoint *c;
    sign_public_key key; /* that it was opened with, if any */
};

nrl_status nrl_checkpoint_open(const char *path, const char *public_key, nrl_checkpoint **out)
{
    nrl_checkpoint *view = mem_alloc(sizeof *view);
    char *dir = NULL;
    *out = NULL;
    nrl_status st = public_key ? sign_read_public(public_key, &view->key) : NRL_OK;
    if (st == NRL_OK) st = checkpoint_locate(path, &dir);
    if (st == NRL_OK) st = checkpoint_open_signed(dir ? dir : path, public_key ? &view->key : NULL, &view->c);
    free(dir);
    if (st == NRL_OK)
        *out = view;
    else
        free(view);
    return st;
}

void nrl_checkpoint_close(nrl_checkpoint *c)
{
    if (!c) return;
    checkpoint_close(c->c);
    free(c);
}

/* Fills what the caller's struct has room for; its `size` stays. */
static void view_fill(void *fill, const void *from, size_t size)
{
    uint32_t room;
    memcpy(&room, fill, sizeof room);
    if (room > sizeof room)
        memcpy((char *)fill + sizeof room, (const char *)from + sizeof room, (room < size ? room : size) - sizeof room);
}

void nrl_checkpoint_info_fill(const nrl_checkpoint *c, nrl_checkpoint_info *fill)
{
    const nrl_checkpoint_info info = {.world = checkpoint_world(c->c),
                                      .dir = checkpoint_dir(c->c),
                                      .step = checkpoint_step(c->c),
                                      .bytes = checkpoint_bytes(c->c),
                                      .n_tensors = (int64_t)checkpoint_n_tensors(c->c),
                                      .metric = checkpoint_metric(c->c),
                                      .is_signed = checkpoint_is_signed(checkpoint_dir(c->c))};
    view_fill(fill, &info, sizeof info);
}

const nrl_node *nrl_checkpoint_node(const nrl_checkpoint *c, const char *key)
{
    return checkpoint_node(c->c, key);
}

/* ---- tensors ---- */

void nrl_checkpoint_tensor_fill(const nrl_checkpoint *c, int64_t i, nrl_checkpoint_tensor *fill)
{
    NRL_ASSERT(i, <, (int64_t)checkpoint_n_tensors(c->c));
    const checkpoint_tensor *t = checkpoint_tensor_at(c->c, (size_t)i);
    nrl_checkpoint_tensor info = {.dtype = t->dtype,
                                  .name = t->name,
                                  .slot = t->slot,
                                  .n_dims = t->n_dims,
                                  .n_shards = checkpoint_tensor_pieces(c->c, (size_t)i),
                                  .bytes = checkpoint_tensor_bytes(c->c, (size_t)i),
                                  .stored_bytes = checkpoint_tensor_stored(c->c, (size_t)i)};
    memcpy(info.dims, t->dims, sizeof info.dims);
    view_fill(fill, &info, sizeof info);
}

int64_t nrl_checkpoint_find(const nrl_checkpoint *c, const char *name, const char *slot)
{
    return checkpoint_find_tensor(c->c, name, slot);
}

nrl_status nrl_checkpoint_read(nrl_checkpoint *c, int64_t i, int64_t begin, int64_t end, void *to)
{
    NRL_ASSERT(i, <, (int64_t)checkpoint_n_tensors(c->c));
    const checkpoint_tensor *t = checkpoint_tensor_at(c->c, (size_t)i);
    layout_shard piece = piece_of_whole(t->n_dims, t->dims);
    NRL_ASSERT(end, <=, piece.flat_end);
    piece.flat_begin = begin;
    piece.flat_end = end;
    return checkpoint_read(c->c, (size_t)i, &piece, to);
}

nrl_status nrl_checkpoint_verify(nrl_checkpoint *c, int threads, void (*damaged)(void *user, const char *text),
                                 void *user)
{
    NRL_TRY(checkpoint_use_threads(c->c, threads));
    if (progress_check_nodes(c->c) == NRL_OK) return checkpoint_verify(c->c, damaged, user);
    if (damaged) damaged(user, nrl_error_text());
    return NRL_ERR_CORRUPT; /* the saved trees are invalid, so the tensors do not matter */
}

/* ---- the folder ---- */

nrl_status nrl_checkpoint_list(const char *out, char ***dirs, size_t *n)
{
    return checkpoint_list(out, dirs, n);
}

void nrl_checkpoint_list_free(char **dirs, size_t n)
{
    checkpoint_list_free(dirs, n);
}

/* Also removes the remains of an interrupted save, which look like a save in progress: so no run
 * may write to `out`. */
nrl_status nrl_checkpoint_prune(const char *out, int64_t keep, int64_t keep_best)
{
    int lock;
    if (!disk_lock_folder(out, &lock))
        return nrl_fail(NRL_ERR_CONFIG,
                        "a run is writing to '%s'\nhint: wait until it ends; it prunes by checkpoint.keep itself", out);
    nrl_status st = checkpoint_prune(out, keep, keep_best, false);
    if (lock >= 0) close(lock);
    return st;
}

nrl_status nrl_checkpoint_make_keys(const char *path)
{
    return sign_make_keys(path);
}
