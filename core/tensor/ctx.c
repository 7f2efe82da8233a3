/*
 * ctx.c - the context: scopes, the current batch, the current tape, memory stats.
 */
#include "tensor/internal.h"
#include "tensor/ops/rope.h"
#include "tensor/tape/tape.h"
#include <stdlib.h>

nrl_status ctx_create(device *d, nrl_ctx **out)
{
    nrl_ctx *ctx = mem_alloc(sizeof *ctx);
    ctx->device = d;
    ctx->settings.compute = NRL_DTYPE_F32;
    pool_init(&ctx->pool, d);
    nrl_status st = d->table.stream_create ? d->table.stream_create(d->self, &ctx->stream) : NRL_OK;
    if (st)
        free(ctx);
    else
        *out = ctx;
    return st;
}

/* Releases the newest tensors of the scopes until n are left. */
static void release_made(nrl_ctx *ctx, size_t n)
{
    while (ctx->n_made > n)
        tensor_release(ctx, ctx->made[--ctx->n_made]);
}

void ctx_destroy(nrl_ctx *ctx)
{
    if (!ctx) return;
    const ctx_metric *metrics;
    int64_t n;
    (void)ctx_set_batch(ctx, NULL);
    if (ctx_take_metrics(ctx, &metrics, &n)) nrl_warn("%s", nrl_error_text());
    read_ahead_free(ctx);
    release_made(ctx, 0);
    tensor_release(ctx, ctx->fp8_scale);
    tensor_release(ctx, ctx->fp8_amax);
    rope_forget(ctx);
    for (ctx_code *c = ctx->codes; c; c = c->next)
        tensor_release(ctx, c->tensor);
    pool_destroy(&ctx->pool);
    ctx_set_profiler(ctx, NULL, NULL);
    if (ctx->stream) ctx->device->table.stream_destroy(ctx->device->self, ctx->stream);
    arena_free(&ctx->memory);
    free(ctx->metrics);
    free(ctx->taken);
    free(ctx->made);
    free(ctx->marks);
    free(ctx);
}

nrl_stream *nrl_ctx_stream(const nrl_ctx *ctx)
{
    return ctx->stream;
}

void ctx_before_read(nrl_ctx *ctx, nrl_status (*before)(void *user), void *user)
{
    ctx->before_read = before;
    ctx->before_read_user = user;
}

ctx_settings *ctx_settings_of(nrl_ctx *ctx)
{
    return &ctx->settings;
}

bool ctx_computes(const nrl_ctx *ctx)
{
    return !ctx->device->is_shapes;
}

void ctx_set_fp8(nrl_ctx *ctx, bool blocks, nrl_tensor *scale, nrl_tensor *amax)
{
    ctx->fp8 = true;
    ctx->fp8_blocks = blocks;
    ctx->fp8_scale = scale;
    ctx->fp8_amax = amax;
}

void ctx_set_random(nrl_ctx *ctx, uint64_t key)
{
    ctx->random_key = key;
    ctx->n_random = 0;
}

/* ---- scopes ---- */

void ctx_own(nrl_ctx *ctx, nrl_tensor *t)
{
    if (ctx->n_made == ctx->made_capacity) {
        ctx->made_capacity = ctx->made_capacity ? 2 * ctx->made_capacity : 256;
        ctx->made = mem_realloc(ctx->made, ctx->made_capacity * sizeof *ctx->made);
    }
    ctx->made[ctx->n_made++] = t;
}

void ctx_scope_begin(nrl_ctx *ctx)
{
    if (ctx->n_marks == ctx->marks_capacity) {
        ctx->marks_capacity = ctx->marks_capacity ? 2 * ctx->marks_capacity : 16;
        ctx->marks = mem_realloc(ctx->marks, ctx->marks_capacity * sizeof *ctx->marks);
    }
    ctx->marks[ctx->n_marks++] = ctx->n_made;
}

void ctx_scope_end(nrl_ctx *ctx)
{
    NRL_ASSERT(ctx->n_marks, >, 0);
    release_made(ctx, ctx->marks[--ctx->n_marks]);
}

/* ---- the current batch ---- */

static nrl_status index_array(nrl_ctx *ctx, int64_t n, const int32_t *host, nrl_tensor **out)
{
    if (!host) return NRL_OK;
    nrl_tensor *t;
    NRL_TRY(tensor_of_host(ctx, NRL_DTYPE_I32, n, host, true, &t));
    *out = tensor_retain(t);
    return NRL_OK;
}

static nrl_status copy_index(nrl_ctx *ctx, const nrl_batch *b)
{
    ctx_index *i = &ctx->index;
    int64_t n_all = b->n_segments + b->n_prompts;
    NRL_TRY(index_array(ctx, b->n_tokens, b->tokens, &i->tokens));
    NRL_TRY(index_array(ctx, b->n_tokens, b->positions, &i->positions));
    NRL_TRY(index_array(ctx, n_all + 1, b->cu_seqlens, &i->cu_seqlens));
    NRL_TRY(index_array(ctx, n_all, b->prefix, &i->prefix));
    NRL_TRY(index_array(ctx, b->n_rows, b->row_token, &i->row_token));
    return index_array(ctx, b->n_rows, b->row_target, &i->row_target);
}

nrl_status ctx_set_batch(nrl_ctx *ctx, nrl_batch *batch)
{
    ctx_index *i = &ctx->index;
    nrl_tensor *all[] = {i->tokens,     i->positions,      i->cu_seqlens,     i->prefix, i->row_token,
                         i->row_target, i->random_rows[0], i->random_rows[1], i->packing};
    for (size_t k = 0; k < sizeof all / sizeof *all; k++)
        tensor_release(ctx, all[k]);
    *i = (ctx_index){0};
    rope_new_batch(ctx);
    ctx->batch = batch;
    if (!batch) return NRL_OK;
    pool_period(&ctx->pool);
    ctx_scope_begin(ctx);
    nrl_status st = copy_index(ctx, batch);
    ctx_scope_end(ctx);
    return st;
}

nrl_batch *ctx_batch(nrl_ctx *ctx)
{
    return ctx->batch;
}

/* ---- which tape records ---- */

void ctx_tape_begin(nrl_ctx *ctx, tape *t)
{
    NRL_ASSERT(ctx->n_tapes, <, CTX_MAX_TAPES);
    ctx->tapes[ctx->n_tapes++] = t;
}

void ctx_tape_end(nrl_ctx *ctx)
{
    NRL_ASSERT(ctx->n_tapes, >, 0);
    ctx->n_tapes--;
}

/* ---- stats ---- */

void ctx_memory_use(const nrl_ctx *ctx, ctx_memory *fill)
{
    const pool *p = &ctx->pool;
    *fill = (ctx_memory){p->live_bytes, p->peak_bytes, ctx->away_peak_bytes, p->held_bytes, p->held_peak_bytes};
}

void ctx_memory_reset_peak(nrl_ctx *ctx)
{
    pool_reset_peak(&ctx->pool);
}

void ctx_trim(nrl_ctx *ctx)
{
    pool_trim(&ctx->pool);
}
