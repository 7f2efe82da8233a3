/*
 * unary.c - functions of one value and their gradients.
 */
#include "span.h"

#define MAP(expression)                                                                                                \
    SIMD                                                                                                               \
    for (int64_t i = 0; i < n; i++) {                                                                                  \
        float v = x[i];                                                                                                \
        y[i] = (expression);                                                                                           \
    }                                                                                                                  \
    break

/* y[i] = f(x[i]); alpha and beta where the operation has them. */
static void apply(uint32_t op, const float *x, float *y, int64_t n, double alpha, double beta)
{
    float al = (float)alpha, be = (float)beta;
    /* clang-format off */
    switch (op) {
    case NRL_UNARY_NEG: MAP(-v);
    case NRL_UNARY_EXP: MAP(v_exp(v));
    case NRL_UNARY_LOG: MAP(v_log(v));
    case NRL_UNARY_SQRT: MAP(sqrtf(v));
    case NRL_UNARY_SQUARE: MAP(v * v);
    case NRL_UNARY_RECIPROCAL: MAP(1.0f / v);
    case NRL_UNARY_ABS: MAP(fabsf(v));
    case NRL_UNARY_RELU: MAP(v < 0.0f ? 0.0f : v);
    case NRL_UNARY_SIGMOID: MAP(v_sigmoid(v));
    case NRL_UNARY_LOG_SIGMOID: MAP(-v_softplus(-v));
    case NRL_UNARY_SOFTPLUS: MAP(v_softplus(v));
    case NRL_UNARY_TANH: MAP(v_tanh(v));
    case NRL_UNARY_SILU: MAP(v * v_sigmoid(v));
    case NRL_UNARY_GELU: MAP(v_gelu(v));
    case NRL_UNARY_GELU_TANH: MAP(v_gelu_tanh(v));
    case NRL_UNARY_EXPM1: MAP(v_expm1(v));
    case NRL_UNARY_LOG1P: MAP(v_log1p(v));
    case NRL_UNARY_AFFINE: MAP(al * v + be);
    case NRL_UNARY_CLAMP: MAP(v < al ? al : v > be ? be : v);
    case NRL_UNARY_POW:
        for (int64_t i = 0; i < n; i++) y[i] = (float)pow(x[i], alpha);
        break;
    default: break;
    }
    /* clang-format on */
}

#undef MAP
/* v is x[i], f is y[i] = f(x[i]), g the gradient that arrives. */
#define MAP(expression)                                                                                                \
    SIMD                                                                                                               \
    for (int64_t i = 0; i < n; i++) {                                                                                  \
        float v = x[i], f = y[i], g = dy[i];                                                                           \
        (void)v, (void)f;                                                                                              \
        dx[i] = (expression);                                                                                          \
    }                                                                                                                  \
    break

static void apply_grad(uint32_t op, const float *x, const float *y, const float *dy, float *dx, int64_t n, double alpha,
                       double beta)
{
    float al = (float)alpha, be = (float)beta;
    /* clang-format off */
    switch (op) {
    case NRL_UNARY_NEG: MAP(-g);
    case NRL_UNARY_EXP: MAP(g * f);
    case NRL_UNARY_LOG: MAP(g / v);
    case NRL_UNARY_SQRT: MAP(0.5f * g / f);
    case NRL_UNARY_SQUARE: MAP(2.0f * v * g);
    case NRL_UNARY_RECIPROCAL: MAP(-g * f * f);
    case NRL_UNARY_ABS: MAP(v > 0.0f ? g : v < 0.0f ? -g : v * g);
    case NRL_UNARY_RELU: MAP(v <= 0.0f ? 0.0f : g);
    case NRL_UNARY_SIGMOID: MAP(g * f * (1.0f - f));
    case NRL_UNARY_LOG_SIGMOID: MAP(g * v_sigmoid(-v));
    case NRL_UNARY_SOFTPLUS: MAP(g * v_sigmoid(v));
    case NRL_UNARY_TANH: MAP(g * (1.0f - f * f));
    case NRL_UNARY_SILU: MAP(g * v_silu_slope(v));
    case NRL_UNARY_GELU: MAP(g * v_gelu_slope(v));
    case NRL_UNARY_GELU_TANH: MAP(g * v_gelu_tanh_slope(v));
    case NRL_UNARY_EXPM1: MAP(g * v_exp(v));
    case NRL_UNARY_LOG1P: MAP(g / (1.0f + v));
    case NRL_UNARY_AFFINE: MAP(al * g);
    case NRL_UNARY_CLAMP: MAP(v < al || v > be ? 0.0f : g);
    case NRL_UNARY_POW:
        for (int64_t i = 0; i < n; i++)
            dx[i] = alpha == 0 ? 0.0f : (float)(dy[i] * alpha * pow(x[i], alpha - 1));
        break;
    default: break;
    }
    /* clang-format on */
}
#undef MAP

static void unary_span(const void *args, int64_t row, int64_t col, int64_t n)
{
    const nrl_unary_args *a = args;
    float x_buf[SPAN], y_buf[SPAN];
    const float *x = span_read(&a->x, row, col, n, x_buf);
    float *y = span_target(&a->y, row, col, y_buf);
    apply(a->op, x, y, n, a->alpha, a->beta);
    span_write(&a->y, row, col, n, y);
}

static nrl_status check_op(const char *name, uint32_t op)
{
    if (op > NRL_UNARY_NONE && op < NRL_UNARY_COUNT) return NRL_OK;
    return nrl_fail(NRL_ERR_PLUGIN, "backend 'cpu' has no op '%s' number %u", name, op);
}

OP(unary)
{
    NRL_TRY(check_op("unary", a->op));
    nrl_unary_args k = *a;
    flatten((nrl_mat *[]){&k.x, &k.y}, 2);
    each_span(instance, k.y.rows, k.y.cols, unary_span, &k);
    return NRL_OK;
}

static bool grad_reads_result(uint32_t op)
{
    return op == NRL_UNARY_EXP || op == NRL_UNARY_SQRT || op == NRL_UNARY_RECIPROCAL || op == NRL_UNARY_SIGMOID ||
           op == NRL_UNARY_TANH;
}

/* The result is recomputed if it was not saved (or saved rounded to 16 bits). */
static void unary_grad_span(const void *args, int64_t row, int64_t col, int64_t n)
{
    const nrl_unary_grad_args *a = args;
    float x_buf[SPAN], y_buf[SPAN], dy_buf[SPAN], dx_buf[SPAN];
    const float *dy = span_read(&a->dy, row, col, n, dy_buf);
    const float *x = a->x.data ? span_read(&a->x, row, col, n, x_buf) : dy;
    const float *y = x;
    if (grad_reads_result(a->op)) {
        if (a->y.data && (a->y.dtype == NRL_DTYPE_F32 || !a->x.data)) {
            y = span_read(&a->y, row, col, n, y_buf);
        } else {
            apply(a->op, x, y_buf, n, a->alpha, a->beta);
            y = y_buf;
        }
    }
    float *dx = span_target(&a->dx, row, col, dx_buf);
    apply_grad(a->op, x, y, dy, dx, n, a->alpha, a->beta);
    span_write(&a->dx, row, col, n, dx);
}

OP(unary_grad)
{
    NRL_TRY(check_op("unary_grad", a->op));
    nrl_unary_grad_args k = *a;
    flatten((nrl_mat *[]){&k.x, &k.y, &k.dy, &k.dx}, 4);
    each_span(instance, k.dx.rows, k.dx.cols, unary_grad_span, &k);
    return NRL_OK;
}
