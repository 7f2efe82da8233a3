/*
 * saved.c - what a tape saved leaves the device between the forward and the backward of a unit, block by block. While
 * a block is elsewhere, its tensors refer to an empty one.
 */
#include "tensor/device/profile.h"
#include "tensor/tape/node.h"
#include <stdlib.h>

enum { LEAST = 4096 /* bytes of a block that is worth a copy */ };

typedef struct {
    nrl_tensor *tensor;
    size_t offset; /* of its data in the block */
} saved_tensor;

typedef struct {
    pool_block *block; /* the one on the device; NULL while there is none */
    size_t at, bytes;  /* in the copy */
    int64_t first, n;  /* of tensors */
} saved_block;

struct tape_saved {
    nrl_offload_copy *copy;
    size_t bytes; /* of the copy; 0 = there is none */
    saved_tensor *tensors;
    saved_block *blocks;
    int64_t n_tensors, n_blocks;
    enum { LEAVING, AWAY, COMING } state;
};

static int by_block(const void *x, const void *y)
{
    const nrl_tensor *a = ((const saved_tensor *)x)->tensor, *b = ((const saved_tensor *)y)->tensor;
    if (a->block != b->block) return (uintptr_t)a->block < (uintptr_t)b->block ? -1 : 1;
    return a == b ? 0 : (uintptr_t)a < (uintptr_t)b ? -1 : 1;
}

/* Moves the block of all[*i] and its tensors to the front, if these are all that refer to it; *i goes on behind them.
 */
static void add_block(tape_saved *s, int64_t n, int64_t *i)
{
    saved_tensor *all = s->tensors;
    pool_block *block = all[*i].tensor->block;
    saved_block found = {.block = block, .bytes = pool_bytes(block), .first = s->n_tensors};
    bool mine = block->kind <= POOL_LARGE && found.bytes >= LEAST;
    while (*i < n && all[*i].tensor->block == block) {
        nrl_tensor *t = all[*i].tensor;
        int32_t uses = 0;
        for (; *i < n && all[*i].tensor == t; ++*i)
            uses++;
        mine = mine && uses == t->uses;
        all[found.first + found.n++] = (saved_tensor){t, (size_t)((char *)t->data - (char *)block->data)};
    }
    if (!mine || found.n != block->count) return;
    if (s->n_blocks) found.at = s->blocks[s->n_blocks - 1].at + s->blocks[s->n_blocks - 1].bytes;
    s->blocks[s->n_blocks++] = found;
    s->n_tensors += found.n;
}

nrl_status tape_saved_leave(nrl_ctx *ctx, tape *t, nrl_tensor *const *inputs, int n_inputs, tape_saved **saved)
{
    const nrl_offload *table = ctx->offload[CTX_OFFLOAD_ACTIVATIONS].table;
    int64_t n = 0, room = n_inputs;
    *saved = NULL;
    if (!table) return NRL_OK;
    for (const nrl_tape_node *node = t->newest; node; node = node->older)
        room += NRL_TAPE_MAX_OPERANDS;
    tape_saved *s = mem_alloc(sizeof *s);
    s->tensors = mem_alloc((size_t)(room + 1) * sizeof *s->tensors);
    for (const nrl_tape_node *node = t->newest; node; node = node->older)
        for (int i = 0; i < NRL_TAPE_MAX_OPERANDS; i++)
            if (node->saved[i] && !(node->recomputable >> i & 1)) s->tensors[n++].tensor = node->saved[i];
    for (int i = 0; i < n_inputs; i++)
        s->tensors[n++].tensor = inputs[i];
    qsort(s->tensors, (size_t)n, sizeof *s->tensors, by_block);
    s->blocks = mem_alloc((size_t)(n + 1) * sizeof *s->blocks);
    for (int64_t i = 0; i < n;)
        add_block(s, n, &i);
    *saved = s;
    nrl_status st = NRL_OK;
    if (s->n_blocks) {
        const saved_block *last = &s->blocks[s->n_blocks - 1];
        const size_t bytes = last->at + last->bytes;
        st = table->copy_create(table->self, ctx->offload[CTX_OFFLOAD_ACTIVATIONS].folder, bytes, &s->copy);
        if (st == NRL_OK) ctx->away_bytes += s->bytes = bytes;
        if (ctx->away_bytes > ctx->away_peak_bytes) ctx->away_peak_bytes = ctx->away_bytes;
    }
    for (int64_t i = 0; i < s->n_blocks && st == NRL_OK; i++) {
        const saved_block *b = &s->blocks[i];
        st = table->copy_out(table->self, ctx->stream, s->copy, b->at, b->block->data, b->bytes);
    }
    if (st != NRL_OK || !s->n_blocks) tape_saved_drop(ctx, saved);
    return st;
}

