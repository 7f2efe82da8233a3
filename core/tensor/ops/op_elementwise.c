/*
 * op_elementwise.c - elementwise operations: unary, binary with broadcast, where, cast, detach.
 */
#include "tensor/tape/tape.h"

/* ---- unary ---- */

typedef struct {
    uint32_t op;
    double alpha, beta;
} unary_attributes;

typedef enum { SAVES_NOTHING, SAVES_X, SAVES_Y } unary_saves;

/* What the derivative is computed from: constants, the result, or the operand. */
static unary_saves saves(nrl_unary op)
{
    switch (op) {
    case NRL_UNARY_NEG:
    case NRL_UNARY_AFFINE:
        return SAVES_NOTHING;
    case NRL_UNARY_EXP:
    case NRL_UNARY_SQRT:
    case NRL_UNARY_RECIPROCAL:
    case NRL_UNARY_SIGMOID:
    case NRL_UNARY_TANH:
        return SAVES_Y;
    default:
        return SAVES_X;
    }
}

/* dx = f'(x) dy */
static nrl_status unary_backward(nrl_ctx *ctx, nrl_tape_node *node)
{
    const unary_attributes *at = nrl_tape_attributes(node);
    nrl_tensor *dy = nrl_tape_grad(node, 0), *x = nrl_tape_saved(node, 0), *y = nrl_tape_saved(node, 1), *dx;
    NRL_TRY(tensor_like(ctx, dy, &dx));
    if (!x && !y) {
        double slope = at->op == NRL_UNARY_NEG ? -1 : at->alpha;
        nrl_copy_args c = {.size = sizeof c, .x = tensor_mat(dy), .y = tensor_mat(dx), .alpha = slope};
        NRL_TRY(backend_copy(ctx, &c));
    } else {
        nrl_unary_grad_args a = {.size = sizeof a,
                                 .op = at->op,
                                 .x = x ? tensor_mat(x) : (nrl_mat){0},
                                 .y = y ? tensor_mat(y) : (nrl_mat){0},
                                 .dy = tensor_mat(dy),
                                 .dx = tensor_mat(dx),
                                 .alpha = at->alpha,
                                 .beta = at->beta};
        NRL_TRY(backend_unary_grad(ctx, &a));
    }
    return nrl_tape_give(ctx, node, 0, dx);
}

nrl_status nrl_op_unary(nrl_ctx *ctx, nrl_unary op, nrl_tensor *x, double alpha, double beta, nrl_tensor **y)
{
    if (op <= NRL_UNARY_NONE || op >= NRL_UNARY_COUNT)
        return nrl_fail(NRL_ERR_BUG, "unary: unknown operation %d", (int)op);
    NRL_TRY(tensor_like(ctx, x, y));
    nrl_unary_args a = {
        .size = sizeof a, .op = op, .x = tensor_mat(x), .y = tensor_mat(*y), .alpha = alpha, .beta = beta};
    if (x->numel) NRL_TRY(backend_unary(ctx, &a));
    unary_attributes at = {op, alpha, beta};
    nrl_tape_record r = {.name = "unary",
                         .inputs = {x},
                         .outputs = {*y},
                         .saved = {saves(op) == SAVES_X ? x : NULL, saves(op) == SAVES_Y ? *y : NULL},
                         .attributes = &at,
                         .attributes_size = sizeof at,
                         .backward = unary_backward};
    return tape_push(ctx, &r, false);
}

/* ---- binary ---- */

typedef struct {
    uint32_t op;
} binary_attributes;

/* Sums `full` over the dimensions in which `small` was broadcast; the result has small's shape and dtype. */
static nrl_status reduce_to(nrl_ctx *ctx, nrl_tensor *full, const nrl_tensor *small, nrl_tensor **out)
{
    *out = full;
    if (tensor_same_matrix(full, small)) return NRL_OK;
    bool one = small->rows == 1 && small->cols == 1;
    nrl_tensor *sum;
    NRL_TRY(nrl_tensor_new(ctx, NRL_DTYPE_F32, small->n_dims, small->dims, &sum));
    nrl_reduce_args a = {.size = sizeof a,
                         .op = NRL_REDUCTION_SUM,
                         .axis = one                ? NRL_AXIS_ALL
                                 : small->rows == 1 ? NRL_AXIS_ROWS
                                                    : NRL_AXIS_COLUMNS,
                         .overwrite = true,
                         .x = tensor_mat(full),
                         .y = tensor_mat(sum)};
    NRL_TRY(full->numel ? backend_reduce(ctx, &a) : tensor_fill(ctx, sum, 0));
    *out = sum;
    if (small->dtype == NRL_DTYPE_F32) return NRL_OK;
    NRL_TRY(tensor_like(ctx, small, out));
    return tensor_copy(ctx, sum, *out);
}

