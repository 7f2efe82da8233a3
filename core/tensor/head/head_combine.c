/*
 * head_combine.c - the head over a vocabulary that is sharded over ranks (Shoeybi et al. 2019). Each rank has the sums
 * over its own columns; the ranks exchange a few numbers per row to get the sums over all columns, and do not exchange
 * logits. R ranks with V/R columns each, n rows. With d_r = lse_r - lse:
 *   lse = log sum_r e^lse_r            log p(t) = log p_owner(t) + d_owner
 *   H = sum_r e^d_r (H_r - d_r)        log sum p^2 = log sum_r e^(2 d_r + L_r)
 */
#include "tensor/head/head.h"
#include "tensor/ops/tp_region.h"
#include <stdlib.h>

enum { HEAD_ELSEWHERE = -2, MOST_STATS = 4 };

static int64_t n_ranks(const nrl_param *w)
{
    return w->parts[0].dims[0] / w->dims[0];
}

bool head_is_sharded(const head_spec *head)
{
    return param_is_sharded(head->weight);
}

nrl_status head_targets(nrl_ctx *ctx, const head_spec *head, nrl_tensor **targets)
{
    const nrl_param *w = head->weight;
    int64_t n = ctx->batch->n_rows;
    *targets = ctx->index.row_target;
    if (!head_is_sharded(head) || !*targets) return NRL_OK;
    if (w->dims[0] * n_ranks(w) != w->parts[0].dims[0] || w->first[0] % w->dims[0])
        return nrl_fail(NRL_ERR_BUG, "head: the shards of '%s' have unequal sizes", w->name);
    int32_t *local = mem_try((size_t)n * sizeof *local, "the targets of a micro-batch");
    if (!local) return NRL_ERR_MEMORY;
    for (int64_t i = 0; i < n; i++) {
        int64_t t = ctx->batch->row_target[i] - w->first[0];
        local[i] = t >= 0 && t < w->dims[0] ? (int32_t)t : HEAD_ELSEWHERE;
    }
    nrl_status st = nrl_tensor_from_host(ctx, NRL_DTYPE_I32, 1, &n, local, targets);
    free(local);
    return st;
}

/* Gathers k vectors [n] of all ranks to [n,R] each, in one exchange. */
static nrl_status exchange(nrl_ctx *ctx, int64_t ranks, nrl_tensor *const *mine, int k, nrl_tensor **all)
{
    int64_t n = mine[0]->numel, shape[] = {ranks, n};
    nrl_tensor *stats, *place, *gathered;
    NRL_TRY(tensor_vector(ctx, NRL_DTYPE_F32, k * n, &stats));
    for (int i = 0; i < k; i++) {
        place = tensor_view(ctx, stats, i * n, 1, &n, n);
        NRL_TRY(tensor_copy(ctx, mine[i], place));
    }
    NRL_TRY(tp_region_ask(ctx, NRL_TP_REGION_HEAD_STATS, false, stats, &gathered));
    if (gathered->numel != ranks * k * n) {
        nrl_fail(NRL_ERR_PLUGIN, "the tp_region HEAD_STATS returned %lld values, expected a multiple for %lld ranks",
                 (long long)gathered->numel, (long long)ranks);
        return NRL_ERR_PLUGIN;
    }
    for (int i = 0; i < k; i++) {
        place = tensor_view(ctx, gathered, i * n, 2, shape, k * n);
        NRL_TRY(nrl_op_transpose(ctx, place, &all[i]));
    }
    return NRL_OK;
}

/* Selects from x [n,R] for each row the column of the rank that has the target: [n]. */
static nrl_status of_owner(nrl_ctx *ctx, nrl_tensor *x, const int32_t *index, nrl_tensor **y)
{
    int64_t numel = x->numel;
    nrl_tensor *flat;
    NRL_TRY(nrl_op_reshape(ctx, x, 1, &numel, &flat));
    return nrl_op_gather_rows(ctx, flat, index, x->rows, y);
}

