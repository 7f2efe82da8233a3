/*
 * op_reduce.c - sums, maxima, log-sum-exp and softmax. Sums are f32 for every dtype of x.
 */
#include "tensor/tape/tape.h"

typedef struct {
    double alpha;   /* factor of the sum */
    bool as_column; /* one sum for each row of x */
} sum_attributes;

static nrl_status reduce(nrl_ctx *ctx, nrl_reduction op, nrl_axis axis, const nrl_tensor *x, nrl_tensor *y)
{
    nrl_reduce_args a = {
        .size = sizeof a, .op = op, .axis = axis, .overwrite = true, .x = tensor_mat(x), .y = tensor_mat(y)};
    if (!x->numel) return tensor_fill(ctx, y, 0);
    return backend_reduce(ctx, &a);
}

static nrl_status scale_into(nrl_ctx *ctx, const nrl_tensor *x, double alpha, nrl_tensor *y)
{
    nrl_copy_args a = {.size = sizeof a, .x = tensor_mat(x), .y = tensor_mat(y), .alpha = alpha};
    return x->numel ? backend_copy(ctx, &a) : NRL_OK;
}

static nrl_status binary(nrl_ctx *ctx, nrl_binary op, const nrl_tensor *a, nrl_mat b, nrl_tensor *y)
{
    nrl_binary_args args = {.size = sizeof args, .op = op, .a = tensor_mat(a), .b = b, .y = tensor_mat(y)};
    return a->numel ? backend_binary(ctx, &args) : NRL_OK;
}

/* A view of a vector of R values as a column [R,1]. */
static nrl_tensor *as_column(nrl_ctx *ctx, nrl_tensor *v)
{
    return tensor_view(ctx, v, 0, 2, (int64_t[]){v->numel, 1}, 1);
}

/* dy scaled and broadcast to x. */
static nrl_status sum_backward(nrl_ctx *ctx, nrl_tape_node *node)
{
    const sum_attributes *at = nrl_tape_attributes(node);
    nrl_tensor *dy = nrl_tape_grad(node, 0), *scaled, *dx;
    scaled = dy = at->as_column ? as_column(ctx, dy) : dy;
    if (at->alpha != 1) {
        NRL_TRY(tensor_like(ctx, dy, &scaled));
        NRL_TRY(scale_into(ctx, dy, at->alpha, scaled));
    }
    NRL_TRY(tensor_expand(ctx, scaled, nrl_tape_input(node, 0), &dx));
    return nrl_tape_give(ctx, node, 0, dx);
}

static nrl_status sum_record(nrl_ctx *ctx, nrl_tensor *x, double alpha, bool as_column, nrl_tensor *y)
{
    sum_attributes at = {alpha, as_column};
    nrl_tape_record r = {.name = "sum",
                         .inputs = {x},
                         .outputs = {y},
                         .attributes = &at,
                         .attributes_size = sizeof at,
                         .backward = sum_backward};
    return tape_push(ctx, &r, false);
}

nrl_status nrl_op_sum(nrl_ctx *ctx, nrl_tensor *x, nrl_tensor **y)
{
    NRL_TRY(tensor_vector(ctx, NRL_DTYPE_F32, 1, y));
    NRL_TRY(reduce(ctx, NRL_REDUCTION_SUM, NRL_AXIS_ALL, x, *y));
    return sum_record(ctx, x, 1, false, *y);
}

nrl_status nrl_op_mean(nrl_ctx *ctx, nrl_tensor *x, nrl_tensor **y)
{
    if (!x->numel) return nrl_fail(NRL_ERR_BUG, "mean: x %s has no elements", tensor_shape(x).text);
    nrl_tensor *sum;
    double alpha = 1.0 / (double)x->numel;
    NRL_TRY(tensor_vector(ctx, NRL_DTYPE_F32, 1, &sum));
    NRL_TRY(tensor_vector(ctx, NRL_DTYPE_F32, 1, y));
    NRL_TRY(reduce(ctx, NRL_REDUCTION_SUM, NRL_AXIS_ALL, x, sum));
    NRL_TRY(scale_into(ctx, sum, alpha, *y));
    return sum_record(ctx, x, alpha, false, *y);
}

