/*
 * op_dropout.c - random zeros. Masks are never stored: they are a function of the key that the
 * caller set for the unit (ctx_set_random), the number of the dropout since then, and the element's
 * place.
 */
#include "tensor/tape.h"

typedef struct {
    double p;
    uint64_t key;
} dropout_attributes;

static nrl_status drop(nrl_ctx *ctx, const nrl_tensor *x, const dropout_attributes *at,
                       nrl_tensor *y)
{
    nrl_dropout_args a = {
        .size = sizeof a, .x = tensor_mat(x), .y = tensor_mat(y), .p = at->p, .key = at->key};
    return x->numel ? backend_dropout(ctx, &a) : NRL_OK;
}

/* The mask comes from the key again; the derivative is the same product. */
static nrl_status dropout_backward(nrl_ctx *ctx, nrl_tape_node *node)
{
    nrl_tensor *dx;
    NRL_TRY(tensor_like(ctx, nrl_tape_input(node, 0), &dx));
    NRL_TRY(drop(ctx, nrl_tape_grad(node, 0), nrl_tape_attributes(node), dx));
    return nrl_tape_give(ctx, node, 0, dx);
}

/* splitmix64: neighbouring counters give unrelated keys. */
static uint64_t mix(uint64_t z)
{
    z += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

nrl_status nrl_op_dropout(nrl_ctx *ctx, nrl_tensor *x, double p, nrl_tensor **y)
{
    if (!(p >= 0 && p < 1))
        return nrl_fail(NRL_ERR_BUG, "dropout: p is %g, expected 0 <= p < 1", p);
    uint64_t number = ctx->n_random++;
    *y = x;
    if (p == 0 || !ctx->random_key) return NRL_OK;
    dropout_attributes at = {p, mix(ctx->random_key ^ mix(number))};
    NRL_TRY(tensor_like(ctx, x, y));
    NRL_TRY(drop(ctx, x, &at, *y));
    nrl_tape_record r = {.name = "dropout",
                         .inputs = {x},
                         .outputs = {*y},
                         .attributes = &at,
                         .attributes_size = sizeof at,
                         .backward = dropout_backward};
    return tape_push(ctx, &r, false);
}