static nrl_status combine_squares(nrl_ctx *ctx, nrl_tensor *d, nrl_tensor *all, nrl_tensor *log_sum_p2)
{
    nrl_tensor *twice, *sum;
    NRL_TRY(nrl_op_unary(ctx, NRL_UNARY_AFFINE, d, 2, 0, &twice));
    NRL_TRY(nrl_op_binary(ctx, NRL_BINARY_ADD, twice, all, &twice));
    NRL_TRY(nrl_op_log_sum_exp(ctx, twice, &sum));
    return tensor_copy(ctx, sum, log_sum_p2);
}

static nrl_status combine(nrl_ctx *ctx, const head_tensors *s, int64_t ranks, const int32_t *index)
{
    nrl_tensor *mine[MOST_STATS] = {s->logps, s->lse}, *all[MOST_STATS], *lse, *column, *d, *own, *logp;
    int k = 2, at_entropy = s->entropy ? k++ : 0, at_squares = s->log_sum_p2 ? k++ : 0;
    int64_t n = s->lse->numel, shape[] = {n, 1};
    if (at_entropy) mine[at_entropy] = s->entropy;
    if (at_squares) mine[at_squares] = s->log_sum_p2;
    NRL_TRY(exchange(ctx, ranks, mine, k, all));
    NRL_TRY(nrl_op_log_sum_exp(ctx, all[1], &lse));
    NRL_TRY(nrl_op_reshape(ctx, lse, 2, shape, &column));
    NRL_TRY(nrl_op_binary(ctx, NRL_BINARY_SUB, all[1], column, &d));
    NRL_TRY(of_owner(ctx, d, index, &own));
    NRL_TRY(of_owner(ctx, all[0], index, &logp));
    NRL_TRY(nrl_op_binary(ctx, NRL_BINARY_ADD, logp, own, &logp));
    NRL_TRY(tensor_copy(ctx, logp, s->logps));
    NRL_TRY(tensor_copy(ctx, lse, s->lse));
    if (at_entropy) {
        nrl_tensor *weight, *each, *sum;
        NRL_TRY(nrl_op_unary(ctx, NRL_UNARY_EXP, d, 0, 0, &weight));
        NRL_TRY(nrl_op_binary(ctx, NRL_BINARY_SUB, all[at_entropy], d, &each));
        NRL_TRY(nrl_op_binary(ctx, NRL_BINARY_MUL, weight, each, &each));
        NRL_TRY(nrl_op_sum_columns(ctx, each, &sum));
        NRL_TRY(tensor_copy(ctx, sum, s->entropy));
    }
    return at_squares ? combine_squares(ctx, d, all[at_squares], s->log_sum_p2) : NRL_OK;
}

nrl_status head_combine(nrl_ctx *ctx, const head_spec *head, const int32_t *target, const head_tensors *s)
{
    const nrl_param *w = head->weight;
    int64_t n = s->lse->numel, ranks = n_ranks(w);
    if (!head_is_sharded(head) || !n) return NRL_OK;
    int32_t *index = mem_try((size_t)n * sizeof *index, "the targets of a micro-batch");
    if (!index) return NRL_ERR_MEMORY;
    for (int64_t i = 0; i < n; i++)
        index[i] = (int32_t)(i * ranks + target[i] / w->dims[0]);
    ctx_scope_begin(ctx);
    nrl_status st = combine(ctx, s, ranks, index);
    ctx_scope_end(ctx);
    free(index);
    return st;
}

nrl_status head_whole_logits(nrl_ctx *ctx, const head_spec *head, nrl_tensor **logits)
{
    nrl_tensor *mine = *logits, *gathered, *from, *to;
    int64_t n = mine->rows, here = mine->cols, ranks = n_ranks(head->weight), shape[] = {n, here};
    if (!head_is_sharded(head) || !n) return NRL_OK;
    NRL_TRY(tp_region_ask(ctx, NRL_TP_REGION_HEAD_STATS, false, mine, &gathered));
    NRL_TRY(tensor_matrix(ctx, NRL_DTYPE_F32, n, here * ranks, logits));
    for (int64_t r = 0; r < ranks; r++) {
        from = tensor_view(ctx, gathered, r * n * here, 2, shape, here);
        to = tensor_view(ctx, *logits, r * here, 2, shape, here * ranks);
        NRL_TRY(tensor_copy(ctx, from, to));
    }
    return NRL_OK;
}
