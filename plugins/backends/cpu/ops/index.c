/*
 * index.c - rows picked by index, and gradients added back to them in order.
 */
#include "span.h"

static nrl_status check_index(const int32_t *index, int64_t n, int64_t rows)
{
    for (int64_t i = 0; i < n; i++)
        if (index[i] < -1 || index[i] >= rows)
            return nrl_fail(NRL_ERR_BUG, "row index %d of a matrix of %lld rows", index[i], (long long)rows);
    return NRL_OK;
}

static void gather_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    const nrl_gather_args *a = arg;
    float buf[SPAN];
    (void)thread;
    for (int64_t row = begin; row < end; row++) {
        for (int64_t col = 0; col < a->y.cols; col += SPAN) {
            int64_t n = a->y.cols - col < SPAN ? a->y.cols - col : SPAN;
            const float *x = buf;
            if (a->index[row] >= 0)
                x = span_read(&a->x, a->index[row], col, n, buf);
            else
                memset(buf, 0, sizeof buf);
            span_write(&a->y, row, col, n, x);
        }
    }
}

OP(gather)
{
    nrl_gather_args k = *a;
    NRL_TRY(check_index(k.index, k.y.rows, k.x.rows));
    cpu_split(instance, k.y.rows, row_grain(k.y.cols), gather_rows, &k);
    return NRL_OK;
}

enum { STRIPE = 32 }; /* columns: a thread owns whole stripes, so that equal rows are added in order */

static void scatter_stripe(const nrl_scatter_args *a, int64_t row, int64_t col, int64_t n)
{
    float dy_buf[SPAN], dx_buf[SPAN];
    const float *dy = span_read(&a->dy, row, col, n, dy_buf);
    const float *old = span_read(&a->dx, a->index[row], col, n, dx_buf);
    float *dx = span_target(&a->dx, a->index[row], col, dx_buf);
    SIMD
    for (int64_t i = 0; i < n; i++)
        dx[i] = old[i] + dy[i];
    span_write(&a->dx, a->index[row], col, n, dx);
}

static void scatter_columns(void *arg, int64_t begin, int64_t end, int thread)
{
    const nrl_scatter_args *a = arg;
    int64_t last = end * STRIPE < a->dx.cols ? end * STRIPE : a->dx.cols;
    (void)thread;
    for (int64_t row = 0; row < a->dy.rows; row++) {
        if (a->index[row] < 0) continue;
        for (int64_t col = begin * STRIPE; col < last; col += SPAN)
            scatter_stripe(a, row, col, last - col < SPAN ? last - col : SPAN);
    }
}

OP(scatter)
{
    nrl_scatter_args k = *a;
    NRL_TRY(check_index(k.index, k.dy.rows, k.dx.rows));
    if (k.overwrite) {
        nrl_fill_args zero = {.size = sizeof zero, .y = k.dx};
        NRL_TRY(ISA(cpu_fill)(instance, NULL, &zero));
    }
    int64_t stripes = (k.dx.cols + STRIPE - 1) / STRIPE;
    cpu_split(instance, stripes, row_grain(k.dy.rows * STRIPE), scatter_columns, &k);
    return NRL_OK;
}
