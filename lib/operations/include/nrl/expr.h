/*
 * expr.h - operations of op.h as expressions, so that a loss reads as arithmetic. Inline functions only.
 *
 *     nrl_exprs e = {ctx, NRL_OK};
 *     nrl_expr p = e_exp(e_column(&e, batch, "logps")), w = e_column(&e, batch, "weights");
 *     return e_store(e_sum(e_mul(w, e_affine(p, -1, 1))), &sums[0]);    sum of w (1 - p)
 *
 * Errors are sticky: after the first one, the other functions do nothing, and e_store and e_status return it. So an
 * expression may be written as a whole and checked once. Shapes are those of op.h: a matrix and a row, a column or a
 * single number broadcast. Every function records on the tape as its operation does. [step]
 */
#ifndef NRL_EXPR_H
#define NRL_EXPR_H
#include <nrl/batch.h>
#include <nrl/op.h>
#ifdef __cplusplus
extern "C" {
#endif

/* The expressions of one function: their context, and the first error. */
typedef struct {
    nrl_ctx *ctx;
    nrl_status status;
} nrl_exprs;

/* A value; `tensor` is NULL after an error. */
typedef struct {
    nrl_exprs *of;
    nrl_tensor *tensor;
} nrl_expr;

/* ---- in and out ---- */

static inline nrl_expr e_tensor(nrl_exprs *of, nrl_tensor *t)
{
    nrl_expr x = {of, of->status ? NULL : t};
    return x;
}

/* A column of the batch, see nrl_batch_column. */
static inline nrl_expr e_column(nrl_exprs *of, const nrl_batch *batch, const char *name)
{
    nrl_tensor *t = NULL;
    if (!of->status) of->status = nrl_batch_column(of->ctx, batch, name, &t);
    return e_tensor(of, t);
}

/* A number [1]; e_affine needs none. */
static inline nrl_expr e_number(nrl_exprs *of, double value)
{
    nrl_tensor *t = NULL;
    const int64_t one = 1;
    const float number = (float)value;
    if (!of->status) of->status = nrl_tensor_from_host(of->ctx, NRL_DTYPE_F32, 1, &one, &number, &t);
    return e_tensor(of, t);
}

static inline nrl_status e_status(nrl_expr x)
{
    return x.of->status;
}

/* *out = the tensor of x; unchanged after an error, which it returns. */
static inline nrl_status e_store(nrl_expr x, nrl_tensor **out)
{
    if (!x.of->status) *out = x.tensor;
    return x.of->status;
}

/* ---- the operations ---- */

static inline nrl_expr e_unary(nrl_unary op, nrl_expr x, double alpha, double beta)
{
    nrl_tensor *y = NULL;
    if (!x.of->status) x.of->status = nrl_op_unary(x.of->ctx, op, x.tensor, alpha, beta, &y);
    return e_tensor(x.of, y);
}

static inline nrl_expr e_binary(nrl_binary op, nrl_expr a, nrl_expr b)
{
    nrl_tensor *y = NULL;
    if (!a.of->status) a.of->status = nrl_op_binary(a.of->ctx, op, a.tensor, b.tensor, &y);
    return e_tensor(a.of, y);
}

/* An operation of op.h with one operand and no option: e_apply(nrl_op_sum, x). */
static inline nrl_expr e_apply(nrl_status (*op)(nrl_ctx *ctx, nrl_tensor *x, nrl_tensor **y), nrl_expr x)
{
    nrl_tensor *y = NULL;
    if (!x.of->status) x.of->status = op(x.of->ctx, x.tensor, &y);
    return e_tensor(x.of, y);
}

/* clang-format off */
static inline nrl_expr e_add(nrl_expr a, nrl_expr b) { return e_binary(NRL_BINARY_ADD, a, b); }
static inline nrl_expr e_sub(nrl_expr a, nrl_expr b) { return e_binary(NRL_BINARY_SUB, a, b); }
static inline nrl_expr e_mul(nrl_expr a, nrl_expr b) { return e_binary(NRL_BINARY_MUL, a, b); }
static inline nrl_expr e_div(nrl_expr a, nrl_expr b) { return e_binary(NRL_BINARY_DIV, a, b); }
static inline nrl_expr e_min(nrl_expr a, nrl_expr b) { return e_binary(NRL_BINARY_MIN, a, b); }
static inline nrl_expr e_max(nrl_expr a, nrl_expr b) { return e_binary(NRL_BINARY_MAX, a, b); }
static inline nrl_expr e_greater(nrl_expr a, nrl_expr b) { return e_binary(NRL_BINARY_GREATER, a, b); }

static inline nrl_expr e_affine(nrl_expr x, double alpha, double beta) /* alpha x + beta */
{ return e_unary(NRL_UNARY_AFFINE, x, alpha, beta); }
static inline nrl_expr e_clamp(nrl_expr x, double low, double high) { return e_unary(NRL_UNARY_CLAMP, x, low, high); }
static inline nrl_expr e_pow(nrl_expr x, double power) { return e_unary(NRL_UNARY_POW, x, power, 0); }
static inline nrl_expr e_neg(nrl_expr x) { return e_unary(NRL_UNARY_NEG, x, 0, 0); }
static inline nrl_expr e_exp(nrl_expr x) { return e_unary(NRL_UNARY_EXP, x, 0, 0); }
static inline nrl_expr e_expm1(nrl_expr x) { return e_unary(NRL_UNARY_EXPM1, x, 0, 0); }
static inline nrl_expr e_log(nrl_expr x) { return e_unary(NRL_UNARY_LOG, x, 0, 0); }
static inline nrl_expr e_log1p(nrl_expr x) { return e_unary(NRL_UNARY_LOG1P, x, 0, 0); }
static inline nrl_expr e_sqrt(nrl_expr x) { return e_unary(NRL_UNARY_SQRT, x, 0, 0); }
static inline nrl_expr e_square(nrl_expr x) { return e_unary(NRL_UNARY_SQUARE, x, 0, 0); }
static inline nrl_expr e_abs(nrl_expr x) { return e_unary(NRL_UNARY_ABS, x, 0, 0); }
static inline nrl_expr e_relu(nrl_expr x) { return e_unary(NRL_UNARY_RELU, x, 0, 0); }
static inline nrl_expr e_sigmoid(nrl_expr x) { return e_unary(NRL_UNARY_SIGMOID, x, 0, 0); }
static inline nrl_expr e_log_sigmoid(nrl_expr x) { return e_unary(NRL_UNARY_LOG_SIGMOID, x, 0, 0); }
static inline nrl_expr e_softplus(nrl_expr x) { return e_unary(NRL_UNARY_SOFTPLUS, x, 0, 0); }
static inline nrl_expr e_tanh(nrl_expr x) { return e_unary(NRL_UNARY_TANH, x, 0, 0); }

static inline nrl_expr e_detach(nrl_expr x) { return e_apply(nrl_op_detach, x); } /* without a gradient */
static inline nrl_expr e_sum(nrl_expr x) { return e_apply(nrl_op_sum, x); }       /* [1] */
static inline nrl_expr e_mean(nrl_expr x) { return e_apply(nrl_op_mean, x); }     /* [1] */
/* clang-format on */

/* mask != 0 ? a : b */
static inline nrl_expr e_where(nrl_expr mask, nrl_expr a, nrl_expr b)
{
    nrl_tensor *y = NULL;
    if (!a.of->status) a.of->status = nrl_op_where(a.of->ctx, mask.tensor, a.tensor, b.tensor, &y);
    return e_tensor(a.of, y);
}

/* The sum of x over each segment of the batch, from target positions [P] to [S]. */
static inline nrl_expr e_segment_sum(nrl_expr x, const nrl_batch *batch)
{
    nrl_tensor *y = NULL;
    if (!x.of->status)
        x.of->status = nrl_op_segment_sum(x.of->ctx, x.tensor, nrl_batch_target_segments(batch),
                                          nrl_batch_n_targets(batch), nrl_batch_n_segments(batch), &y);
    return e_tensor(x.of, y);
}

#ifdef __cplusplus
}
#endif
#endif
