/*
 * backend_elementwise.c - unary, binary and where. Gradients are compared with central differences
 * of the reference, so a function and its gradient cannot be wrong in the same way.
 */
#include "base/arena.h"
#include "backend.h"
#include <math.h>
#include <stdlib.h>

typedef struct {
    uint32_t op;
    const char *name;
    double low, high;
    double kink[2]; /* points without a slope: values near them are moved */
    double alpha, beta;
} unary_case;

#define NO_KINK                                                                                                        \
    {                                                                                                                  \
        1e9, 1e9                                                                                                       \
    }
static const unary_case unary_cases[] = {
    {NRL_UNARY_NEG, "neg", -4, 4, NO_KINK, 0, 0},
    {NRL_UNARY_EXP, "exp", -30, 30, NO_KINK, 0, 0},
    {NRL_UNARY_LOG, "log", 1e-3, 50, NO_KINK, 0, 0},
    {NRL_UNARY_SQRT, "sqrt", 0.1, 50, NO_KINK, 0, 0},
    {NRL_UNARY_SQUARE, "square", -4, 4, NO_KINK, 0, 0},
    {NRL_UNARY_RECIPROCAL, "reciprocal", 0.2, 4, NO_KINK, 0, 0},
    {NRL_UNARY_ABS, "abs", -4, 4, {0, 0}, 0, 0},
    {NRL_UNARY_RELU, "relu", -4, 4, {0, 0}, 0, 0},
    {NRL_UNARY_SIGMOID, "sigmoid", -30, 30, NO_KINK, 0, 0},
    {NRL_UNARY_LOG_SIGMOID, "log_sigmoid", -30, 30, NO_KINK, 0, 0},
    {NRL_UNARY_SOFTPLUS, "softplus", -30, 30, NO_KINK, 0, 0},
    {NRL_UNARY_TANH, "tanh", -12, 12, NO_KINK, 0, 0},
    {NRL_UNARY_SILU, "silu", -30, 30, NO_KINK, 0, 0},
    {NRL_UNARY_GELU, "gelu", -8, 8, NO_KINK, 0, 0},
    {NRL_UNARY_GELU_TANH, "gelu_tanh", -8, 8, NO_KINK, 0, 0},
    {NRL_UNARY_EXPM1, "expm1", -5, 5, NO_KINK, 0, 0},
    {NRL_UNARY_LOG1P, "log1p", -0.9, 5, NO_KINK, 0, 0},
    {NRL_UNARY_AFFINE, "affine", -4, 4, NO_KINK, 1.5, -0.25},
    {NRL_UNARY_CLAMP, "clamp", -4, 4, {-1.5, 2}, -1.5, 2},
    {NRL_UNARY_POW, "pow", 0.1, 4, NO_KINK, 2.5, 0},
};

static double reference(const unary_case *u, double x)
{
    switch (u->op) {
    case NRL_UNARY_NEG:
        return -x;
    case NRL_UNARY_EXP:
        return exp(x);
    case NRL_UNARY_LOG:
        return log(x);
    case NRL_UNARY_SQRT:
        return sqrt(x);
    case NRL_UNARY_SQUARE:
        return x * x;
    case NRL_UNARY_RECIPROCAL:
        return 1 / x;
    case NRL_UNARY_ABS:
        return fabs(x);
    case NRL_UNARY_RELU:
        return x < 0 ? 0 : x;
    case NRL_UNARY_SIGMOID:
        return 1 / (1 + exp(-x));
    case NRL_UNARY_LOG_SIGMOID:
        return x < 0 ? x - log1p(exp(x)) : -log1p(exp(-x));
    case NRL_UNARY_SOFTPLUS:
        return x < 0 ? log1p(exp(x)) : x + log1p(exp(-x));
    case NRL_UNARY_TANH:
        return tanh(x);
    case NRL_UNARY_SILU:
        return x / (1 + exp(-x));
    case NRL_UNARY_GELU:
        return 0.5 * x * erfc(-x * M_SQRT1_2);
    case NRL_UNARY_GELU_TANH:
        return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case NRL_UNARY_EXPM1:
        return expm1(x);
    case NRL_UNARY_LOG1P:
        return log1p(x);
    case NRL_UNARY_AFFINE:
        return u->alpha * x + u->beta;
    case NRL_UNARY_CLAMP:
        return x < u->alpha ? u->alpha : x > u->beta ? u->beta : x;
    default:
        return pow(x, u->alpha);
    }
}

