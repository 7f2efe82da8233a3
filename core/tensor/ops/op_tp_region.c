/*
 * op_tp_region.c - tp_regions on the tape. The input of a column-parallel product (COLUMN_IN) has a node, whose
 * backward calls the strategy. Outputs (ROW_OUT, EMBED_OUT) that are summed in place have no node, because the gradient
 * of an addend is the gradient of the sum. Where ranks have parts of the tokens, every region has a node, and what a
 * region gathered is not kept for the backward but gathered again.
 *
 * If the strategy allows it, the exchanges of a backward run in the background: what is gathered again arrives while
 * gradients of inputs are computed, and gradients are summed while those of the parameters are.
 */
#include "tensor/ops/tp_region.h"
#include "tensor/tape/tape.h"
#include <string.h>

typedef struct {
    nrl_tp_region tp_region;
    ctx_tp_regions strategy;
    bool moves; /* the result is another tensor */
} tp_region_attributes;

nrl_status tp_region_ask(nrl_ctx *ctx, nrl_tp_region tp_region, bool back, nrl_tensor *x, nrl_tensor **y)
{
    *y = x;
    const ctx_tp_regions *r = &ctx->settings.tp_regions;
    return r->answer ? r->answer(r->user, ctx, tp_region, back, x, y) : NRL_OK;
}

nrl_tensor *tp_region_own_rows(nrl_ctx *ctx, nrl_tensor *x)
{
    int64_t begin, end, dims[NRL_MAX_DIMS];
    if (!ctx->settings.tp_regions.tokens) return x;
    memcpy(dims, x->dims, sizeof dims);
    ctx->settings.tp_regions.tokens(ctx->settings.tp_regions.user, x->dims[0], &begin, &end);
    dims[0] = end - begin;
    return tensor_view(ctx, x, begin * (x->n_dims > 1 ? x->stride : 1), x->n_dims, dims,
                       x->n_dims > 1 ? x->stride : dims[0]);
}

static nrl_status start(nrl_ctx *ctx, const tp_region_attributes *at, bool back, nrl_tensor *x, nrl_tensor **y,
                        nrl_work **work)
{
    const ctx_tp_regions *s = &at->strategy;
    return s->begin ? s->begin(s->user, ctx, at->tp_region, back, x, y, work)
                    : s->answer(s->user, ctx, at->tp_region, back, x, y);
}

static nrl_status tp_region_backward(nrl_ctx *ctx, nrl_tape_node *node)
{
    const tp_region_attributes *at = nrl_tape_attributes(node);
    nrl_work *work = NULL;
    nrl_tensor *dy = nrl_tape_grad(node, 0), *mine = dy, *dx;
    if (!tape_grad_is_unshared(node, 0)) {
        NRL_TRY(tensor_like(ctx, dy, &mine));
        NRL_TRY(tensor_copy(ctx, dy, mine));
    }
    dx = mine;
    if (at->moves) NRL_TRY(tensor_like(ctx, nrl_tape_input(node, 0), &dx));
    NRL_TRY(start(ctx, at, true, mine, &dx, &work));
    nrl_status st = tape_run_collected(ctx, node);
    nrl_status end = work ? at->strategy.wait(&work, ctx) : NRL_OK; /* also after an error: it writes to dx */
    NRL_TRY(st == NRL_OK ? end : st);
    return nrl_tape_give(ctx, node, 0, dx);
}

static nrl_status same_again(nrl_ctx *ctx, nrl_tape_node *node, nrl_tensor *output)
{
    return tensor_copy(ctx, nrl_tape_saved(node, 0), output);
}

static nrl_status gather_again(nrl_ctx *ctx, nrl_tape_node *node, nrl_tensor *output)
{
    const tp_region_attributes *at = nrl_tape_attributes(node);
    return start(ctx, at, false, nrl_tape_saved(node, 0), &output, tape_work(node));
}

nrl_status nrl_op_tp_region(nrl_ctx *ctx, nrl_tp_region tp_region, nrl_tensor *x, nrl_tensor **y)
{
    bool is_whole = tp_region == NRL_TP_REGION_WHOLE_IN || tp_region == NRL_TP_REGION_WHOLE_OUT;
    bool goes_in = tp_region == NRL_TP_REGION_COLUMN_IN || tp_region == NRL_TP_REGION_HEAD_IN;
    nrl_tensor *out;
    if (tp_region <= NRL_TP_REGION_NONE || tp_region >= NRL_TP_REGION_COUNT)
        return nrl_fail(NRL_ERR_BUG, "unknown tp_region %d", (int)tp_region);
    *y = x;
    if (is_whole && !ctx->settings.tp_regions.tokens) return NRL_OK;
    if (tp_region == NRL_TP_REGION_SUM && !ctx->settings.tp_regions.tokens)
        tp_region = NRL_TP_REGION_ROW_OUT; /* every strategy has it */
    NRL_TRY(tp_region_ask(ctx, tp_region, false, x, &out));
    *y = out;
    if (!tp_region_is_answered(ctx) || (out == x && !goes_in) || !tape_records(ctx) || !x->has_grad) return NRL_OK;
    if (out == x) *y = tensor_view(ctx, x, 0, x->n_dims, x->dims, x->stride);
    /* If x is recomputable, so is y, a second header of x: the tape must not keep the contents for y. */
    tp_region_attributes at = {tp_region, ctx->settings.tp_regions, out != x};
    bool gathers = out != x && (goes_in || tp_region == NRL_TP_REGION_WHOLE_IN);
    if (tp_region != NRL_TP_REGION_COLUMN_IN) at.strategy.begin = NULL; /* no products of parameters follow */
    bool again = gathers || (out == x && x->maker);
    nrl_tape_record r = {.name = "tp_region",
                         .inputs = {x},
                         .outputs = {*y},
                         .saved = {again ? x : NULL},
                         .attributes = &at,
                         .attributes_size = sizeof at,
                         .backward = tp_region_backward};
    NRL_TRY(tape_push(ctx, &r, false));
    if (again) tape_can_remake(ctx, *y, gathers ? gather_again : same_again);
    if (at.strategy.begin) tape_collect(ctx, *y, at.strategy.wait);
    return NRL_OK;
}
