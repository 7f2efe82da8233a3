/*
 * reduce.c - sums, maxima, log-sum-exp, softmax and the sum of squares.
 *
 * Work is split into chunks whose size depends only on the shape, and partial results are combined in
 * order, so results do not depend on the number of threads. Sums are f32 inside a span and double
 * beyond; sums of squares are double throughout.
 */
#include "span.h"

/* max that keeps NaN */
ALWAYS_INLINE float max_nan(float a, float b)
{
    return a > b || a != a ? a : b;
}

static double span_sum(const float *x, int64_t n)
{
    float s = 0;
#pragma omp simd reduction(+ : s)
    for (int64_t i = 0; i < n; i++)
        s += x[i];
    return s;
}

static float span_max(const float *x, int64_t n)
{
    float m = -INFINITY, bad = 0;
#pragma omp simd reduction(max : m) reduction(+ : bad)
    for (int64_t i = 0; i < n; i++) {
        m = x[i] > m ? x[i] : m;
        bad += x[i] != x[i] ? 1.0f : 0.0f;
    }
    return bad > 0 ? NAN : m;
}

static double span_sum_exp(const float *x, int64_t n, float shift)
{
    float s = 0;
#pragma omp simd reduction(+ : s)
    for (int64_t i = 0; i < n; i++)
        s += v_exp_flush(x[i] - shift);
    return s;
}

/* Squares do not cancel: the rounding error of an f32 sum would grow with the span, and more so with fewer lanes. */
static double span_sum_square(const float *x, int64_t n)
{
    double s = 0;
#pragma omp simd reduction(+ : s)
    for (int64_t i = 0; i < n; i++)
        s += (double)x[i] * x[i];
    return s;
}

/* ---- partial results and how they combine ---- */

typedef struct {
    double sum; /* of values, or of exp(x - max) */
    float max;
} part;

/* Shift that keeps exp(x - shift) finite and exp(-inf - shift) zero. */
ALWAYS_INLINE float safe_shift(float max)
{
    return max == -INFINITY || max == INFINITY ? 0.0f : max;
}

static part part_of_span(uint32_t op, const float *x, int64_t n)
{
    part p = {0, -INFINITY};
    if (op == NRL_REDUCTION_SUM) {
        p.sum = span_sum(x, n);
        return p;
    }
    p.max = span_max(x, n);
    if (op == NRL_REDUCTION_LOG_SUM_EXP && fabsf(p.max) != INFINITY) p.sum = span_sum_exp(x, n, p.max);
    return p;
}

static part part_join(uint32_t op, part a, part b)
{
    if (op == NRL_REDUCTION_SUM) return (part){a.sum + b.sum, 0};
    part p = {0, max_nan(a.max, b.max)};
    if (op == NRL_REDUCTION_LOG_SUM_EXP && fabsf(p.max) != INFINITY)
        p.sum = a.sum * exp((double)a.max - p.max) + b.sum * exp((double)b.max - p.max);
    return p;
}

static part part_start(void)
{
    return (part){0, -INFINITY};
}

static double part_value(uint32_t op, part p)
{
    if (op == NRL_REDUCTION_SUM) return p.sum;
    if (op == NRL_REDUCTION_MAX || fabsf(p.max) == INFINITY) return p.max;
    return p.max + log(p.sum);
}

/* Adds the previous value if the result is not overwritten. */
static double add_to(uint32_t op, double old, double value)
{
    if (op == NRL_REDUCTION_SUM) return old + value;
    double high = old > value || old != old ? old : value;
    if (op == NRL_REDUCTION_MAX || fabs(high) == INFINITY) return high;
    double low = old > value ? value : old;
    return high + log1p(exp(low - high));
}

static void store(const nrl_reduce_args *a, int64_t i, double value)
{
    if (!a->overwrite) value = add_to(a->op, vector_get(&a->y, i), value);
    vector_set(&a->y, i, (float)value);
}

/* ---- over columns: a row is one task ---- */

static void reduce_columns(void *arg, int64_t begin, int64_t end, int thread)
{
    const nrl_reduce_args *a = arg;
    float buf[SPAN];
    (void)thread;
    for (int64_t row = begin; row < end; row++) {
        part p = part_start();
        for (int64_t col = 0; col < a->x.cols; col += SPAN) {
            int64_t n = a->x.cols - col < SPAN ? a->x.cols - col : SPAN;
            p = part_join(a->op, p, part_of_span(a->op, span_read(&a->x, row, col, n, buf), n));
        }
        store(a, row, part_value(a->op, p));
    }
}

/* ---- over rows: a stripe of columns is one task ---- */

enum { STRIPE = 64, BLOCK_ROWS = 64 };