static double slope(const unary_case *u, double x)
{
    double h = 1e-5 * (fabs(x) > 1 ? fabs(x) : 1);
    return (reference(u, x + h) - reference(u, x - h)) / (2 * h);
}

static const int64_t shapes[][3] = {{1, 1, 0}, {3, 17, 2}, {17, 3, 0}, {65, 65, 1}, {2, 2100, 0}};

/* Moves values away from the kinks of the function. */
static void avoid_kinks(suite *s, const unary_case *u, mat *x)
{
    for (int64_t i = 0; i < x->rows * x->cols; i++) {
        double *v = mat_value(x, i / x->cols, i % x->cols);
        for (int k = 0; k < 2; k++)
            if (fabs(*v - u->kink[k]) < 0.05) *v = mat_round(x->dtype, *v + 0.25);
    }
    mat_upload(s, x);
}

static void check_unary(suite *s, const unary_case *u, uint32_t dtype, const int64_t shape[3])
{
    int64_t rows = shape[0], cols = shape[1], gap = shape[2], n = rows * cols;
    suite_case(s, "%s, %lld x %lld, %s", u->name, (long long)rows, (long long)cols, nrl_dtype_name(dtype));
    mat *x = mat_random(s, dtype, rows, cols, gap, u->low, u->high);
    avoid_kinks(s, u, x);
    mat *y = mat_new(s, dtype, rows, cols, gap), *dx = mat_new(s, dtype, rows, cols, gap);
    mat *dy = mat_random(s, dtype, rows, cols, gap, -2, 2);
    double *want = mem_alloc((size_t)n * sizeof *want);
    for (int64_t i = 0; i < n; i++)
        want[i] = reference(u, *mat_value(x, i / cols, i % cols));
    nrl_unary_args a = {
        .size = sizeof a, .op = u->op, .x = mat_args(x), .y = mat_args(y), .alpha = u->alpha, .beta = u->beta};
    suite_ok(s, s->ops.unary(s->self, NULL, &a), "unary runs");
    suite_expect(s, "unary is the function it is called", y, want, 2e-6, 5e-7);
    for (int64_t i = 0; i < n; i++)
        want[i] = slope(u, *mat_value(x, i / cols, i % cols)) * *mat_value(dy, i / cols, i % cols);
    nrl_unary_grad_args g = {.size = sizeof g,
                             .op = u->op,
                             .x = mat_args(x),
                             .y = mat_args(y),
                             .dy = mat_args(dy),
                             .dx = mat_args(dx),
                             .alpha = u->alpha,
                             .beta = u->beta};
    if (s->ops.unary_grad) {
        suite_ok(s, s->ops.unary_grad(s->self, NULL, &g), "unary_grad runs");
        /* the saved 16-bit result is rounded, so the slope may be rounded too */
        double rel = dtype == NRL_DTYPE_F32 ? 1e-5 : 0.01, abs = dtype == NRL_DTYPE_F32 ? 2e-6 : 0.02;
        suite_expect(s, "unary_grad is the slope of unary", dx, want, rel, abs);
    }
    free(want);
    suite_clear(s);
}

static void check_nan(suite *s)
{
    for (int i = 0; i < COUNT(unary_cases); i++) {
        suite_case(s, "%s of NaN", unary_cases[i].name);
        mat *x = mat_new(s, NRL_DTYPE_F32, 1, 37, 0), *y = mat_new(s, NRL_DTYPE_F32, 1, 37, 0);
        double want[37];
        for (int64_t c = 0; c < 37; c++) {
            mat_set(s, x, 0, c, c % 3 == 0 ? NAN : 0.5);
            want[c] = c % 3 == 0 ? NAN : reference(&unary_cases[i], 0.5);
        }
        mat_upload(s, x);
        nrl_unary_args a = {.size = sizeof a,
                            .op = unary_cases[i].op,
                            .x = mat_args(x),
                            .y = mat_args(y),
                            .alpha = unary_cases[i].alpha,
                            .beta = unary_cases[i].beta};
        suite_ok(s, s->ops.unary(s->self, NULL, &a), "unary runs");
        suite_expect(s, "NaN is not lost", y, want, 2e-6, 5e-7);
        suite_clear(s);
    }
}

