/*
 * op_exchange.c - rows that move between the ranks that divide the experts of a mixture. The strategy moves them
 * (nrl_parallel.exchange); the backward moves the gradients back.
 */
#include "tensor/tape/tape.h"
#include <stdlib.h>
#include <string.h>

typedef struct {
    ctx_experts ranks;
    int64_t counts[]; /* [2 ranks.n]: rows sent to each rank, rows received from each */
} exchange_attributes;

int32_t nrl_ctx_expert_ranks(const nrl_ctx *ctx, int32_t *rank)
{
    *rank = ctx->settings.experts.rank;
    return ctx->settings.experts.n > 1 ? ctx->settings.experts.n : 1;
}

static int64_t sum_of(const int64_t *counts, int32_t n)
{
    int64_t sum = 0;
    for (int32_t i = 0; i < n; i++)
        sum += counts[i];
    return sum;
}

static nrl_status exchange_backward(nrl_ctx *ctx, nrl_tape_node *node)
{
    const exchange_attributes *at = nrl_tape_attributes(node);
    const ctx_experts *e = &at->ranks;
    nrl_tensor *dx;
    NRL_TRY(tensor_like(ctx, nrl_tape_input(node, 0), &dx));
    NRL_TRY(e->rows(e->user, ctx, nrl_tape_grad(node, 0), at->counts + e->n, dx, at->counts));
    return nrl_tape_give(ctx, node, 0, dx);
}

nrl_status nrl_op_exchange_rows(nrl_ctx *ctx, nrl_tensor *x, const int64_t *sent, const int64_t *received,
                                nrl_tensor **y)
{
    const ctx_experts *e = &ctx->settings.experts;
    const size_t bytes = sizeof(exchange_attributes) + 2 * (size_t)e->n * sizeof *sent;
    *y = x;
    if (e->n < 2) return NRL_OK;
    if (x->n_dims > 2 || x->dims[0] != sum_of(sent, e->n))
        return nrl_fail(NRL_ERR_BUG, "exchange of rows: x is %s, and %lld rows are sent", tensor_shape(x).text,
                        (long long)sum_of(sent, e->n));
    NRL_TRY(tensor_rows_like(ctx, x, sum_of(received, e->n), y));
    NRL_TRY(e->rows(e->user, ctx, x, sent, *y, received));
    if (x->dtype == NRL_DTYPE_I32 || !tape_records(ctx)) return NRL_OK;
    exchange_attributes *at = mem_try(bytes, "an exchange of rows");
    if (!at) return NRL_ERR_MEMORY;
    at->ranks = *e;
    memcpy(at->counts, sent, (size_t)e->n * sizeof *sent);
    memcpy(at->counts + e->n, received, (size_t)e->n * sizeof *received);
    nrl_tape_record r = {.name = "exchange_rows",
                         .inputs = {x},
                         .outputs = {*y},
                         .attributes = at,
                         .attributes_size = bytes,
                         .backward = exchange_backward};
    nrl_status st = tape_push(ctx, &r, false);
    free(at);
    tensor_set_leaf(*y);
    return st;
}
