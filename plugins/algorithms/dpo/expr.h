/*
 * expr.h - tensor expressions that read like formulas. Every function takes the expression state,
 * records one operation on the tape and returns its result. After the first error all functions do
 * nothing and return NULL, and the caller reads the error once, from `st`, at the end.
 */
#ifndef DPO_EXPR_H
#define DPO_EXPR_H
#include <nrl/nrl.h>

typedef struct {
    nrl_ctx *ctx;
    nrl_status st;
} expr;

static inline nrl_tensor *unary(expr *e, nrl_unary op, nrl_tensor *x, double alpha, double beta)
{
    nrl_tensor *y = NULL;
    if (e->st == NRL_OK) e->st = nrl_op_unary(e->ctx, op, x, alpha, beta, &y);
    return y;
}

static inline nrl_tensor *binary(expr *e, nrl_binary op, nrl_tensor *a, nrl_tensor *b)
{
    nrl_tensor *y = NULL;
    if (e->st == NRL_OK) e->st = nrl_op_binary(e->ctx, op, a, b, &y);
    return y;
}

static inline nrl_tensor *plus(expr *e, nrl_tensor *a, nrl_tensor *b)
{
    return binary(e, NRL_BINARY_ADD, a, b);
}

static inline nrl_tensor *minus(expr *e, nrl_tensor *a, nrl_tensor *b)
{
    return binary(e, NRL_BINARY_SUB, a, b);
}

static inline nrl_tensor *times(expr *e, nrl_tensor *a, nrl_tensor *b)
{
    return binary(e, NRL_BINARY_MUL, a, b);
}

static inline nrl_tensor *over(expr *e, nrl_tensor *a, nrl_tensor *b)
{
    return binary(e, NRL_BINARY_DIV, a, b);
}

/* k x + c */
static inline nrl_tensor *affine(expr *e, nrl_tensor *x, double k, double c)
{
    return unary(e, NRL_UNARY_AFFINE, x, k, c);
}

static inline nrl_tensor *scale(expr *e, nrl_tensor *x, double k)
{
    return affine(e, x, k, 0);
}

static inline nrl_tensor *neg(expr *e, nrl_tensor *x)
{
    return unary(e, NRL_UNARY_NEG, x, 0, 0);
}

static inline nrl_tensor *square(expr *e, nrl_tensor *x)
{
    return unary(e, NRL_UNARY_SQUARE, x, 0, 0);
}

static inline nrl_tensor *relu(expr *e, nrl_tensor *x)
{
    return unary(e, NRL_UNARY_RELU, x, 0, 0);
}

static inline nrl_tensor *exponential(expr *e, nrl_tensor *x)
{
    return unary(e, NRL_UNARY_EXP, x, 0, 0);
}

static inline nrl_tensor *sigmoid(expr *e, nrl_tensor *x)
{
    return unary(e, NRL_UNARY_SIGMOID, x, 0, 0);
}

static inline nrl_tensor *log_sigmoid(expr *e, nrl_tensor *x)
{
    return unary(e, NRL_UNARY_LOG_SIGMOID, x, 0, 0);
}

static inline nrl_tensor *detach(expr *e, nrl_tensor *x)
{
    nrl_tensor *y = NULL;
    if (e->st == NRL_OK) e->st = nrl_op_detach(e->ctx, x, &y);
    return y;
}

/* [1], of all elements */
static inline nrl_tensor *total(expr *e, nrl_tensor *x)
{
    nrl_tensor *y = NULL;
    if (e->st == NRL_OK) e->st = nrl_op_sum(e->ctx, x, &y);
    return y;
}

static inline nrl_tensor *gather(expr *e, nrl_tensor *x, const int32_t *index, int64_t n)
{
    nrl_tensor *y = NULL;
    if (e->st == NRL_OK) e->st = nrl_op_gather_rows(e->ctx, x, index, n, &y);
    return y;
}

#endif