/* Values at the ends of the range must give limits, not NaN. */
static void check_extremes(suite *s)
{
    static const struct {
        uint32_t op;
        double x, y;
    } rows[] = {{NRL_UNARY_EXP, 200, INFINITY},
                {NRL_UNARY_EXP, -200, 0},
                {NRL_UNARY_SIGMOID, 1000, 1},
                {NRL_UNARY_SIGMOID, -1000, 0},
                {NRL_UNARY_LOG_SIGMOID, -1000, -1000},
                {NRL_UNARY_LOG_SIGMOID, 1000, 0},
                {NRL_UNARY_SOFTPLUS, 1000, 1000},
                {NRL_UNARY_SOFTPLUS, -1000, 0},
                {NRL_UNARY_TANH, 1000, 1},
                {NRL_UNARY_TANH, -1000, -1},
                {NRL_UNARY_LOG, 0, -INFINITY},
                {NRL_UNARY_LOG, -1, NAN},
                {NRL_UNARY_GELU, -1000, 0},
                {NRL_UNARY_GELU, 1000, 1000},
                {NRL_UNARY_GELU_TANH, -1000, 0},
                {NRL_UNARY_SILU, -1000, 0},
                {NRL_UNARY_EXPM1, -1000, -1},
                {NRL_UNARY_LOG1P, -1, -INFINITY},
                {NRL_UNARY_EXPM1, 1e-7, 1e-7},
                {NRL_UNARY_LOG1P, 1e-7, 1e-7}};
    for (int i = 0; i < COUNT(rows); i++) {
        suite_case(s, "unary number %u of %g", rows[i].op, rows[i].x);
        mat *x = mat_new(s, NRL_DTYPE_F32, 1, 1, 0), *y = mat_new(s, NRL_DTYPE_F32, 1, 1, 0);
        mat_set(s, x, 0, 0, rows[i].x);
        mat_upload(s, x);
        nrl_unary_args a = {.size = sizeof a, .op = rows[i].op, .x = mat_args(x), .y = mat_args(y)};
        suite_ok(s, s->ops.unary(s->self, NULL, &a), "unary runs");
        suite_expect(s, "unary reaches its limits", y, &rows[i].y, 1e-6, 1e-37);
        suite_clear(s);
    }
}

/* ---- binary ---- */

static double binary_value(uint32_t op, double a, double b)
{
    switch (op) {
    case NRL_BINARY_ADD:
        return a + b;
    case NRL_BINARY_SUB:
        return a - b;
    case NRL_BINARY_MUL:
        return a * b;
    case NRL_BINARY_DIV:
        return a / b;
    case NRL_BINARY_MIN:
        return a < b ? a : b;
    case NRL_BINARY_MAX:
        return a > b ? a : b;
    default:
        return a > b;
    }
}

static void binary_slopes(uint32_t op, double a, double b, double *da, double *db)
{
    double first = op == NRL_BINARY_MIN ? a < b : a > b;
    switch (op) {
    case NRL_BINARY_ADD:
        *da = 1, *db = 1;
        break;
    case NRL_BINARY_SUB:
        *da = 1, *db = -1;
        break;
    case NRL_BINARY_MUL:
        *da = b, *db = a;
        break;
    case NRL_BINARY_DIV:
        *da = 1 / b, *db = -a / (b * b);
        break;
    case NRL_BINARY_GREATER:
        *da = 0, *db = 0;
        break;
    default:
        *da = a == b ? 0.5 : first, *db = 1 - *da;
        break;
    }
}

