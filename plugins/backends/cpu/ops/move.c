/*
 * move.c - fill, copy and where: operations that only move and convert values.
 */
#include "span.h"

/* ---- fill ---- */

static void fill_f32(const void *args, int64_t row, int64_t col, int64_t n)
{
    const nrl_fill_args *a = args;
    float value = (float)a->value, *y = mat_at(&a->y, row, col, 4);
    SIMD
    for (int64_t i = 0; i < n; i++)
        y[i] = value;
}

static void fill_half(const void *args, int64_t row, int64_t col, int64_t n)
{
    const nrl_fill_args *a = args;
    uint16_t value = half_round(a->y.dtype, (float)a->value), *y = mat_at(&a->y, row, col, 2);
    SIMD
    for (int64_t i = 0; i < n; i++)
        y[i] = value;
}

static void fill_i32(const void *args, int64_t row, int64_t col, int64_t n)
{
    const nrl_fill_args *a = args;
    int32_t value = (int32_t)a->value, *y = mat_at(&a->y, row, col, 4);
    SIMD
    for (int64_t i = 0; i < n; i++)
        y[i] = value;
}

static void fill_f64(const void *args, int64_t row, int64_t col, int64_t n)
{
    const nrl_fill_args *a = args;
    double *y = mat_at(&a->y, row, col, 8);
    SIMD
    for (int64_t i = 0; i < n; i++)
        y[i] = a->value;
}

static void fill_u8(const void *args, int64_t row, int64_t col, int64_t n)
{
    const nrl_fill_args *a = args;
    memset(mat_at(&a->y, row, col, 1), (int)a->value, (size_t)n);
}

OP(fill)
{
    nrl_fill_args k = *a;
    flatten((nrl_mat *[]){&k.y}, 1);
    span_body body = NULL;
    switch (k.y.dtype) {
    case NRL_DTYPE_F32:
        body = fill_f32;
        break;
    case NRL_DTYPE_BF16:
    case NRL_DTYPE_F16:
        body = fill_half;
        break;
    case NRL_DTYPE_I32:
        body = fill_i32;
        break;
    case NRL_DTYPE_F64:
        body = fill_f64;
        break;
    case NRL_DTYPE_U8:
        body = fill_u8;
        break;
    default:
        return nrl_fail(NRL_ERR_PLUGIN, "backend 'cpu' cannot fill dtype %s", nrl_dtype_name(k.y.dtype));
    }
    each_span(instance, k.y.rows, k.y.cols, body, &k);
    return NRL_OK;
}

/* ---- copy ---- */

static void copy_bytes(const void *args, int64_t row, int64_t col, int64_t n)
{
    const nrl_copy_args *a = args;
    size_t size = nrl_dtype_size(a->y.dtype);
    memmove(mat_at(&a->y, row, col, size), mat_at(&a->x, row, col, size), (size_t)n * size);
}

static void copy_scaled(const void *args, int64_t row, int64_t col, int64_t n)
{
    const nrl_copy_args *a = args;
    float x_buf[SPAN], y_buf[SPAN];
    float alpha = (float)a->alpha;
    const float *x = span_read(&a->x, row, col, n, x_buf);
    if (alpha == 1.0f && !a->accumulate) {
        span_write(&a->y, row, col, n, x);
        return;
    }
    const float *old = a->accumulate ? span_read(&a->y, row, col, n, y_buf) : NULL;
    float *y = span_target(&a->y, row, col, y_buf);
    if (old) {
        SIMD
        for (int64_t i = 0; i < n; i++)
            y[i] = alpha * x[i] + old[i];
    } else {
        SIMD
        for (int64_t i = 0; i < n; i++)
            y[i] = alpha * x[i];
    }
    span_write(&a->y, row, col, n, y);
}

/* A value of any dtype; used only if one of the two is not a compute dtype. */
static double read_any(const nrl_mat *m, int64_t row, int64_t col)
{
    const void *p = mat_at(m, row, col, nrl_dtype_size(m->dtype));
    switch (m->dtype) {
    case NRL_DTYPE_F32:
        return *(const float *)p;
    case NRL_DTYPE_BF16:
    case NRL_DTYPE_F16:
        return half_widen(m->dtype, *(const uint16_t *)p);
    case NRL_DTYPE_F64:
        return *(const double *)p;
    case NRL_DTYPE_I32:
        return *(const int32_t *)p;
    case NRL_DTYPE_I64:
        return (double)*(const int64_t *)p;
    case NRL_DTYPE_U8:
        return *(const uint8_t *)p;
    default:
        return NAN;
    }
}