static nrl_status give_reduced(nrl_ctx *ctx, nrl_tape_node *node, int i, nrl_tensor *full)
{
    if (!nrl_tape_wants(node, i)) return NRL_OK;
    nrl_tensor *d;
    NRL_TRY(reduce_to(ctx, full, nrl_tape_input(node, i), &d));
    return nrl_tape_give(ctx, node, i, d);
}

/* Addition passes dy on; for other operations the backend computes unreduced da and db. */
static nrl_status binary_backward(nrl_ctx *ctx, nrl_tape_node *node)
{
    const binary_attributes *at = nrl_tape_attributes(node);
    nrl_tensor *dy = nrl_tape_grad(node, 0), *da = dy, *db = dy;
    if (at->op == NRL_BINARY_SUB && nrl_tape_wants(node, 1)) {
        NRL_TRY(tensor_like(ctx, dy, &db));
        nrl_copy_args c = {.size = sizeof c, .x = tensor_mat(dy), .y = tensor_mat(db), .alpha = -1};
        NRL_TRY(backend_copy(ctx, &c));
    } else if (at->op != NRL_BINARY_ADD && at->op != NRL_BINARY_SUB) {
        nrl_binary_grad_args a = {.size = sizeof a,
                                  .op = at->op,
                                  .a = tensor_mat(nrl_tape_saved(node, 0)),
                                  .b = tensor_mat(nrl_tape_saved(node, 1)),
                                  .dy = tensor_mat(dy)};
        if (nrl_tape_wants(node, 0)) {
            NRL_TRY(tensor_like(ctx, dy, &da));
            a.da = tensor_mat(da);
        }
        if (nrl_tape_wants(node, 1)) {
            NRL_TRY(tensor_like(ctx, dy, &db));
            a.db = tensor_mat(db);
        }
        NRL_TRY(backend_binary_grad(ctx, &a));
    }
    NRL_TRY(give_reduced(ctx, node, 0, da));
    return give_reduced(ctx, node, 1, db);
}

/* Whether b can be broadcast to a: its rows and columns are those of a, or 1. */
static bool broadcasts(const nrl_tensor *a, const nrl_tensor *b)
{
    return (b->rows == a->rows || b->rows == 1) && (b->cols == a->cols || b->cols == 1);
}

nrl_status nrl_op_binary(nrl_ctx *ctx, nrl_binary op, nrl_tensor *a, nrl_tensor *b, nrl_tensor **y)
{
    if (op <= NRL_BINARY_NONE || op >= NRL_BINARY_COUNT)
        return nrl_fail(NRL_ERR_BUG, "binary: unknown operation %d", (int)op);
    if (a->dtype != b->dtype || (!broadcasts(a, b) && !broadcasts(b, a)))
        return nrl_fail(NRL_ERR_BUG, "binary: a is %s of %s, b is %s of %s", tensor_shape(a).text,
                        nrl_dtype_name(a->dtype), tensor_shape(b).text, nrl_dtype_name(b->dtype));
    nrl_tensor *left = a, *right = b;
    /* Backends broadcast the second operand only. */
    if (!broadcasts(a, b)) {
        bool commutes = op == NRL_BINARY_ADD || op == NRL_BINARY_MUL || op == NRL_BINARY_MIN || op == NRL_BINARY_MAX;
        if (commutes) {
            left = b;
            right = a;
        } else {
            NRL_TRY(tensor_expand(ctx, a, b, &left));
        }
    }
    NRL_TRY(tensor_like(ctx, left, y));
    nrl_binary_args args = {
        .size = sizeof args, .op = op, .a = tensor_mat(left), .b = tensor_mat(right), .y = tensor_mat(*y)};
    if (left->numel) NRL_TRY(backend_binary(ctx, &args));
    if (op == NRL_BINARY_GREATER) return NRL_OK;
    bool linear = op == NRL_BINARY_ADD || op == NRL_BINARY_SUB;
    binary_attributes at = {op};
    /* The gradient of an expanded operand is summed over the broadcast dimensions. */
    nrl_tensor *first = left == b ? b : a, *second = left == b ? a : b;
    nrl_tape_record r = {.name = "binary",
                         .inputs = {first, second},
                         .outputs = {*y},
                         .saved = {linear ? NULL : left, linear ? NULL : right},
                         .attributes = &at,
                         .attributes_size = sizeof at,
                         .backward = binary_backward};
    return tape_push(ctx, &r, false);
}

