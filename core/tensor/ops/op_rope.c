/*
 * op_rope.c - rotary position embedding. Saves only the table: the backward is the inverse rotation.
 */
#include "tensor/ops/rope.h"
#include "tensor/tape/tape.h"

nrl_status rope_rotate(nrl_ctx *ctx, nrl_mat x, int64_t n_heads, const nrl_tensor *rows, bool inverse, nrl_mat y)
{
    const nrl_rope_args a = {.size = sizeof a,
                             .inverse = inverse,
                             .x = x,
                             .y = y,
                             .cos = rope_part(rows, 0).data,
                             .sin = rope_part(rows, 1).data,
                             .n_heads = n_heads,
                             .half = rows->cols};
    return backend_rope(ctx, &a);
}

static nrl_status rope_backward(nrl_ctx *ctx, nrl_tape_node *node)
{
    const int64_t *n_heads = nrl_tape_attributes(node);
    nrl_tensor *dy = nrl_tape_grad(node, 0), *dx = dy; /* in place if no other code reads dy */
    if (tape_grad_is_joint(node, 0) || !tape_grad_is_unshared(node, 0)) NRL_TRY(tape_grad_room(ctx, node, 0, &dx));
    NRL_TRY(rope_rotate(ctx, tensor_mat(dy), *n_heads, nrl_tape_saved(node, 0), true, tensor_mat(dx)));
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
    nrl_tensor *rows;
    NRL_TRY(rope_rows(ctx, rope, &rows));
    NRL_TRY(tensor_like(ctx, x, y));
    NRL_TRY(rope_rotate(ctx, tensor_mat(x), n_heads, rows, false, tensor_mat(*y)));
    nrl_tape_record r = {.name = "rope",
                         .inputs = {x},
                         .outputs = {*y},
                         .saved = {rows},
                         .attributes = &n_heads,
                         .attributes_size = sizeof n_heads,
                         .backward = rope_backward};
    return tape_push(ctx, &r, false);
}
