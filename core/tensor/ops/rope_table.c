/*
 * rope_table.c - cos and sin of every position so far, computed in double and rounded once to f32.
 *
 * Positions repeat in every batch, so a table by position is computed once and grows by doubling; for a batch, the rows
 * of its positions are copied, or gathered on the device. Each set of frequencies has its own table.
 */
#include "tensor/ops/rope.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct rope_table {
    rope_table *next;
    double *inv_freq; /* [half], a copy */
    int64_t half, n_positions;
    double scale;
    float *cos, *sin;              /* host [n_positions, half] */
    nrl_tensor *own_cos, *own_sin; /* copies on a device that does not read host memory; NULL = not yet */
    nrl_tensor *batch_rows;        /* [2, N, half] for the current batch, refcounted; NULL = not yet */
};

/* NULL: out of memory. */
static rope_table *find_table(nrl_ctx *ctx, const nrl_rope *rope)
{
    size_t bytes = (size_t)rope->half * sizeof *rope->inv_freq;
    for (rope_table *t = ctx->ropes; t; t = t->next)
        if (t->half == rope->half && t->scale == rope->scale && !memcmp(t->inv_freq, rope->inv_freq, bytes)) return t;
    rope_table *t = mem_alloc(sizeof *t);
    *t = (rope_table){.next = ctx->ropes, .half = rope->half, .scale = rope->scale};
    t->inv_freq = mem_try(bytes, "the frequencies of rotary positions");
    if (!t->inv_freq) {
        free(t);
        return NULL;
    }
    memcpy(t->inv_freq, rope->inv_freq, bytes);
    ctx->ropes = t;
    return t;
}

static void forget_own(nrl_ctx *ctx, rope_table *t)
{
    tensor_release(ctx, t->own_cos);
    tensor_release(ctx, t->own_sin);
    t->own_cos = t->own_sin = NULL;
}

static nrl_status grow(nrl_ctx *ctx, rope_table *t, int64_t n)
{
    if (n <= t->n_positions) return NRL_OK;
    if (n < 2 * t->n_positions) n = 2 * t->n_positions;
    float *grown = mem_try_grow(t->cos, (size_t)(n * t->half) * sizeof *t->cos, "rotary positions");
    if (!grown) return NRL_ERR_MEMORY;
    t->cos = grown;
    grown = mem_try_grow(t->sin, (size_t)(n * t->half) * sizeof *t->sin, "rotary positions");
    if (!grown) return NRL_ERR_MEMORY;
    t->sin = grown;
    forget_own(ctx, t);
    for (int64_t p = t->n_positions; p < n; p++) {
        for (int64_t i = 0; i < t->half; i++) {
            double angle = (double)p * t->inv_freq[i];
            t->cos[p * t->half + i] = (float)(t->scale * cos(angle));
            t->sin[p * t->half + i] = (float)(t->scale * sin(angle));
        }
    }
    t->n_positions = n;
    return NRL_OK;
}

static void copy_rows(const nrl_batch *b, const float *table, int64_t half, float *rows)
{
    for (int64_t i = 0; i < b->n_tokens; i++)
        memcpy(rows + i * half, table + (int64_t)b->positions[i] * half, (size_t)half * sizeof(float));
}

/* Gathers on the device from its copy of the table: copying positions is much less than copying the batch's rows. */
static nrl_status gather_rows(nrl_ctx *ctx, const rope_table *t, const float *table, nrl_tensor **own, nrl_mat rows)
{
    const int64_t dims[] = {t->n_positions, t->half};
    if (!*own) {
        NRL_TRY(tensor_persistent(ctx, NRL_DTYPE_F32, 2, dims, false, own));
        NRL_TRY(tensor_write(ctx, *own, table));
    }
    nrl_gather_args a = {
        .size = sizeof a, .x = tensor_mat(*own), .y = rows, .index = tensor_index(ctx->index.positions)};
    return backend_gather(ctx, &a);
}

/* The rows of both tables for the batch's positions, as a tensor owned by the context. */
static nrl_status gather(nrl_ctx *ctx, rope_table *t)
{
    const nrl_batch *b = ctx->batch;
    const int64_t dims[] = {2, b->n_tokens, t->half};
    nrl_tensor *rows;
    NRL_TRY(nrl_tensor_new(ctx, NRL_DTYPE_F32, 3, dims, &rows));
    if (ctx->device->info.host_memory) {
        copy_rows(b, t->cos, t->half, rows->data);
        copy_rows(b, t->sin, t->half, (float *)rows->data + b->n_tokens * t->half);
    } else if (b->n_tokens) {
        NRL_TRY(gather_rows(ctx, t, t->cos, &t->own_cos, rope_part(rows, 0)));
        NRL_TRY(gather_rows(ctx, t, t->sin, &t->own_sin, rope_part(rows, 1)));
    }
    t->batch_rows = tensor_retain(rows);
    return NRL_OK;
}

nrl_status rope_rows(nrl_ctx *ctx, const nrl_rope *rope, nrl_tensor **rows)
{
    const nrl_batch *b = ctx->batch;
    rope_table *t = find_table(ctx, rope);
    if (!t) return NRL_ERR_MEMORY;
    if (!t->batch_rows) {
        int64_t last = 0;
        for (int64_t i = 0; i < b->n_tokens; i++)
            if (b->positions[i] > last) last = b->positions[i];
        NRL_TRY(grow(ctx, t, last + 1));
        ctx_scope_begin(ctx);
        nrl_status st = gather(ctx, t);
        ctx_scope_end(ctx);
        NRL_TRY(st);
    }
    *rows = t->batch_rows;
    return NRL_OK;
}

void rope_new_batch(nrl_ctx *ctx)
{
    for (rope_table *t = ctx->ropes; t; t = t->next) {
        tensor_release(ctx, t->batch_rows);
        t->batch_rows = NULL;
    }
}

void rope_forget(nrl_ctx *ctx)
{
    rope_new_batch(ctx);
    while (ctx->ropes) {
        rope_table *t = ctx->ropes;
        ctx->ropes = t->next;
        forget_own(ctx, t);
        free(t->inv_freq);
        free(t->cos);
        free(t->sin);
        free(t);
    }
}