nrl_status nrl_op_sum_columns(nrl_ctx *ctx, nrl_tensor *x, nrl_tensor **y)
{
    NRL_TRY(tensor_vector(ctx, NRL_DTYPE_F32, x->rows, y));
    NRL_TRY(reduce(ctx, NRL_REDUCTION_SUM, NRL_AXIS_COLUMNS, x, *y));
    return sum_record(ctx, x, 1, true, *y);
}

nrl_status nrl_op_sum_rows(nrl_ctx *ctx, nrl_tensor *x, nrl_tensor **y)
{
    NRL_TRY(tensor_vector(ctx, NRL_DTYPE_F32, x->cols, y));
    NRL_TRY(reduce(ctx, NRL_REDUCTION_SUM, NRL_AXIS_ROWS, x, *y));
    return sum_record(ctx, x, 1, false, *y);
}

/* x as f32 [R,C], for the two backward functions below. */
static nrl_status to_f32(nrl_ctx *ctx, nrl_tensor *x, nrl_tensor **out)
{
    *out = x;
    if (x->dtype == NRL_DTYPE_F32) return NRL_OK;
    NRL_TRY(nrl_tensor_new(ctx, NRL_DTYPE_F32, x->n_dims, x->dims, out));
    return tensor_copy(ctx, x, *out);
}

/* Gives f32 values as x's gradient in x's dtype. */
static nrl_status give_f32(nrl_ctx *ctx, nrl_tape_node *node, nrl_tensor *d)
{
    nrl_tensor *x = nrl_tape_input(node, 0), *dx = d;
    if (x->dtype != NRL_DTYPE_F32) {
        NRL_TRY(tensor_like(ctx, x, &dx));
        NRL_TRY(tensor_copy(ctx, d, dx));
    }
    return nrl_tape_give(ctx, node, 0, dx);
}

/* Equal maxima share the gradient evenly. Saved: x, y. below = y > x; is_max = 1 - below. */
static nrl_status max_backward(nrl_ctx *ctx, nrl_tape_node *node)
{
    nrl_tensor *x, *y = as_column(ctx, nrl_tape_saved(node, 1)), *dy = as_column(ctx, nrl_tape_grad(node, 0));
    nrl_tensor *whole, *below, *is_max, *count, *share, *dx;
    NRL_TRY(to_f32(ctx, nrl_tape_saved(node, 0), &x));
    NRL_TRY(tensor_expand(ctx, y, x, &whole));
    NRL_TRY(tensor_like(ctx, x, &below));
    NRL_TRY(binary(ctx, NRL_BINARY_GREATER, whole, tensor_mat(x), below));
    NRL_TRY(nrl_op_unary(ctx, NRL_UNARY_AFFINE, below, -1, 1, &is_max));
    NRL_TRY(tensor_like(ctx, y, &count));
    NRL_TRY(reduce(ctx, NRL_REDUCTION_SUM, NRL_AXIS_COLUMNS, is_max, count));
    NRL_TRY(tensor_like(ctx, dy, &share));
    NRL_TRY(binary(ctx, NRL_BINARY_DIV, dy, tensor_mat(count), share));
    NRL_TRY(tensor_like(ctx, x, &dx));
    NRL_TRY(binary(ctx, NRL_BINARY_MUL, is_max, tensor_mat(share), dx));
    return give_f32(ctx, node, dx);
}

