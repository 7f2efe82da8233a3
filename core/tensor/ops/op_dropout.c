/*
 * op_dropout.c - dropout. Masks are never stored: a mask is a function of the key that the caller has set for the unit
 * (ctx_set_random), the number of dropouts since then, and the position of the element. For a matrix with one row per
 * token the position is sample, position in the sample and column, so that packing, the order of samples and the
 * distribution over ranks do not change the mask.
 */
#include "base/mix.h"
#include "tensor/ops/tp_region.h"
#include "tensor/tape/tape.h"
#include <nrl/custom_op.h>
#include <math.h>
#include <stdlib.h>

typedef struct {
    double p;
    uint64_t key;
} dropout_attributes;

static nrl_status drop(nrl_ctx *ctx, const nrl_tensor *x, const dropout_attributes *at, const nrl_tensor *rows,
                       nrl_tensor *y)
{
    nrl_dropout_args a = {.size = sizeof a, .x = tensor_mat(x), .y = tensor_mat(y), .p = at->p, .key = at->key};
    if (rows) a.rows = rows->data;
    return x->numel ? backend_dropout(ctx, &a) : NRL_OK;
}

/* Recomputes the mask from the key; the derivative is the same product. */
static nrl_status dropout_backward(nrl_ctx *ctx, nrl_tape_node *node)
{
    nrl_tensor *dx;
    NRL_TRY(tensor_like(ctx, nrl_tape_input(node, 0), &dx));
    NRL_TRY(drop(ctx, nrl_tape_grad(node, 0), nrl_tape_attributes(node), nrl_tape_saved(node, 0), dx));
    return nrl_tape_give(ctx, node, 0, dx);
}

/* Consecutive counters give unrelated keys. */
static uint64_t mix(uint64_t z)
{
    return mix64(z + MIX_GOLDEN);
}

/* The sample of a shared prompt is the sample of the segments with that prefix. */
static int32_t sample_of(const nrl_batch *b, int64_t s)
{
    if (s < b->n_segments) return b->segment_sample[s];
    for (int64_t k = 0; k < b->n_segments; k++)
        if (b->prefix[k] == s) return b->segment_sample[k];
    return -1;
}

/* Makes one number per token at the first dropout of this kind in a batch. The number of an
 * element is the row's number * columns + column; for a share of columns, (row * count + index) * cols + column gives
 * the same number as the whole matrix. Only one axis shares columns, so one share per context is enough. */
static nrl_status number_rows(nrl_ctx *ctx, int64_t index, int64_t count, nrl_tensor **made)
{
    const nrl_batch *b = ctx->batch;
    nrl_tensor *t;
    if (*made) return NRL_OK;
    uint64_t *rows = mem_try((size_t)b->n_tokens * sizeof *rows, "the keys of dropout masks");
    if (!rows) return NRL_ERR_MEMORY;
    for (int64_t s = 0, i = 0; s < b->n_segments + b->n_prompts; s++) {
        uint64_t sample = mix((uint64_t)(uint32_t)sample_of(b, s));
        for (; i < b->n_tokens && batch_token_number(b, i) < b->cu_seqlens[s + 1]; i++)
            rows[i] = mix(sample ^ (uint64_t)(uint32_t)b->positions[i]) * (uint64_t)count + (uint64_t)index;
    }
    nrl_status st = tensor_of_host(ctx, NRL_DTYPE_I64, b->n_tokens, rows, false, &t);
    if (st == NRL_OK) *made = tensor_retain(t);
    free(rows);
    return st;
}

nrl_status embedding_noise(nrl_ctx *ctx, nrl_tensor *y)
{
    const nrl_batch *b = ctx->batch;
    nrl_tensor *noise;
    if (!(ctx->settings.noise > 0) || !ctx->random_key) return NRL_OK;
    const uint64_t key = mix(ctx->random_key ^ mix(ctx->n_random++));
    float *values = mem_try((size_t)(b->n_tokens * y->cols) * sizeof *values, "the noise of embeddings");
    if (!values) return NRL_ERR_MEMORY;
    for (int64_t s = 0, i = 0; s < b->n_segments + b->n_prompts; s++) {
        const int64_t length = b->cu_seqlens[s + 1] - b->cu_seqlens[s];
        const double most = ctx->settings.noise / sqrt((double)length * (double)y->cols);
        const uint64_t sample = mix((uint64_t)(uint32_t)sample_of(b, s));
        for (; i < b->n_tokens && batch_token_number(b, i) < b->cu_seqlens[s + 1]; i++) {
            const uint64_t token = key ^ mix(sample ^ (uint64_t)(uint32_t)b->positions[i]);
            for (int64_t c = 0; c < y->cols; c++) /* 53 random bits, in [-1, 1) */
                values[i * y->cols + c] = (float)(most * ((double)(mix(token + (uint64_t)c) >> 11) * 0x1p-52 - 1));
        }
    }
    nrl_status st = nrl_tensor_from_host(ctx, NRL_DTYPE_F32, 2, (int64_t[]){b->n_tokens, y->cols}, values, &noise);
    free(values);
    return st == NRL_OK ? nrl_tensor_add(ctx, tp_region_own_rows(ctx, noise), y) : st;
}

nrl_status nrl_ctx_random(nrl_ctx *ctx, uint64_t *key, const uint64_t **rows)
{
    uint64_t number = ctx->n_random++;
    *key = ctx->random_key ? mix(ctx->random_key ^ mix(number)) | 1 : 0;
    *rows = NULL;
    if (!ctx->batch) return NRL_OK;
    NRL_TRY(number_rows(ctx, 0, 1, &ctx->index.random_rows[0]));
    *rows = ctx->index.random_rows[0]->data;
    return NRL_OK;
}

nrl_status dropout_share(nrl_ctx *ctx, nrl_tensor *x, double p, int64_t index, int64_t count, nrl_tensor **y)
{
    if (!(p >= 0 && p < 1)) return nrl_fail(NRL_ERR_BUG, "dropout: p is %g, expected 0 <= p < 1", p);
    uint64_t number = ctx->n_random++;
    *y = x;
    if (p == 0 || !ctx->random_key) return NRL_OK;
    dropout_attributes at = {p, mix(ctx->random_key ^ mix(number))};
    nrl_tensor **made = &ctx->index.random_rows[count > 1], *rows = NULL;
    if (ctx->batch && ctx->batch->n_tokens) {
        NRL_TRY(number_rows(ctx, index, count, made));
        nrl_tensor *own = tp_region_own_rows(ctx, *made);
        rows = x->rows == ctx->batch->n_tokens ? *made : x->rows == own->numel ? own : NULL;
    }
    NRL_TRY(tensor_like(ctx, x, y));
    NRL_TRY(drop(ctx, x, &at, rows, *y));
    nrl_tape_record r = {.name = "dropout",
                         .inputs = {x},
                         .outputs = {*y},
                         .saved = {rows},
                         .attributes = &at,
                         .attributes_size = sizeof at,
                         .backward = dropout_backward};
    return tape_push(ctx, &r, false);
}

nrl_status nrl_op_dropout(nrl_ctx *ctx, nrl_tensor *x, double p, nrl_tensor **y)
{
    return dropout_share(ctx, x, p, 0, 1, y);
}
