/*
 * glu.c - gated units y = act(gate) up, and dropout.
 */
#include "span.h"

static void glu_span(const void *args, int64_t row, int64_t col, int64_t n)
{
    const nrl_glu_args *a = args;
    float g_buf[SPAN], u_buf[SPAN], y_buf[SPAN];
    const float *g = span_read(&a->gate, row, col, n, g_buf);
    const float *u = span_read(&a->up, row, col, n, u_buf);
    float *y = span_target(&a->y, row, col, y_buf);
    if (a->act == NRL_UNARY_SILU) {
        SIMD
        for (int64_t i = 0; i < n; i++)
            y[i] = g[i] * v_sigmoid(g[i]) * u[i];
    } else {
        SIMD
        for (int64_t i = 0; i < n; i++)
            y[i] = v_gelu_tanh(g[i]) * u[i];
    }
    span_write(&a->y, row, col, n, y);
}

static nrl_status check_act(const char *name, uint32_t act)
{
    if (act == NRL_UNARY_SILU || act == NRL_UNARY_GELU_TANH) return NRL_OK;
    return nrl_fail(NRL_ERR_PLUGIN, "backend 'cpu' has no op '%s' with act %u", name, act);
}

OP(glu)
{
    NRL_TRY(check_act("glu", a->act));
    nrl_glu_args k = *a;
    flatten((nrl_mat *[]){&k.gate, &k.up, &k.y}, 3);
    each_span(instance, k.y.rows, k.y.cols, glu_span, &k);
    return NRL_OK;
}

static void glu_grad_span(const void *args, int64_t row, int64_t col, int64_t n)
{
    const nrl_glu_grad_args *a = args;
    float g_buf[SPAN], u_buf[SPAN], dy_buf[SPAN], dg[SPAN], du[SPAN];
    const float *g = span_read(&a->gate, row, col, n, g_buf);
    const float *u = span_read(&a->up, row, col, n, u_buf);
    const float *dy = span_read(&a->dy, row, col, n, dy_buf);
    if (a->act == NRL_UNARY_SILU) {
        SIMD
        for (int64_t i = 0; i < n; i++) {
            float s = v_sigmoid(g[i]);
            du[i] = dy[i] * g[i] * s;
            dg[i] = dy[i] * u[i] * s * (1.0f + g[i] * (1.0f - s));
        }
    } else {
        SIMD
        for (int64_t i = 0; i < n; i++) {
            du[i] = dy[i] * v_gelu_tanh(g[i]);
            dg[i] = dy[i] * u[i] * v_gelu_tanh_slope(g[i]);
        }
    }
    if (a->dgate.data) span_write(&a->dgate, row, col, n, dg);
    if (a->dup.data) span_write(&a->dup, row, col, n, du);
}

OP(glu_grad)
{
    NRL_TRY(check_act("glu_grad", a->act));
    nrl_glu_grad_args k = *a;
    flatten((nrl_mat *[]){&k.gate, &k.up, &k.dy, &k.dgate, &k.dup}, 5);
    each_span(instance, k.dy.rows, k.dy.cols, glu_grad_span, &k);
    return NRL_OK;
}

/* The finaliser of splitmix64 on the key and the index of the element: 24 bits decide. */
ALWAYS_INLINE float uniform(uint64_t key, uint64_t index)
{
    uint64_t z = key + (index + 1) * 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    z ^= z >> 31;
    return (float)(int32_t)(z >> 40) * 0x1p-24f;
}

static void dropout_span(const void *args, int64_t row, int64_t col, int64_t n)
{
    const nrl_dropout_args *a = args;
    float x_buf[SPAN], y_buf[SPAN];
    float p = (float)a->p, scale = (float)(1.0 / (1.0 - a->p));
    uint64_t number = a->rows ? a->rows[row] : (uint64_t)row, first = number * (uint64_t)a->x.cols + (uint64_t)col;
    const float *x = span_read(&a->x, row, col, n, x_buf);
    float *y = span_target(&a->y, row, col, y_buf);
    SIMD
    for (int64_t i = 0; i < n; i++)
        y[i] = uniform(a->key, first + (uint64_t)i) < p ? 0.0f : x[i] * scale;
    span_write(&a->y, row, col, n, y);
}

OP(dropout)
{
    nrl_dropout_args k = *a;
    if (!k.rows) flatten((nrl_mat *[]){&k.x, &k.y}, 2);
    each_span(instance, k.y.rows, k.y.cols, dropout_span, &k);
    return NRL_OK;
}
