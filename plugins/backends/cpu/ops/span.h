/*
 * span.h - short runs of a matrix's row as f32, whatever its dtype.
 *
 * Operations process spans of at most SPAN elements. An f32 operand is read and written directly; any
 * other dtype passes through a buffer that stays in the first-level cache. So each operation is
 * written once, for f32.
 */
#ifndef CPU_OPS_SPAN_H
#define CPU_OPS_SPAN_H
#include "half.h"

enum { SPAN = 1024 };       /* 4 KiB: several fit into any first-level cache */
enum { GRAIN = 16 * 1024 }; /* enough elements to be worth waking a thread */

static inline void *mat_at(const nrl_mat *m, int64_t row, int64_t col, size_t size)
{
    return (char *)m->data + (size_t)(row * m->stride + col) * size;
}

/* Elements [col, col+n) of a row as f32: in place, or converted into buf. */
static inline const float *span_read(const nrl_mat *m, int64_t row, int64_t col, int64_t n, float *buf)
{
    if (m->dtype == NRL_DTYPE_F32) return mat_at(m, row, col, 4);
    half_to_f32(m->dtype, mat_at(m, row, col, 2), buf, n);
    return buf;
}

/* Where to write the values that span_write will store. */
static inline float *span_target(const nrl_mat *m, int64_t row, int64_t col, float *buf)
{
    return m->dtype == NRL_DTYPE_F32 ? mat_at(m, row, col, 4) : buf;
}

static inline void span_write(const nrl_mat *m, int64_t row, int64_t col, int64_t n, const float *values)
{
    if (half_is(m->dtype))
        f32_to_half(m->dtype, values, mat_at(m, row, col, 2), n);
    else if (values != mat_at(m, row, col, 4))
        memcpy(mat_at(m, row, col, 4), values, (size_t)n * 4);
}

/* Element i of a vector (one row, or one column) of R values. */
static inline float vector_get(const nrl_mat *m, int64_t i)
{
    int64_t at = m->cols == 1 && m->rows != 1 ? i * m->stride : i;
    return m->dtype == NRL_DTYPE_F32 ? ((const float *)m->data)[at]
                                     : half_widen(m->dtype, ((const uint16_t *)m->data)[at]);
}

static inline void vector_set(const nrl_mat *m, int64_t i, float value)
{
    int64_t at = m->cols == 1 && m->rows != 1 ? i * m->stride : i;
    if (m->dtype == NRL_DTYPE_F32)
        ((float *)m->data)[at] = value;
    else
        ((uint16_t *)m->data)[at] = half_round(m->dtype, value);
}

/* ---- loops over whole matrices of one shape ---- */

typedef void (*span_body)(const void *args, int64_t row, int64_t col, int64_t n);

typedef struct {
    span_body body;
    const void *args;
    int64_t cols, per_row;
} span_loop;

static void span_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const span_loop *l = arg;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        int64_t row = i / l->per_row, col = i % l->per_row * SPAN;
        int64_t n = l->cols - col < SPAN ? l->cols - col : SPAN;
        l->body(l->args, row, col, n);
    }
}

/* Calls body for each span of a rows x cols matrix, on all threads if the matrix is large enough. */
static inline void each_span(const cpu *self, int64_t rows, int64_t cols, span_body body, const void *args)
{
    if (rows <= 0 || cols <= 0) return;
    span_loop l = {body, args, cols, (cols + SPAN - 1) / SPAN};
    int64_t length = cols < SPAN ? cols : SPAN;
    cpu_split(self, rows * l.per_row, (GRAIN + length - 1) / length, span_range, &l);
}

/* Turns n matrices of one shape into a single row each if none has gaps between rows. */
static inline void flatten(nrl_mat *const *mats, int n)
{
    for (int i = 0; i < n; i++)
        if (mats[i]->data && mats[i]->stride != mats[i]->cols && mats[i]->rows != 1) return;
    for (int i = 0; i < n; i++) {
        if (!mats[i]->data) continue;
        mats[i]->cols *= mats[i]->rows;
        mats[i]->rows = 1;
        mats[i]->stride = mats[i]->cols;
    }
}

/* Minimum number of rows per thread, for work of `cost` elements per row. */
static inline int64_t row_grain(int64_t cost)
{
    return cost >= GRAIN ? 1 : (GRAIN + cost - 1) / (cost > 0 ? cost : 1);
}

#endif
