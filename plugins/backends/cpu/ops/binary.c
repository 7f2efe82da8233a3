/*
 * binary.c - functions of two values; the second is broadcast if it has one row or one column.
 */
#include "span.h"

static nrl_status check_op(const char *name, uint32_t op)
{
    if (op > NRL_BINARY_NONE && op < NRL_BINARY_COUNT) return NRL_OK;
    return nrl_fail(NRL_ERR_PLUGIN, "backend 'cpu' has no op '%s' number %u", name, op);
}

/* A span of b as if it had a's shape. */
static const float *read_broadcast(const nrl_mat *b, int64_t row, int64_t col, int64_t n, float *buf)
{
    int64_t r = b->rows == 1 ? 0 : row;
    if (b->cols != 1 || n == 1) return span_read(b, r, b->cols == 1 ? 0 : col, n, buf);
    float one[1];
    float value = *span_read(b, r, 0, 1, one);
    SIMD
    for (int64_t i = 0; i < n; i++)
        buf[i] = value;
    return buf;
}

#define MAP(expression)                                                                                                \
    SIMD                                                                                                               \
    for (int64_t i = 0; i < n; i++) {                                                                                  \
        float u = a[i], v = b[i];                                                                                      \
        y[i] = (expression);                                                                                           \
    }                                                                                                                  \
    break

static void apply(uint32_t op, const float *a, const float *b, float *y, int64_t n)
{
    /* clang-format off */
    switch (op) {
    case NRL_BINARY_ADD: MAP(u + v);
    case NRL_BINARY_SUB: MAP(u - v);
    case NRL_BINARY_MUL: MAP(u * v);
    case NRL_BINARY_DIV: MAP(u / v);
    case NRL_BINARY_MIN: MAP(u < v || u != u ? u : v);
    case NRL_BINARY_MAX: MAP(u > v || u != u ? u : v);
    case NRL_BINARY_GREATER: MAP(u > v ? 1.0f : 0.0f);
    default: break;
    }
    /* clang-format on */
}
#undef MAP

#define MAP(to_a, to_b)                                                                                                \
    SIMD                                                                                                               \
    for (int64_t i = 0; i < n; i++) {                                                                                  \
        float u = a[i], v = b[i], g = dy[i];                                                                           \
        (void)u, (void)v;                                                                                              \
        da[i] = (to_a);                                                                                                \
        db[i] = (to_b);                                                                                                \
    }                                                                                                                  \
    break

static void apply_grad(uint32_t op, const float *a, const float *b, const float *dy, float *da, float *db, int64_t n)
{
    /* clang-format off */
    switch (op) {
    case NRL_BINARY_ADD: MAP(g, g);
    case NRL_BINARY_SUB: MAP(g, -g);
    case NRL_BINARY_MUL: MAP(g * v, g * u);
    case NRL_BINARY_DIV: MAP(g / v, -g * (u / v) / v);
    case NRL_BINARY_MIN:
        MAP(u < v ? g : u == v ? 0.5f * g : 0.0f, u > v ? g : u == v ? 0.5f * g : 0.0f);
    case NRL_BINARY_MAX:
        MAP(u > v ? g : u == v ? 0.5f * g : 0.0f, u < v ? g : u == v ? 0.5f * g : 0.0f);
    default: MAP(0.0f * g, 0.0f * g); /* NRL_BINARY_GREATER: check_op refuses all others */
    }
    /* clang-format on */
}
#undef MAP

static void binary_span(const void *args, int64_t row, int64_t col, int64_t n)
{
    const nrl_binary_args *k = args;
    float a_buf[SPAN], b_buf[SPAN], y_buf[SPAN];
    const float *a = read_broadcast(&k->a, row, col, n, a_buf);
    const float *b = read_broadcast(&k->b, row, col, n, b_buf);
    float *y = span_target(&k->y, row, col, y_buf);
    apply(k->op, a, b, y, n);
    span_write(&k->y, row, col, n, y);
}

static bool same_shape(const nrl_mat *a, const nrl_mat *b)
{
    return a->rows == b->rows && a->cols == b->cols;
}

OP(binary)
{
    NRL_TRY(check_op("binary", a->op));
    nrl_binary_args k = *a;
    if (same_shape(&k.a, &k.b) && same_shape(&k.a, &k.y)) flatten((nrl_mat *[]){&k.a, &k.b, &k.y}, 3);
    each_span(instance, k.y.rows, k.y.cols, binary_span, &k);
    return NRL_OK;
}

static void binary_grad_span(const void *args, int64_t row, int64_t col, int64_t n)
{
    const nrl_binary_grad_args *k = args;
    float a_buf[SPAN], b_buf[SPAN], dy_buf[SPAN], da_buf[SPAN], db_buf[SPAN];
    const float *dy = span_read(&k->dy, row, col, n, dy_buf);
    const float *a = k->a.data ? read_broadcast(&k->a, row, col, n, a_buf) : dy;
    const float *b = k->b.data ? read_broadcast(&k->b, row, col, n, b_buf) : dy;
    apply_grad(k->op, a, b, dy, da_buf, db_buf, n);
    if (k->da.data) span_write(&k->da, row, col, n, da_buf);
    if (k->db.data) span_write(&k->db, row, col, n, db_buf);
}

OP(binary_grad)
{
    NRL_TRY(check_op("binary_grad", a->op));
    nrl_binary_grad_args k = *a;
    bool flat = (!k.a.data || same_shape(&k.a, &k.dy)) && (!k.b.data || same_shape(&k.b, &k.dy));
    if (flat) flatten((nrl_mat *[]){&k.a, &k.b, &k.dy, &k.da, &k.db}, 5);
    each_span(instance, k.dy.rows, k.dy.cols, binary_grad_span, &k);
    return NRL_OK;
}
