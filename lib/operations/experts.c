/*
 * experts.c - rows on their way to the experts of other ranks and back. An exchange brings the rows of this rank's
 * experts ordered by the rank that they come from; they are then sorted by expert, so that each expert has one range.
 */
#include "kernel.h"
#include <stdlib.h>
#include <string.h>

/* Experts of each rank; 0: they do not divide, with the error set. */
static int64_t experts_a_rank(nrl_ctx *ctx, int64_t n_experts, int32_t *ranks)
{
    int32_t rank;
    *ranks = nrl_ctx_expert_ranks(ctx, &rank);
    if (n_experts > 0 && n_experts % *ranks == 0) return n_experts / *ranks;
    nrl_fail(NRL_ERR_BUG, "%lld experts are not divisible by %d ranks", (long long)n_experts, (int)*ranks);
    return 0;
}

/* Rows of each of the ranks, from the rows of its n / ranks entries. */
static void add_up(const int64_t *rows, int64_t n, int32_t ranks, int64_t *each)
{
    memset(each, 0, (size_t)ranks * sizeof *each);
    for (int64_t i = 0; i < n; i++)
        each[i * ranks / n] += rows[i];
}

/* received [ranks][own]: place[i] = the row in order of ranks of row i in order of experts; `back`: the inverse.
 * first [ranks][own] is filled with where each range begins in order of ranks. */
static void sort_rows(const int64_t *received, int32_t ranks, int64_t own, bool back, int64_t *first, int32_t *place)
{
    int64_t at = 0;
    for (int64_t i = 0; i < ranks * own; at += received[i++])
        first[i] = at;
    at = 0;
    for (int64_t e = 0; e < own; e++)
        for (int64_t i = e; i < ranks * own; i += own)
            for (int64_t k = 0; k < received[i]; k++, at++)
                place[back ? first[i] + k : at] = (int32_t)(back ? at : first[i] + k);
}

/* x in the other order; nothing is moved where there is one expert, or no row. */
static nrl_status reorder(nrl_ctx *ctx, nrl_tensor *x, const int64_t *received, int32_t ranks, int64_t own, bool back,
                          nrl_tensor **y)
{
    const int64_t n = nrl_tensor_dim(x, 0);
    *y = x;
    if (own == 1 || !n) return NRL_OK;
    int64_t *first = malloc((size_t)(ranks * own) * sizeof *first);
    int32_t *place = malloc((size_t)n * sizeof *place);
    nrl_status st = first && place
                        ? NRL_OK
                        : nrl_fail(NRL_ERR_MEMORY, "out of memory for the positions of %lld rows", (long long)n);
    if (st == NRL_OK) {
        sort_rows(received, ranks, own, back, first, place);
        st = nrl_op_gather_rows(ctx, x, place, n, y);
    }
    free(first);
    free(place);
    return st;
}

/* Every rank tells every other one how many rows come for each of its experts. It knows its own numbers; in a dry run,
 * which receives nothing, it assumes as many rows from every other rank. */
static nrl_status send_counts(nrl_ctx *ctx, const int64_t *sent, int64_t n, int32_t ranks, int64_t *received,
                              int64_t *each, int32_t *narrow, double *wide)
{
    nrl_tensor *mine, *theirs;
    for (int64_t i = 0; i < n; i++)
        narrow[i] = (int32_t)sent[i];
    for (int32_t r = 0; r < ranks; r++)
        each[r] = n / ranks;
    NRL_TRY(nrl_tensor_from_host(ctx, NRL_DTYPE_I32, 1, &n, narrow, &mine));
    NRL_TRY(nrl_op_exchange_rows(ctx, mine, each, each, &theirs));
    NRL_TRY(nrl_tensor_fetch(ctx, theirs, wide, n));
    const int64_t own = n / ranks;
    int32_t rank;
    bool shapes = false;
    nrl_ctx_expert_ranks(ctx, &rank);
    for (int64_t i = rank * own; i < (rank + 1) * own; i++)
        shapes |= (int64_t)wide[i] != sent[i];
    for (int64_t i = 0; i < n; i++)
        received[i] = shapes ? sent[rank * own + i % own] : (int64_t)wide[i];
    return NRL_OK;
}

nrl_status nrl_op_to_experts(nrl_ctx *ctx, nrl_tensor *x, const int64_t *sent, int64_t n_experts, int64_t *received,
                             nrl_tensor **y)
{
    int32_t ranks;
    const int64_t own = experts_a_rank(ctx, n_experts, &ranks);
    *y = x;
    if (!own) return NRL_ERR_BUG;
    memcpy(received, sent, (size_t)n_experts * sizeof *sent);
    if (ranks == 1) return NRL_OK;
    double *wide = malloc((size_t)n_experts * sizeof *wide);
    int32_t *narrow = malloc((size_t)n_experts * sizeof *narrow);
    int64_t *each = malloc(2 * (size_t)ranks * sizeof *each);
    nrl_status st = wide && narrow && each
                        ? send_counts(ctx, sent, n_experts, ranks, received, each, narrow, wide)
                        : nrl_fail(NRL_ERR_MEMORY, "out of memory for the rows of %lld experts", (long long)n_experts);
    if (st == NRL_OK) {
        add_up(sent, n_experts, ranks, each);
        add_up(received, n_experts, ranks, each + ranks);
        st = nrl_op_exchange_rows(ctx, x, each, each + ranks, y);
    }
    if (st == NRL_OK) st = reorder(ctx, *y, received, ranks, own, false, y);
    free(wide);
    free(narrow);
    free(each);
    return st;
}

nrl_status nrl_op_from_experts(nrl_ctx *ctx, nrl_tensor *x, const int64_t *sent, int64_t n_experts,
                               const int64_t *received, nrl_tensor **y)
{
    int32_t ranks;
    const int64_t own = experts_a_rank(ctx, n_experts, &ranks);
    *y = x;
    if (!own) return NRL_ERR_BUG;
    if (ranks == 1) return NRL_OK;
    int64_t *each = malloc(2 * (size_t)ranks * sizeof *each);
    if (!each) return nrl_fail(NRL_ERR_MEMORY, "out of memory for the rows of %d ranks", (int)ranks);
    add_up(sent, n_experts, ranks, each);
    add_up(received, n_experts, ranks, each + ranks);
    nrl_status st = reorder(ctx, x, received, ranks, own, true, y);
    if (st == NRL_OK) st = nrl_op_exchange_rows(ctx, *y, each + ranks, each, y);
    free(each);
    return st;
}
