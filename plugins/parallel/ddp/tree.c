/*
 * tree.c - reproducible: gradients of the shards of a batch are added in one binary tree, whatever the number of ranks:
 * ((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7)). Addition of two floats does not depend on their order, so only the shape
 * of the tree matters.
 *
 * A rank has k consecutive shards, a subtree. Sums wait on a stack, as the ones of a binary counter: shard j is written
 * to the level that is the number of ones in j, and when it ends, as many pairs of levels are added as j has ones at
 * its end. So k shards need log2(k) + 1 buffers and k - 1 additions; level 0, the bucket itself, has the rank's sum.
 * The tree goes on across ranks as in half.c, with an all_to_all, additions in pairs and an all_gather.
 *
 * Legend: as in ddp.h; `share` elements of a bucket are summed by each rank.
 */
#include "ddp.h"
#include <stdlib.h>

typedef struct {
    nrl_tensor **levels; /* [n_levels] [R share]; level 0 is the bucket */
    nrl_tensor **views;  /* [n_levels, n_slots] of the bucket's slots: GRAD */
    nrl_tensor *receive; /* [R share]; NULL on one rank */
    nrl_tensor **shares; /* [R] of `receive`, [share] each */
} tree;

int ddp_tree_levels(const ddp *d)
{
    int n = 1;
    for (int32_t k = 1; k < d->n_shards; k *= 2)
        n++;
    return n;
}

/* ---- memory ---- */

static void free_tensors(nrl_ctx *ctx, nrl_tensor **list, int64_t n)
{
    for (int64_t i = 0; list && i < n; i++)
        nrl_tensor_free(ctx, list[i]);
    free(list);
}

static void tree_unbind(ddp *d, nrl_ctx *ctx, ddp_bucket *b)
{
    tree *t = b->codec;
    const int n_levels = ddp_tree_levels(d);
    if (!t) return;
    free_tensors(ctx, t->views, (int64_t)n_levels * b->n_slots);
    free_tensors(ctx, t->shares, d->size);
    nrl_tensor_free(ctx, t->receive);
    if (t->levels) t->levels[0] = NULL; /* the bucket's owner frees it */
    free_tensors(ctx, t->levels, n_levels);
    free(t);
    b->codec = NULL;
}

static nrl_status tree_bind(ddp *d, nrl_ctx *ctx, ddp_bucket *b)
{
    const int n_levels = ddp_tree_levels(d);
    tree *t = b->codec = calloc(1, sizeof *t);
    if (!t) return nrl_fail(NRL_ERR_MEMORY, "out of memory for a bucket");
    t->levels = calloc((size_t)n_levels, sizeof(nrl_tensor *));
    t->views = calloc((size_t)n_levels * (size_t)b->n_slots, sizeof(nrl_tensor *));
    t->shares = calloc((size_t)d->size, sizeof(nrl_tensor *));
    if (!t->levels || !t->views || !t->shares) return nrl_fail(NRL_ERR_MEMORY, "out of memory for a bucket");
    t->levels[0] = b->grads;
    for (int level = 0; level < n_levels; level++) {
        if (level) NRL_TRY(ddp_tensor(ctx, NRL_DTYPE_F32, b->n, &t->levels[level]));
        for (int32_t i = 0; i < b->n_slots; i++) {
            const ddp_slot *s = &d->slots[b->first + i];
            NRL_TRY(nrl_tensor_slice(ctx, t->levels[level], s->begin, nrl_param_numel(s->param),
                                     &t->views[level * b->n_slots + i]));
        }
    }
    if (d->size == 1) return NRL_OK;
    NRL_TRY(ddp_tensor(ctx, NRL_DTYPE_F32, b->n, &t->receive));
    for (int32_t r = 0; r < d->size; r++)
        NRL_TRY(nrl_tensor_slice(ctx, t->receive, r * (b->n / d->size), b->n / d->size, &t->shares[r]));
    return NRL_OK;
}

/* ---- inside the rank ---- */

/* The level that shard j is written to. */
static int level_of(int32_t j)
{
    int ones = 0;
    for (; j; j &= j - 1)
        ones++;
    return ones;
}

/* Zeroes what the shard did not reach: the tree is the same for all parameters of a bucket. */
static nrl_status fill_empty(ddp *d, nrl_ctx *ctx, ddp_bucket *b, nrl_tensor *const *views)
{
    for (int32_t i = 0; i < b->n_slots; i++) {
        ddp_slot *s = &d->slots[b->first + i];
        bool empty = nrl_param_grad_is_empty(s->param);
        s->unused = empty && (s->unused || d->shard == 0);
        if (!empty) continue;
        NRL_TRY(nrl_tensor_fill(ctx, views[i], 0));
        nrl_param_set_grad_is_empty(s->param, false);
    }
    return NRL_OK;
}

nrl_status ddp_tree_end_shard(ddp *d, nrl_ctx *ctx, ddp_bucket *b)
{
    tree *t = b->codec;
    int level = level_of(d->shard);
    NRL_TRY(fill_empty(d, ctx, b, t->views + level * b->n_slots));
    for (int32_t j = d->shard; j & 1; j >>= 1, level--)
        NRL_TRY(nrl_tensor_add(ctx, t->levels[level], t->levels[level - 1]));
    return NRL_OK;
}

void ddp_tree_begin_shard(ddp *d, ddp_bucket *b, int32_t shard)
{
    const tree *t = b->codec;
    nrl_tensor *const *views = t->views + level_of(shard) * b->n_slots;
    for (int32_t i = 0; i < b->n_slots; i++) {
        nrl_param_bind(d->slots[b->first + i].param, NRL_SLOT_GRAD, views[i]);
        nrl_param_set_grad_is_empty(d->slots[b->first + i].param, true);
    }
}

/* ---- across ranks ---- */

static nrl_status tree_stage(ddp *d, nrl_ctx *ctx, ddp_bucket *b, bool *more)
{
    tree *t = b->codec;
    nrl_comm_call call = {.size = sizeof call, .send = b->grads, .receive = t->receive, .what = b->what};
    *more = b->stage == 0 && d->size > 1;
    if (d->size == 1) return NRL_OK;
    if (b->stage == 0) return nrl_comm_all_to_all(d->comm, ctx, &call, &b->work[0]);
    for (int32_t width = 1; width < d->size; width *= 2)
        for (int32_t r = 0; r < d->size; r += 2 * width)
            NRL_TRY(nrl_tensor_add(ctx, t->shares[r + width], t->shares[r]));
    call.send = t->shares[0];
    call.receive = b->grads;
    return nrl_comm_all_gather(d->comm, ctx, &call, &b->work[0]);
}

const ddp_codec ddp_tree = {.bind = tree_bind, .unbind = tree_unbind, .stage = tree_stage};
