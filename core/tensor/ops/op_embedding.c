/*
 * op_embedding.c - looks up rows of a parameter for the batch's tokens or positions.
 */
#include "tensor/ops/tp_region.h"
#include "tensor/tape/tape.h"
#include <stdlib.h>

typedef struct {
    nrl_param *table;
} embedding_attributes;

/* dTable[id] += dY rows, in ascending order of rows, so that sums are deterministic. */
static nrl_status embedding_backward(nrl_ctx *ctx, nrl_tape_node *node)
{
    const embedding_attributes *at = nrl_tape_attributes(node);
    nrl_scatter_args s = {
        .size = sizeof s, .dy = tensor_mat(nrl_tape_grad(node, 0)), .index = tensor_index(nrl_tape_saved(node, 0))};
    NRL_TRY(param_grad(at->table, &s.dx, &s.overwrite));
    return s.dx.data ? backend_scatter(ctx, &s) : NRL_OK;
}

static nrl_status lookup(nrl_ctx *ctx, nrl_param *table, nrl_tensor *index, nrl_tensor **y)
{
    nrl_gather_args g = {.size = sizeof g, .index = tensor_index(index)};
    NRL_TRY(param_work(table, &g.x));
    NRL_TRY(tensor_matrix(ctx, ctx->settings.compute, index->numel, table->dims[1], y));
    g.y = tensor_mat(*y);
    NRL_TRY(backend_gather(ctx, &g));
    embedding_attributes at = {table};
    nrl_tape_record r = {.name = "embedding",
                         .outputs = {*y},
                         .saved = {index},
                         .attributes = &at,
                         .attributes_size = sizeof at,
                         .backward = embedding_backward};
    return tape_push(ctx, &r, table->trained);
}

/* Ids come from data files, so they are checked: users can get them wrong. */
static nrl_status check_range(const nrl_param *table, const int32_t *ids, int64_t n, const char *what)
{
    for (int64_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= table->parts[0].dims[0])
            return nrl_fail(NRL_ERR_DATA, "%s %d is out of range of '%s' %s", what, ids[i], table->name,
                            dims_shape(table->n_dims, table->parts[0].dims).text);
    return NRL_OK;
}

static nrl_status check(nrl_ctx *ctx, const nrl_param *table)
{
    if (!ctx->batch) return nrl_fail(NRL_ERR_BUG, "embedding: the context has no batch");
    if (table->n_dims == 2) return NRL_OK;
    return nrl_fail(NRL_ERR_BUG, "embedding: table '%s' is %s, expected [rows,width]", table->name,
                    dims_shape(table->n_dims, table->dims).text);
}

/* The rows to look up in this rank's shard, and a mask [N,1]: tokens of other shards look up row 0 and have mask 0. */
static nrl_status local_rows(nrl_ctx *ctx, const nrl_param *table, nrl_tensor **index, nrl_tensor **mask)
{
    int64_t n = ctx->batch->n_tokens, shape[] = {n, 1};
    int32_t *rows = mem_try((size_t)n * sizeof *rows, "the rows of an embedding");
    float *here = mem_try((size_t)n * sizeof *here, "the mask of an embedding");
    nrl_status st = rows && here ? NRL_OK : NRL_ERR_MEMORY;
    for (int64_t i = 0; i < n && st == NRL_OK; i++) {
        int64_t row = ctx->batch->tokens[i] - table->first[0];
        here[i] = row >= 0 && row < table->dims[0];
        rows[i] = here[i] > 0 ? (int32_t)row : 0;
    }
    if (st == NRL_OK) st = nrl_tensor_from_host(ctx, NRL_DTYPE_I32, 1, &n, rows, index);
    if (st == NRL_OK) st = nrl_tensor_from_host(ctx, NRL_DTYPE_F32, 2, shape, here, mask);
    free(rows);
    free(here);
    if (st != NRL_OK || ctx->settings.compute == NRL_DTYPE_F32) return st;
    return nrl_op_cast(ctx, *mask, ctx->settings.compute, mask);
}

nrl_status nrl_op_embedding(nrl_ctx *ctx, nrl_param *table, nrl_tensor **y)
{
    NRL_TRY(check(ctx, table));
    NRL_TRY(check_range(table, ctx->batch->tokens, ctx->batch->n_tokens, "token id"));
    if (param_is_sharded(table)) {
        nrl_tensor *index, *mask, *rows;
        NRL_TRY(local_rows(ctx, table, &index, &mask));
        NRL_TRY(lookup(ctx, table, index, &rows));
        NRL_TRY(nrl_op_binary(ctx, NRL_BINARY_MUL, rows, mask, &rows));
        NRL_TRY(nrl_op_tp_region(ctx, NRL_TP_REGION_EMBED_OUT, rows, y));
    } else {
        NRL_TRY(lookup(ctx, table, ctx->index.tokens, y));
        NRL_TRY(nrl_op_tp_region(ctx, NRL_TP_REGION_WHOLE_OUT, *y, y));
    }
    return embedding_noise(ctx, *y);
}

nrl_status nrl_op_position_embedding(nrl_ctx *ctx, nrl_param *table, nrl_tensor **y)
{
    NRL_TRY(check(ctx, table));
    NRL_TRY(check_range(table, ctx->batch->positions, ctx->batch->n_tokens, "position"));
    NRL_TRY(lookup(ctx, table, ctx->index.positions, y));
    return nrl_op_tp_region(ctx, NRL_TP_REGION_WHOLE_OUT, *y, y);
}