/* The tensors of b refer to `block` from here on. */
static void refer(nrl_ctx *ctx, tape_saved *s, const saved_block *b, pool_block *block)
{
    for (int64_t k = b->first; k < b->first + b->n; k++) {
        nrl_tensor *t = s->tensors[k].tensor;
        if (ctx->profiler && t->block->count == 1) ctx->profiler->memory(ctx, t->block, false);
        pool_release(&ctx->pool, t->block);
        block->count++;
        t->block = block;
        t->data = block->data ? (char *)block->data + s->tensors[k].offset : NULL;
    }
    block->count--; /* that of who made it */
}

nrl_status tape_saved_free(nrl_ctx *ctx, tape_saved *s)
{
    if (!s || s->state != LEAVING) return NRL_OK;
    const nrl_offload *table = ctx->offload[CTX_OFFLOAD_ACTIVATIONS].table;
    NRL_TRY(table->copy_wait(table->self, ctx->stream, s->copy));
    for (int64_t i = 0; i < s->n_blocks; i++) {
        refer(ctx, s, &s->blocks[i], pool_borrow(&ctx->pool, NULL, 0));
        s->blocks[i].block = NULL;
    }
    s->state = AWAY;
    return NRL_OK;
}

nrl_status tape_saved_return(nrl_ctx *ctx, tape_saved **saved, bool wait)
{
    const nrl_offload *table = ctx->offload[CTX_OFFLOAD_ACTIVATIONS].table;
    tape_saved *s = *saved;
    if (!s || (s->state != AWAY && !wait)) return NRL_OK;
    for (int64_t i = 0; s->state == AWAY && i < s->n_blocks; i++) {
        saved_block *b = &s->blocks[i];
        if (b->block) continue;
        nrl_status st = pool_take(&ctx->pool, b->bytes, &b->block);
        if (st == NRL_OK && ctx->profiler) ctx->profiler->memory(ctx, b->block, true);
        if (st != NRL_OK && !wait) return NRL_OK; /* what there is memory for waits for the rest */
        NRL_TRY(st);
    }
    for (int64_t i = 0; s->state == AWAY && i < s->n_blocks; i++) {
        const saved_block *b = &s->blocks[i];
        NRL_TRY(table->copy_back(table->self, ctx->stream, s->copy, b->at, b->block->data, b->bytes));
    }
    if (s->state == AWAY) s->state = COMING;
    if (!wait) return NRL_OK;
    NRL_TRY(table->copy_wait(table->self, ctx->stream, s->copy));
    for (int64_t i = 0; s->state == COMING && i < s->n_blocks; i++) {
        refer(ctx, s, &s->blocks[i], s->blocks[i].block);
        s->blocks[i].block = NULL;
    }
    tape_saved_drop(ctx, saved);
    return NRL_OK;
}

void tape_saved_drop(nrl_ctx *ctx, tape_saved **saved)
{
    const nrl_offload *table = ctx->offload[CTX_OFFLOAD_ACTIVATIONS].table;
    tape_saved *s = *saved;
    *saved = NULL;
    if (!s) return;
    if (s->bytes) {
        ctx->away_bytes -= s->bytes;
        (void)table->copy_wait(table->self, ctx->stream, s->copy); /* memory that is copied must not be used again */
        table->copy_free(table->self, s->copy);
    }
    for (int64_t i = 0; s->state != LEAVING && i < s->n_blocks; i++) { /* else they are the tensors' */
        if (!s->blocks[i].block) continue;
        if (ctx->profiler) ctx->profiler->memory(ctx, s->blocks[i].block, false);
        pool_release(&ctx->pool, s->blocks[i].block);
    }
    free(s->blocks);
    free(s->tensors);
    free(s);
}
