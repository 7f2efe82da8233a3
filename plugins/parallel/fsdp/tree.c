/*
 * tree.c - reproducible: gradients of the shards of a batch are added in one binary tree, whatever the number of ranks
 * and of copies: ((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7)). Addition of two floats does not depend on their order, so
 * only the shape of the tree matters.
 *
 * R ranks work on R consecutive shards at a time, a subtree: an all_to_all gives each rank its slice of all of them,
 * which it adds in pairs; copies then exchange their sums. The subtrees' sums wait on a stack of slices, as the ones of
 * a binary counter: that of round j is kept in the level that is the number of ones in j, or, where j is odd, added to
 * the level below, and then further levels in pairs.
 */
#include "fsdp.h"

int fsdp_tree_levels(const fsdp *s)
{
    int n = 1;
    for (int32_t k = 2; k < s->n_shards; k *= 2)
        n++;
    return n;
}

/* parts[0] becomes the sum. */
static nrl_status add_pairs(nrl_ctx *ctx, nrl_tensor *const *parts, int32_t n)
{
    for (int32_t width = 1; width < n; width *= 2)
        for (int32_t i = 0; i < n; i += 2 * width)
            NRL_TRY(nrl_tensor_add(ctx, parts[i + width], parts[i]));
    return NRL_OK;
}

/* The tree across copies of the model; `sum` becomes that of all. Temporary tensors are in the caller's scope. */
static nrl_status add_copies(fsdp *s, nrl_ctx *ctx, fsdp_group *g, nrl_tensor *sum)
{
    const int64_t n = s->n_replicas * g->share;
    nrl_tensor *all, *first, *other;
    nrl_work *work = NULL;
    NRL_TRY(nrl_tensor_new(ctx, NRL_DTYPE_F32, 1, &n, &all));
    nrl_comm_call call = {.size = sizeof call, .send = sum, .receive = all, .what = g->replica_text};
    NRL_TRY(nrl_comm_all_gather(s->replica_comm, ctx, &call, &work));
    NRL_TRY(nrl_work_wait(&work, ctx));
    for (int32_t width = 1; width < s->n_replicas; width *= 2)
        for (int32_t i = 0; i < s->n_replicas; i += 2 * width) {
            NRL_TRY(nrl_tensor_slice(ctx, all, i * g->share, g->share, &first));
            NRL_TRY(nrl_tensor_slice(ctx, all, (i + width) * g->share, g->share, &other));
            nrl_status st = nrl_tensor_add(ctx, other, first);
            if (st == NRL_OK && i == 0) st = nrl_tensor_copy(ctx, first, sum);
            nrl_tensor_free(ctx, first);
            nrl_tensor_free(ctx, other);
            NRL_TRY(st);
        }
    return NRL_OK;
}

nrl_status fsdp_tree_add(fsdp *s, nrl_ctx *ctx, fsdp_group *g)
{
    int32_t j = g->reduced;
    int level = 0;
    NRL_TRY(add_pairs(ctx, g->parts, s->n_ranks));
    if (s->replica_comm) {
        nrl_scope_begin(ctx);
        nrl_status st = add_copies(s, ctx, g, g->parts[0]);
        nrl_scope_end(ctx);
        NRL_TRY(st);
    }
    for (int32_t ones = j; ones; ones &= ones - 1)
        level++;
    if (!(j & 1)) return nrl_tensor_copy(ctx, g->parts[0], g->levels[level]);
    NRL_TRY(nrl_tensor_add(ctx, g->parts[0], g->levels[--level]));
    for (j >>= 1; j & 1; j >>= 1, level--)
        NRL_TRY(nrl_tensor_add(ctx, g->levels[level], g->levels[level - 1]));
    return NRL_OK;
}
