/*
 * op_loss_term.c - a term that a model adds to the loss. The identity of x carries the term's gradient: its backward
 * passes the gradient of x on and gives the value its share, so that the walk needs to know nothing of terms. Where
 * ranks divide the tokens, each computes the value of all of them, differentiates it by its own, and counts its share.
 */
#include "tensor/tape/tape.h"
#include <nrl/model.h>

typedef struct {
    const nrl_loss_term *term;
    double n_tokens; /* of the whole micro-batch; 0: another rank counts it */
} term_attributes;

static nrl_status term_backward(nrl_ctx *ctx, nrl_tape_node *node)
{
    const term_attributes *at = nrl_tape_attributes(node);
    nrl_tensor *seed;
    NRL_TRY(nrl_tape_give(ctx, node, 0, nrl_tape_grad(node, 0)));
    if (!nrl_tape_wants(node, 1)) return NRL_OK;
    NRL_TRY(tensor_like(ctx, nrl_tape_input(node, 1), &seed));
    NRL_TRY(tensor_fill(ctx, seed, at->term->scale * at->n_tokens));
    return nrl_tape_give(ctx, node, 1, seed);
}

/* term->total += value * n, on the device and off the tape. */
static nrl_status add_value(nrl_ctx *ctx, nrl_loss_term *term, nrl_tensor *value, double n)
{
    nrl_tensor *next;
    ctx_tape_begin(ctx, NULL);
    nrl_status st = nrl_op_unary(ctx, NRL_UNARY_AFFINE, value, n / term->n_values, 0, &next);
    if (st == NRL_OK && term->total) st = nrl_op_binary(ctx, NRL_BINARY_ADD, term->total, next, &next);
    ctx_tape_end(ctx);
    NRL_TRY(st);
    tensor_release(ctx, term->total);
    term->total = tensor_retain(next);
    return NRL_OK;
}

nrl_status nrl_op_loss_term(nrl_ctx *ctx, nrl_loss_term *term, nrl_tensor *value, nrl_tensor *x, nrl_tensor **y)
{
    if (value->numel != 1 || value->dtype != NRL_DTYPE_F32)
        return nrl_fail(NRL_ERR_PLUGIN, "loss term '%s': the value is %s of %s, expected one f32 number", term->name,
                        tensor_shape(value).text, nrl_dtype_name(value->dtype));
    const nrl_batch *b = ctx->batch;
    term_attributes at = {term, b && !b->is_copy ? nrl_batch_count(b, "tokens") : 0};
    if (term->counts && at.n_tokens > 0) NRL_TRY(add_value(ctx, term, value, at.n_tokens * nrl_ctx_token_share(ctx)));
    *y = tensor_view(ctx, x, 0, x->n_dims, x->dims, x->stride);
    nrl_tape_record r = {.name = "loss_term",
                         .inputs = {x, value},
                         .outputs = {*y},
                         .attributes = &at,
                         .attributes_size = sizeof at,
                         .backward = term_backward};
    return tape_push(ctx, &r, false);
}

/* ---- values of tokens that ranks divide ---- */

double nrl_ctx_token_share(const nrl_ctx *ctx)
{
    const nrl_batch *b = ctx->batch;
    return b && b->whole ? (double)b->n_tokens / (double)b->whole->n_tokens : 1;
}

static nrl_status token_sum_backward(nrl_ctx *ctx, nrl_tape_node *node)
{
    return nrl_tape_give(ctx, node, 0, nrl_tape_grad(node, 0));
}

nrl_status nrl_op_token_sum(nrl_ctx *ctx, nrl_tensor *x, nrl_tensor **y)
{
    *y = x;
    if (nrl_ctx_token_share(ctx) == 1) return NRL_OK;
    ctx_tape_begin(ctx, NULL);
    nrl_status st = nrl_op_unary(ctx, NRL_UNARY_AFFINE, x, 1, 0, y);
    if (st == NRL_OK) st = ctx->settings.divided.sum(ctx->settings.divided.user, ctx, *y);
    ctx_tape_end(ctx);
    NRL_TRY(st);
    nrl_tape_record r = {.name = "token_sum", .inputs = {x}, .outputs = {*y}, .backward = token_sum_backward};
    return tape_push(ctx, &r, false);
}
