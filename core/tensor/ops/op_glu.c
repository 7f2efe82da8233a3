/*
 * op_glu.c - gated activations: y = act(gate) * up. Saves gate and up, from which y can be recomputed.
 */
#include "tensor/tape/tape.h"

typedef struct {
    uint32_t act;
} glu_attributes;

static nrl_status activate(nrl_ctx *ctx, uint32_t act, const nrl_tensor *gate, const nrl_tensor *up,
                           const nrl_tensor *y)
{
    nrl_glu_args a = {.size = sizeof a, .act = act, .gate = tensor_mat(gate), .up = tensor_mat(up), .y = tensor_mat(y)};
    return backend_glu(ctx, &a);
}

static nrl_status glu_remake(nrl_ctx *ctx, nrl_tape_node *node, nrl_tensor *y)
{
    const glu_attributes *at = nrl_tape_attributes(node);
    return activate(ctx, at->act, nrl_tape_saved(node, 0), nrl_tape_saved(node, 1), y);
}

static nrl_status glu_backward(nrl_ctx *ctx, nrl_tape_node *node)
{
    const glu_attributes *at = nrl_tape_attributes(node);
    nrl_tensor *gate = nrl_tape_saved(node, 0), *up = nrl_tape_saved(node, 1), *dgate, *dup;
    NRL_TRY(tape_grad_room(ctx, node, 0, &dgate));
    NRL_TRY(tape_grad_room(ctx, node, 1, &dup));
    nrl_glu_grad_args a = {.size = sizeof a,
                           .act = at->act,
                           .gate = tensor_mat(gate),
                           .up = tensor_mat(up),
                           .dy = tensor_mat(nrl_tape_grad(node, 0)),
                           .dgate = tensor_mat(dgate),
                           .dup = tensor_mat(dup)};
    NRL_TRY(backend_glu_grad(ctx, &a));
    NRL_TRY(nrl_tape_give(ctx, node, 0, dgate));
    return nrl_tape_give(ctx, node, 1, dup);
}

static nrl_status glu(nrl_ctx *ctx, const char *name, nrl_unary act, nrl_tensor *gate, nrl_tensor *up, nrl_tensor **y)
{
    if (!tensor_same_matrix(gate, up) || gate->dtype != up->dtype)
        return nrl_fail(NRL_ERR_BUG, "%s: gate is %s of %s, up is %s of %s", name, tensor_shape(gate).text,
                        nrl_dtype_name(gate->dtype), tensor_shape(up).text, nrl_dtype_name(up->dtype));
    NRL_TRY(tensor_like(ctx, gate, y));
    glu_attributes at = {(uint32_t)act};
    NRL_TRY(activate(ctx, at.act, gate, up, *y));
    nrl_tape_record r = {.name = name,
                         .inputs = {gate, up},
                         .outputs = {*y},
                         .saved = {gate, up},
                         .attributes = &at,
                         .attributes_size = sizeof at,
                         .backward = glu_backward};
    NRL_TRY(tape_push(ctx, &r, false));
    if (!ctx->settings.keeps_cheap) tape_can_remake(ctx, *y, glu_remake);
    return NRL_OK;
}

nrl_status nrl_op_swiglu(nrl_ctx *ctx, nrl_tensor *gate, nrl_tensor *up, nrl_tensor **y)
{
    return glu(ctx, "swiglu", NRL_UNARY_SILU, gate, up, y);
}

nrl_status nrl_op_geglu(nrl_ctx *ctx, nrl_tensor *gate, nrl_tensor *up, nrl_tensor **y)
{
    return glu(ctx, "geglu", NRL_UNARY_GELU_TANH, gate, up, y);
}