/* ---- where ---- */

static nrl_status select(nrl_ctx *ctx, const nrl_tensor *mask, const nrl_tensor *a, const nrl_tensor *b,
                         const nrl_tensor *y)
{
    nrl_where_args w = {
        .size = sizeof w, .mask = tensor_mat(mask), .a = tensor_mat(a), .b = tensor_mat(b), .y = tensor_mat(y)};
    return y->numel ? backend_where(ctx, &w) : NRL_OK;
}

static nrl_status where_backward(nrl_ctx *ctx, nrl_tape_node *node)
{
    nrl_tensor *mask = nrl_tape_saved(node, 0), *dy = nrl_tape_grad(node, 0), *zero, *d;
    NRL_TRY(tensor_like(ctx, dy, &zero));
    NRL_TRY(tensor_fill(ctx, zero, 0));
    for (int i = 0; i < 2; i++) {
        if (!nrl_tape_wants(node, i)) continue;
        NRL_TRY(tensor_like(ctx, dy, &d));
        NRL_TRY(select(ctx, mask, i ? zero : dy, i ? dy : zero, d));
        NRL_TRY(nrl_tape_give(ctx, node, i, d));
    }
    return NRL_OK;
}

nrl_status nrl_op_where(nrl_ctx *ctx, nrl_tensor *mask, nrl_tensor *a, nrl_tensor *b, nrl_tensor **y)
{
    if (!tensor_same_matrix(mask, a) || !tensor_same_matrix(a, b) || a->dtype != b->dtype)
        return nrl_fail(NRL_ERR_BUG, "where: mask is %s, a is %s of %s, b is %s of %s", tensor_shape(mask).text,
                        tensor_shape(a).text, nrl_dtype_name(a->dtype), tensor_shape(b).text, nrl_dtype_name(b->dtype));
    NRL_TRY(tensor_like(ctx, a, y));
    NRL_TRY(select(ctx, mask, a, b, *y));
    nrl_tape_record r = {
        .name = "where", .inputs = {a, b}, .outputs = {*y}, .saved = {mask}, .backward = where_backward};
    return tape_push(ctx, &r, false);
}

/* ---- cast, detach ---- */

static nrl_status cast_backward(nrl_ctx *ctx, nrl_tape_node *node)
{
    nrl_tensor *dx;
    NRL_TRY(tensor_like(ctx, nrl_tape_input(node, 0), &dx));
    NRL_TRY(tensor_copy(ctx, nrl_tape_grad(node, 0), dx));
    return nrl_tape_give(ctx, node, 0, dx);
}

nrl_status nrl_op_cast(nrl_ctx *ctx, nrl_tensor *x, nrl_dtype dtype, nrl_tensor **y)
{
    NRL_TRY(nrl_tensor_new(ctx, dtype, x->n_dims, x->dims, y));
    NRL_TRY(tensor_copy(ctx, x, *y));
    nrl_tape_record r = {.name = "cast", .inputs = {x}, .outputs = {*y}, .backward = cast_backward};
    return tape_push(ctx, &r, false);
}

nrl_status nrl_op_detach(nrl_ctx *ctx, nrl_tensor *x, nrl_tensor **y)
{
    *y = tensor_view(ctx, x, 0, x->n_dims, x->dims, x->stride);
    return NRL_OK;
}
