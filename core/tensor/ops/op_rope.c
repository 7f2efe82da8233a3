/*
 * op_rope.c - rotary position embedding. Saves only the table: the backward is the inverse rotation.
 */
#include "tensor/ops/rope.h"
#include "tensor/tape/tape.h"

typedef struct {
    int64_t n_heads, half;
} rope_attributes;

static nrl_status rotate(nrl_ctx *ctx, const nrl_tensor *x, const nrl_tensor *cos, const nrl_tensor *sin,
                         const rope_attributes *at, bool inverse, nrl_tensor *y)
{
    nrl_rope_args a = {.size = sizeof a,
                       .inverse = inverse,
                       .x = tensor_mat(x),
                       .y = tensor_mat(y),
                       .cos = cos->data,
                       .sin = sin->data,
                       .n_heads = at->n_heads,
                       .half = at->half};
    return backend_rope(ctx, &a);
}

static nrl_status rope_backward(nrl_ctx *ctx, nrl_tape_node *node)
{
    nrl_tensor *dy = nrl_tape_grad(node, 0), *dx = dy; /* in place if no other code reads dy */
    if (tape_grad_is_joint(node, 0) || !tape_grad_is_unshared(node, 0)) NRL_TRY(tape_grad_room(ctx, node, 0, &dx));
    NRL_TRY(rotate(ctx, dy, nrl_tape_saved(node, 0), nrl_tape_saved(node, 1), nrl_tape_attributes(node), true, dx));
    return nrl_tape_give(ctx, node, 0, dx);
}

nrl_status nrl_op_rope(nrl_ctx *ctx, nrl_tensor *x, int64_t n_heads, const nrl_rope *rope, nrl_tensor **y)
{
    if (!ctx->batch || x->rows != ctx->batch->n_tokens)
        return nrl_fail(NRL_ERR_BUG, "rope: x is %s, the batch has %lld tokens", tensor_shape(x).text,
                        (long long)(ctx->batch ? ctx->batch->n_tokens : 0));
    if (n_heads < 1 || x->cols % n_heads || rope->half < 1 || 2 * rope->half > x->cols / n_heads)
        return nrl_fail(NRL_ERR_BUG, "rope: x is %s with %lld heads, expected at least %lld pairs per head",
                        tensor_shape(x).text, (long long)n_heads, (long long)rope->half);
    nrl_tensor *cos, *sin;
    NRL_TRY(rope_rows(ctx, rope, &cos, &sin));
    NRL_TRY(tensor_like(ctx, x, y));
    rope_attributes at = {n_heads, rope->half};
    NRL_TRY(rotate(ctx, x, cos, sin, &at, false, *y));
    nrl_tape_record r = {.name = "rope",
                         .inputs = {x},
                         .outputs = {*y},
                         .saved = {cos, sin},
                         .attributes = &at,
                         .attributes_size = sizeof at,
                         .backward = rope_backward};
    return tape_push(ctx, &r, false);
}