static void stripe_sum(const nrl_reduce_args *a, int64_t col, int64_t n, double *total)
{
    float buf[STRIPE], block[STRIPE];
    for (int64_t r0 = 0; r0 < a->x.rows; r0 += BLOCK_ROWS) {
        int64_t r1 = r0 + BLOCK_ROWS < a->x.rows ? r0 + BLOCK_ROWS : a->x.rows;
        memset(block, 0, sizeof block);
        for (int64_t r = r0; r < r1; r++) {
            const float *x = span_read(&a->x, r, col, n, buf);
            SIMD
            for (int64_t i = 0; i < n; i++)
                block[i] += x[i];
        }
        SIMD
        for (int64_t i = 0; i < n; i++)
            total[i] += block[i];
    }
}

static void stripe_max(const nrl_reduce_args *a, int64_t col, int64_t n, float *max)
{
    float buf[STRIPE];
    SIMD
    for (int64_t i = 0; i < n; i++)
        max[i] = -INFINITY;
    for (int64_t r = 0; r < a->x.rows; r++) {
        const float *x = span_read(&a->x, r, col, n, buf);
        SIMD
        for (int64_t i = 0; i < n; i++)
            max[i] = max_nan(max[i], x[i]);
    }
}

static void reduce_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    const nrl_reduce_args *a = arg;
    (void)thread;
    for (int64_t s = begin; s < end; s++) {
        int64_t col = s * STRIPE, n = a->x.cols - col < STRIPE ? a->x.cols - col : STRIPE;
        double total[STRIPE] = {0};
        float max[STRIPE], buf[STRIPE];
        if (a->op == NRL_REDUCTION_SUM)
            stripe_sum(a, col, n, total);
        else
            stripe_max(a, col, n, max);
        for (int64_t r = 0; a->op == NRL_REDUCTION_LOG_SUM_EXP && r < a->x.rows; r++) {
            const float *x = span_read(&a->x, r, col, n, buf);
            for (int64_t i = 0; i < n; i++)
                total[i] += v_exp_flush(x[i] - safe_shift(max[i]));
        }
        for (int64_t i = 0; i < n; i++) {
            part p = {total[i], a->op == NRL_REDUCTION_SUM ? 0 : max[i]};
            store(a, col + i, part_value(a->op, p));
        }
    }
}

/* ---- over everything: chunks of spans, joined in order ---- */

typedef struct {
    nrl_mat x;
    uint32_t op;
    bool square; /* sum of squares instead */
    int64_t per_row, per_chunk;
    part *parts;
} total_task;

enum { MAX_CHUNKS = 1024 };

static void total_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const total_task *t = arg;
    float buf[SPAN];
    (void)thread;
    int64_t spans = t->x.rows * t->per_row;
    for (int64_t chunk = begin; chunk < end; chunk++) {
        part p = part_start();
        int64_t last = (chunk + 1) * t->per_chunk < spans ? (chunk + 1) * t->per_chunk : spans;
        for (int64_t i = chunk * t->per_chunk; i < last; i++) {
            int64_t col = i % t->per_row * SPAN;
            int64_t n = t->x.cols - col < SPAN ? t->x.cols - col : SPAN;
            const float *x = span_read(&t->x, i / t->per_row, col, n, buf);
            if (t->square)
                p.sum += span_sum_square(x, n);
            else
                p = part_join(t->op, p, part_of_span(t->op, x, n));
        }
        t->parts[chunk] = p;
    }
}

static part total(const cpu *self, const nrl_mat *x, uint32_t op, bool square)
{
    part parts[MAX_CHUNKS];
    total_task t = {.x = *x, .op = op, .square = square, .parts = parts};
    flatten((nrl_mat *[]){&t.x}, 1);
    t.per_row = (t.x.cols + SPAN - 1) / SPAN;
    int64_t spans = t.x.rows * t.per_row;
    t.per_chunk = (spans + MAX_CHUNKS - 1) / MAX_CHUNKS;
    if (t.per_chunk < 4) t.per_chunk = 4;
    int64_t chunks = (spans + t.per_chunk - 1) / t.per_chunk;
    int64_t cost = t.per_chunk * (t.x.cols < SPAN ? t.x.cols : SPAN);
    cpu_split(self, chunks, row_grain(cost), total_range, &t);
    part p = part_start();
    for (int64_t i = 0; i < chunks; i++)
        p = part_join(op, p, parts[i]);
    return p;
}