/* how: 0 equal shapes, 1 b has one row, 2 b has one column, 3 b has one element. */
static void check_binary(suite *s, uint32_t op, uint32_t dtype, const int64_t shape[3], int how)
{
    int64_t rows = shape[0], cols = shape[1], n = rows * cols;
    suite_case(s, "binary number %u, %lld x %lld, %s, b %s", op, (long long)rows, (long long)cols,
               nrl_dtype_name(dtype),
               how == 0   ? "of a's shape"
               : how == 1 ? "one row"
               : how == 2 ? "one column"
                          : "one");
    mat *a = mat_random(s, dtype, rows, cols, shape[2], -3, 3);
    mat *b = mat_random(s, dtype, how & 1 ? 1 : rows, how & 2 ? 1 : cols, shape[2], 0.5, 3);
    mat *y = mat_new(s, dtype, rows, cols, shape[2]);
    mat *dy = mat_random(s, dtype, rows, cols, shape[2], -2, 2);
    mat *da = mat_new(s, dtype, rows, cols, 0), *db = mat_new(s, dtype, rows, cols, 0);
    *mat_value(a, 0, 0) = *mat_value(b, 0, 0); /* equal operands */
    mat_upload(s, a);
    double *want = mem_alloc((size_t)n * 3 * sizeof *want);
    for (int64_t i = 0; i < n; i++) {
        double u = *mat_value(a, i / cols, i % cols), g = *mat_value(dy, i / cols, i % cols);
        double v = *mat_value(b, how & 1 ? 0 : i / cols, how & 2 ? 0 : i % cols), du, dv;
        want[i] = binary_value(op, u, v);
        binary_slopes(op, u, v, &du, &dv);
        want[n + i] = du * g;
        want[2 * n + i] = dv * g;
    }
    nrl_binary_args f = {.size = sizeof f, .op = op, .a = mat_args(a), .b = mat_args(b), .y = mat_args(y)};
    suite_ok(s, s->ops.binary(s->self, NULL, &f), "binary runs");
    suite_expect(s, "binary is the function it is called", y, want, 1e-6, 1e-7);
    nrl_binary_grad_args k = {.size = sizeof k,
                              .op = op,
                              .a = mat_args(a),
                              .b = mat_args(b),
                              .dy = mat_args(dy),
                              .da = mat_args(da),
                              .db = mat_args(db)};
    if (s->ops.binary_grad && how == 0) {
        suite_ok(s, s->ops.binary_grad(s->self, NULL, &k), "binary_grad runs");
        suite_expect(s, "binary_grad gives both slopes", da, want + n, 2e-6, 1e-6);
        suite_expect(s, "binary_grad gives both slopes", db, want + 2 * n, 2e-6, 1e-6);
    }
    free(want);
    suite_clear(s);
}

static void check_where(suite *s, uint32_t dtype, const int64_t shape[3])
{
    int64_t rows = shape[0], cols = shape[1];
    suite_case(s, "where, %lld x %lld", (long long)rows, (long long)cols);
    mat *mask = mat_new(s, dtype, rows, cols, 1);
    mat *a = mat_random(s, dtype, rows, cols, shape[2], -3, 3);
    mat *b = mat_random(s, dtype, rows, cols, 0, -3, 3), *y = mat_new(s, dtype, rows, cols, 0);
    double *want = mem_alloc((size_t)(rows * cols) * sizeof *want);
    for (int64_t i = 0; i < rows * cols; i++) {
        bool first = suite_uniform(s, 0, 1) > 0.5;
        mat_set(s, mask, i / cols, i % cols, first);
        want[i] = *mat_value(first ? a : b, i / cols, i % cols);
    }
    mat_upload(s, mask);
    nrl_where_args w = {.size = sizeof w, .mask = mat_args(mask), .a = mat_args(a), .b = mat_args(b), .y = mat_args(y)};
    suite_ok(s, s->ops.where(s->self, NULL, &w), "where runs");
    suite_expect(s, "where picks by the mask", y, want, 0, 0);
    free(want);
    suite_clear(s);
}

void suite_elementwise(suite *s)
{
    for (int d = 0; d < s->n_dtypes; d++)
        for (int k = 0; k < COUNT(shapes); k++) {
            for (int i = 0; s->ops.unary && i < COUNT(unary_cases); i++)
                check_unary(s, &unary_cases[i], suite_dtypes[d], shapes[k]);
            for (uint32_t op = 1; s->ops.binary && op < NRL_BINARY_COUNT; op++)
                for (int how = 0; how < 4; how++)
                    check_binary(s, op, suite_dtypes[d], shapes[k], how);
            if (s->ops.where) check_where(s, suite_dtypes[d], shapes[k]);
        }
    if (!s->ops.unary) return;
    check_nan(s);
    check_extremes(s);
}