/* dx = exp(x - y) dy. Saved: x, y. */
static nrl_status log_sum_exp_backward(nrl_ctx *ctx, nrl_tape_node *node)
{
    nrl_tensor *x, *y = as_column(ctx, nrl_tape_saved(node, 1)), *dy = as_column(ctx, nrl_tape_grad(node, 0));
    nrl_tensor *log_p, *p, *dx;
    NRL_TRY(to_f32(ctx, nrl_tape_saved(node, 0), &x));
    NRL_TRY(tensor_like(ctx, x, &log_p));
    NRL_TRY(binary(ctx, NRL_BINARY_SUB, x, tensor_mat(y), log_p));
    NRL_TRY(nrl_op_unary(ctx, NRL_UNARY_EXP, log_p, 0, 0, &p));
    NRL_TRY(tensor_like(ctx, x, &dx));
    NRL_TRY(binary(ctx, NRL_BINARY_MUL, p, tensor_mat(dy), dx));
    return give_f32(ctx, node, dx);
}

static nrl_status reduce_columns(nrl_ctx *ctx, nrl_reduction op, nrl_tensor *x, nrl_tape_backward backward,
                                 nrl_tensor **y)
{
    if (!x->cols) return nrl_fail(NRL_ERR_BUG, "reduction of columns: x %s has no columns", tensor_shape(x).text);
    NRL_TRY(tensor_vector(ctx, NRL_DTYPE_F32, x->rows, y));
    NRL_TRY(reduce(ctx, op, NRL_AXIS_COLUMNS, x, *y));
    nrl_tape_record r = {.name = "reduce", .inputs = {x}, .outputs = {*y}, .saved = {x, *y}, .backward = backward};
    return tape_push(ctx, &r, false);
}

nrl_status nrl_op_max_columns(nrl_ctx *ctx, nrl_tensor *x, nrl_tensor **y)
{
    return reduce_columns(ctx, NRL_REDUCTION_MAX, x, max_backward, y);
}

nrl_status nrl_op_log_sum_exp(nrl_ctx *ctx, nrl_tensor *x, nrl_tensor **y)
{
    return reduce_columns(ctx, NRL_REDUCTION_LOG_SUM_EXP, x, log_sum_exp_backward, y);
}

/* ---- softmax ---- */

typedef struct {
    bool log;
} softmax_attributes;

static nrl_status softmax_backward(nrl_ctx *ctx, nrl_tape_node *node)
{
    const softmax_attributes *at = nrl_tape_attributes(node);
    nrl_tensor *y = nrl_tape_saved(node, 0), *dx;
    NRL_TRY(tensor_like(ctx, y, &dx));
    nrl_softmax_grad_args a = {.size = sizeof a,
                               .log = at->log,
                               .y = tensor_mat(y),
                               .dy = tensor_mat(nrl_tape_grad(node, 0)),
                               .dx = tensor_mat(dx)};
    NRL_TRY(backend_softmax_grad(ctx, &a));
    return nrl_tape_give(ctx, node, 0, dx);
}

static nrl_status softmax(nrl_ctx *ctx, nrl_tensor *x, bool log, nrl_tensor **y)
{
    NRL_TRY(tensor_like(ctx, x, y));
    nrl_softmax_args a = {.size = sizeof a, .log = log, .x = tensor_mat(x), .y = tensor_mat(*y)};
    if (x->numel) NRL_TRY(backend_softmax(ctx, &a));
    softmax_attributes at = {log};
    nrl_tape_record r = {.name = log ? "log_softmax" : "softmax",
                         .inputs = {x},
                         .outputs = {*y},
                         .saved = {*y},
                         .attributes = &at,
                         .attributes_size = sizeof at,
                         .backward = softmax_backward};
    return tape_push(ctx, &r, false);
}

nrl_status nrl_op_softmax(nrl_ctx *ctx, nrl_tensor *x, nrl_tensor **y)
{
    return softmax(ctx, x, false, y);
}

nrl_status nrl_op_log_softmax(nrl_ctx *ctx, nrl_tensor *x, nrl_tensor **y)
{
    return softmax(ctx, x, true, y);
}