static void write_any(const nrl_mat *m, int64_t row, int64_t col, double value)
{
    void *p = mat_at(m, row, col, nrl_dtype_size(m->dtype));
    switch (m->dtype) {
    case NRL_DTYPE_F32:
        *(float *)p = (float)value;
        break;
    case NRL_DTYPE_BF16:
    case NRL_DTYPE_F16:
        *(uint16_t *)p = half_round(m->dtype, (float)value);
        break;
    case NRL_DTYPE_F64:
        *(double *)p = value;
        break;
    case NRL_DTYPE_I32:
        *(int32_t *)p = (int32_t)value;
        break;
    case NRL_DTYPE_I64:
        *(int64_t *)p = (int64_t)value;
        break;
    default:
        *(uint8_t *)p = (uint8_t)value;
        break;
    }
}

static void copy_any(const void *args, int64_t row, int64_t col, int64_t n)
{
    const nrl_copy_args *a = args;
    for (int64_t i = col; i < col + n; i++) {
        double x = a->transpose ? read_any(&a->x, i, row) : read_any(&a->x, row, i);
        double old = a->accumulate ? read_any(&a->y, row, i) : 0;
        write_any(&a->y, row, i, a->alpha * x + old);
    }
}

static bool is_compute(uint32_t dtype)
{
    return dtype == NRL_DTYPE_F32 || half_is(dtype);
}

enum { TRANSPOSE_TILE = 32 };

/* Rows [begin, end) of tiles of y; each tile is read along x's rows. */
static void transpose_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const nrl_copy_args *a = arg;
    float tile[TRANSPOSE_TILE][TRANSPOSE_TILE], x_buf[TRANSPOSE_TILE];
    (void)thread;
    for (int64_t r0 = begin * TRANSPOSE_TILE; r0 < end * TRANSPOSE_TILE && r0 < a->y.rows; r0 += TRANSPOSE_TILE) {
        int64_t nr = a->y.rows - r0 < TRANSPOSE_TILE ? a->y.rows - r0 : TRANSPOSE_TILE;
        for (int64_t c0 = 0; c0 < a->y.cols; c0 += TRANSPOSE_TILE) {
            int64_t nc = a->y.cols - c0 < TRANSPOSE_TILE ? a->y.cols - c0 : TRANSPOSE_TILE;
            for (int64_t c = 0; c < nc; c++) {
                const float *x = span_read(&a->x, c0 + c, r0, nr, x_buf);
                for (int64_t r = 0; r < nr; r++)
                    tile[r][c] = (float)a->alpha * x[r];
            }
            for (int64_t r = 0; r < nr; r++) {
                float *row = tile[r], y_buf[TRANSPOSE_TILE];
                if (a->accumulate) {
                    const float *old = span_read(&a->y, r0 + r, c0, nc, y_buf);
                    for (int64_t c = 0; c < nc; c++)
                        row[c] += old[c];
                }
                span_write(&a->y, r0 + r, c0, nc, row);
            }
        }
    }
}

OP(copy)
{
    nrl_copy_args k = *a;
    if (!is_compute(k.x.dtype) || !is_compute(k.y.dtype)) {
        bool same = k.x.dtype == k.y.dtype && k.alpha == 1 && !k.accumulate && !k.transpose;
        each_span(instance, k.y.rows, k.y.cols, same ? copy_bytes : copy_any, &k);
        return NRL_OK;
    }
    if (k.transpose) {
        int64_t tiles = (k.y.rows + TRANSPOSE_TILE - 1) / TRANSPOSE_TILE;
        cpu_split(instance, tiles, row_grain(TRANSPOSE_TILE * k.y.cols), transpose_range, &k);
        return NRL_OK;
    }
    flatten((nrl_mat *[]){&k.x, &k.y}, 2);
    bool same = k.x.dtype == k.y.dtype && k.alpha == 1 && !k.accumulate;
    each_span(instance, k.y.rows, k.y.cols, same ? copy_bytes : copy_scaled, &k);
    return NRL_OK;
}

/* ---- where ---- */

static void where_span(const void *args, int64_t row, int64_t col, int64_t n)
{
    const nrl_where_args *k = args;
    float m_buf[SPAN], a_buf[SPAN], b_buf[SPAN], y_buf[SPAN];
    if (is_compute(k->mask.dtype)) {
        const float *m = span_read(&k->mask, row, col, n, m_buf);
        if (m != m_buf) memcpy(m_buf, m, (size_t)n * 4);
    } else {
        for (int64_t i = 0; i < n; i++)
            m_buf[i] = read_any(&k->mask, row, col + i) != 0 ? 1 : 0;
    }
    const float *u = span_read(&k->a, row, col, n, a_buf);
    const float *v = span_read(&k->b, row, col, n, b_buf);
    float *y = span_target(&k->y, row, col, y_buf);
    SIMD
    for (int64_t i = 0; i < n; i++)
        y[i] = m_buf[i] != 0.0f ? u[i] : v[i];
    span_write(&k->y, row, col, n, y);
}

OP(where)
{
    nrl_where_args k = *a;
    flatten((nrl_mat *[]){&k.mask, &k.a, &k.b, &k.y}, 4);
    each_span(instance, k.y.rows, k.y.cols, where_span, &k);
    return NRL_OK;
}