OP(reduce)
{
    nrl_reduce_args k = *a;
    if (k.op == NRL_REDUCTION_NONE || k.op > NRL_REDUCTION_LOG_SUM_EXP)
        return nrl_fail(NRL_ERR_PLUGIN, "backend 'cpu' has no reduction number %u", k.op);
    switch (k.axis) {
    case NRL_AXIS_ALL:
        store(&k, 0, part_value(k.op, total(instance, &k.x, k.op, false)));
        return NRL_OK;
    case NRL_AXIS_ROWS:
        cpu_split(instance, (k.x.cols + STRIPE - 1) / STRIPE, row_grain(k.x.rows * STRIPE), reduce_rows, &k);
        return NRL_OK;
    case NRL_AXIS_COLUMNS:
        cpu_split(instance, k.x.rows, row_grain(k.x.cols), reduce_columns, &k);
        return NRL_OK;
    default:
        return nrl_fail(NRL_ERR_PLUGIN, "backend 'cpu' has no reduction axis %u", k.axis);
    }
}

OP(square_sum)
{
    double sum = total(instance, &a->x, NRL_REDUCTION_SUM, true).sum;
    *a->out = a->overwrite ? sum : *a->out + sum;
    return NRL_OK;
}

/* ---- softmax over columns ---- */

static double row_log_sum_exp(const nrl_mat *x, int64_t row)
{
    float buf[SPAN];
    part p = part_start();
    for (int64_t col = 0; col < x->cols; col += SPAN) {
        int64_t n = x->cols - col < SPAN ? x->cols - col : SPAN;
        part q = part_of_span(NRL_REDUCTION_LOG_SUM_EXP, span_read(x, row, col, n, buf), n);
        p = part_join(NRL_REDUCTION_LOG_SUM_EXP, p, q);
    }
    return part_value(NRL_REDUCTION_LOG_SUM_EXP, p);
}

static void softmax_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    const nrl_softmax_args *a = arg;
    float x_buf[SPAN], y_buf[SPAN];
    (void)thread;
    for (int64_t row = begin; row < end; row++) {
        double lse = row_log_sum_exp(&a->x, row);
        float high = (float)lse, low = (float)(lse - high); /* both parts: y keeps full precision */
        if (lse - lse != 0) low = 0;
        for (int64_t col = 0; col < a->x.cols; col += SPAN) {
            int64_t n = a->x.cols - col < SPAN ? a->x.cols - col : SPAN;
            const float *x = span_read(&a->x, row, col, n, x_buf);
            float *y = span_target(&a->y, row, col, y_buf);
            if (a->log) {
                SIMD
                for (int64_t i = 0; i < n; i++)
                    y[i] = (x[i] - high) - low;
            } else {
                SIMD
                for (int64_t i = 0; i < n; i++)
                    y[i] = v_exp_flush((x[i] - high) - low);
            }
            span_write(&a->y, row, col, n, y);
        }
    }
}

OP(softmax)
{
    nrl_softmax_args k = *a;
    cpu_split(instance, k.x.rows, row_grain(4 * k.x.cols), softmax_rows, &k);
    return NRL_OK;
}

/* softmax: dx = y (dy - sum y dy); log_softmax: dx = dy - exp(y) sum dy. */
static void softmax_grad_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    const nrl_softmax_grad_args *a = arg;
    float y_buf[SPAN], dy_buf[SPAN], dx_buf[SPAN];
    (void)thread;
    for (int64_t row = begin; row < end; row++) {
        double sum = 0;
        for (int64_t col = 0; col < a->y.cols; col += SPAN) {
            int64_t n = a->y.cols - col < SPAN ? a->y.cols - col : SPAN;
            const float *y = span_read(&a->y, row, col, n, y_buf);
            const float *dy = span_read(&a->dy, row, col, n, dy_buf);
            float s = 0;
#pragma omp simd reduction(+ : s)
            for (int64_t i = 0; i < n; i++)
                s += a->log ? dy[i] : y[i] * dy[i];
            sum += s;
        }
        float total_sum = (float)sum;
        for (int64_t col = 0; col < a->y.cols; col += SPAN) {
            int64_t n = a->y.cols - col < SPAN ? a->y.cols - col : SPAN;
            const float *y = span_read(&a->y, row, col, n, y_buf);
            const float *dy = span_read(&a->dy, row, col, n, dy_buf);
            float *dx = span_target(&a->dx, row, col, dx_buf);
            if (a->log) {
                SIMD
                for (int64_t i = 0; i < n; i++)
                    dx[i] = dy[i] - v_exp_flush(y[i]) * total_sum;
            } else {
                SIMD
                for (int64_t i = 0; i < n; i++)
                    dx[i] = y[i] * (dy[i] - total_sum);
            }
            span_write(&a->dx, row, col, n, dx);
        }
    }
}

OP(softmax_grad)
{
    nrl_softmax_grad_args k = *a;
    cpu_split(instance, k.y.rows, row_grain(4 * k.y.cols), softmax_grad_rows, &k);
    return NRL_OK;
}
