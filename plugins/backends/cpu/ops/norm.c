/*
 * norm.c - RMS and layer normalisation, with the residual sum in the same pass over memory.
 *
 * A row of x has x.cols / weight.cols groups (heads), each normalised separately. Rows are processed
 * as f32 in scratch; sums are f32 inside a span, double beyond.
 */
#include "span.h"

enum { NORM_ROWS = 5 }; /* rows of scratch per thread */

static double sum_of(const float *x, int64_t n)
{
    double total = 0;
    for (int64_t c = 0; c < n; c += SPAN) {
        int64_t end = n - c < SPAN ? n : c + SPAN;
        float s = 0;
#pragma omp simd reduction(+ : s)
        for (int64_t i = c; i < end; i++)
            s += x[i];
        total += s;
    }
    return total;
}

/* sum of (x - shift)^2 */
static double square_of(const float *x, float shift, int64_t n)
{
    double total = 0;
    for (int64_t c = 0; c < n; c += SPAN) {
        int64_t end = n - c < SPAN ? n : c + SPAN;
        float s = 0;
#pragma omp simd reduction(+ : s)
        for (int64_t i = c; i < end; i++)
            s += (x[i] - shift) * (x[i] - shift);
        total += s;
    }
    return total;
}

static size_t row_bytes(int64_t cols)
{
    return ((size_t)cols * 4 + 63) / 64 * 64;
}

typedef struct {
    const cpu *self;
    const nrl_norm_args *a;
} norm_task;

/* x + residual, rounded to the dtype of sum, because the backward reads the sum from there. */
static const float *add_residual(const nrl_norm_args *a, int64_t row, int64_t col, int64_t n, float *x_buf,
                                 float *sum_buf)
{
    const float *x = span_read(&a->x, row, col, n, x_buf);
    if (!a->residual.data) return x;
    float *sum = a->sum.data ? span_target(&a->sum, row, col, sum_buf) : sum_buf;
    const float *r = span_read(&a->residual, row, col, n, sum_buf);
    SIMD
    for (int64_t i = 0; i < n; i++)
        sum[i] = x[i] + r[i];
    if (!a->sum.data) return sum;
    span_write(&a->sum, row, col, n, sum);
    return span_read(&a->sum, row, col, n, sum_buf);
}

static void norm_group(const nrl_norm_args *a, int64_t row, int64_t group, const float *w, const float *b, float *x_buf,
                       float *sum_buf)
{
    int64_t n = a->weight.cols, col = group * n;
    int64_t at = row * (a->x.cols / n) + group;
    const float *x = add_residual(a, row, col, n, x_buf, sum_buf);
    float mean = a->rms ? 0 : (float)(sum_of(x, n) / (double)n);
    float rstd = (float)(1.0 / sqrt(square_of(x, mean, n) / (double)n + a->eps));
    float *y = span_target(&a->y, row, col, x_buf);
    if (b) {
        SIMD
        for (int64_t i = 0; i < n; i++)
            y[i] = (x[i] - mean) * rstd * w[i] + b[i];
    } else {
        SIMD
        for (int64_t i = 0; i < n; i++)
            y[i] = (x[i] - mean) * rstd * w[i];
    }
    span_write(&a->y, row, col, n, y);
    if (a->rstd.data) vector_set(&a->rstd, at, rstd);
    if (a->mean.data) vector_set(&a->mean, at, mean);
}

static void norm_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    const norm_task *t = arg;
    const nrl_norm_args *a = t->a;
    int64_t n = a->weight.cols;
    char *scratch = cpu_scratch_at(t->self, thread);
    float *x_buf = (float *)scratch;
    float *sum_buf = (float *)(scratch + row_bytes(n));
    const float *w = span_read(&a->weight, 0, 0, n, (float *)(scratch + 2 * row_bytes(n)));
    const float *b = NULL;
    if (a->bias.data) b = span_read(&a->bias, 0, 0, n, (float *)(scratch + 3 * row_bytes(n)));
    for (int64_t row = begin; row < end; row++)
        for (int64_t group = 0; group < a->x.cols / n; group++)
            norm_group(a, row, group, w, b, x_buf, sum_buf);
}

/* Views rstd or mean, R * groups values in any layout, as one row. */
static void as_vector(nrl_mat *m)
{
    if (!m->data || m->stride != m->cols) return;
    m->cols *= m->rows;
    m->rows = 1;
    m->stride = m->cols;
}

static nrl_status check_groups(int64_t cols, int64_t width)
{
    if (width > 0 && cols % width == 0) return NRL_OK;
    return nrl_fail(NRL_ERR_BUG, "norm of %lld columns in groups of %lld", (long long)cols, (long long)width);
}

OP(norm)
{
    nrl_norm_args k = *a;
    NRL_TRY(check_groups(k.x.cols, k.weight.cols));
    NRL_TRY(cpu_scratch(instance, NORM_ROWS * row_bytes(k.weight.cols)));
    as_vector(&k.rstd);
    as_vector(&k.mean);
    norm_task t = {instance, &k};
    cpu_split(instance, k.x.rows, row_grain(k.x.cols), norm_rows, &t);
    return NRL_OK;
}

/* ---- backward ----
 * With h = (x - mean) rstd and g = dy w:  dx = rstd (g - mean(g) - h mean(g h)) + dsum,
 * where mean(g) is omitted for rms. dweight = sum over rows of dy h, dbias = sum of dy: each chunk of rows
 * is summed separately, then the chunks are added in order. */

typedef struct {
    const cpu *self;
    const nrl_norm_grad_args *a;
    int64_t chunk_rows;
    float *partial; /* [chunks, 2, width]: dweight, dbias; NULL = not needed */
} grad_task;

typedef struct {
    const float *x, *dy, *w;
    float mean, rstd;
} grad_row;

/* *sum_g = sum of g, *sum_gh = sum of g h */
static void grad_sums(const grad_row *r, int64_t n, double *sum_g, double *sum_gh)
{
    const float *x = r->x, *dy = r->dy, *w = r->w;
    float mean = r->mean, rstd = r->rstd;
    *sum_g = *sum_gh = 0;
    for (int64_t c = 0; c < n; c += SPAN) {
        int64_t end = n - c < SPAN ? n : c + SPAN;
        float s = 0, t = 0;
#pragma omp simd reduction(+ : s, t)
        for (int64_t i = c; i < end; i++) {
            float g = dy[i] * w[i];
            s += g;
            t += g * ((x[i] - mean) * rstd);
        }
        *sum_g += s;
        *sum_gh += t;
    }
}

/* dw += dy h, db += dy */
static void grad_weights(const grad_row *r, int64_t n, float *dw, float *db)
{
    const float *x = r->x, *dy = r->dy;
    float mean = r->mean, rstd = r->rstd;
    if (dw) {
        SIMD
        for (int64_t i = 0; i < n; i++)
            dw[i] += dy[i] * ((x[i] - mean) * rstd);
    }
    if (db) {
        SIMD
        for (int64_t i = 0; i < n; i++)
            db[i] += dy[i];
    }
}

/* dx = rstd (g - mean_g - h mean_gh) + dsum */
static void grad_input(const grad_row *r, int64_t n, float mean_g, float mean_gh, const float *dsum, float *dx)
{
    const float *x = r->x, *dy = r->dy, *w = r->w;
    float mean = r->mean, rstd = r->rstd, slope = rstd * mean_gh;
    if (dsum) {
        SIMD
        for (int64_t i = 0; i < n; i++)
            dx[i] = rstd * (dy[i] * w[i] - mean_g - (x[i] - mean) * slope) + dsum[i];
    } else {
        SIMD
        for (int64_t i = 0; i < n; i++)
            dx[i] = rstd * (dy[i] * w[i] - mean_g - (x[i] - mean) * slope);
    }
}

static void grad_group(const nrl_norm_grad_args *a, int64_t row, int64_t group, const float *w, float *dw, float *db,
                       float *const buf[3])
{
    int64_t n = a->weight.cols, col = group * n;
    int64_t at = row * (a->x.cols / n) + group;
    grad_row r = {.w = w, .rstd = vector_get(&a->rstd, at)};
    r.x = span_read(&a->x, row, col, n, buf[0]);
    r.dy = span_read(&a->dy, row, col, n, buf[1]);
    r.mean = a->rms ? 0 : vector_get(&a->mean, at);
    grad_weights(&r, n, dw, db);
    if (!a->dx.data) return;
    double sum_g, sum_gh;
    grad_sums(&r, n, &sum_g, &sum_gh);
    const float *dsum = a->dsum.data ? span_read(&a->dsum, row, col, n, buf[2]) : NULL;
    float *dx = span_target(&a->dx, row, col, buf[2]);
    grad_input(&r, n, a->rms ? 0 : (float)(sum_g / (double)n), (float)(sum_gh / (double)n), dsum, dx);
    span_write(&a->dx, row, col, n, dx);
}

static void grad_chunks(void *arg, int64_t begin, int64_t end, int thread)
{
    const grad_task *t = arg;
    const nrl_norm_grad_args *a = t->a;
    int64_t n = a->weight.cols;
    char *scratch = cpu_scratch_at(t->self, thread);
    float *buf[3];
    for (int i = 0; i < 3; i++)
        buf[i] = (float *)(scratch + (size_t)i * row_bytes(n));
    const float *w = span_read(&a->weight, 0, 0, n, (float *)(scratch + 3 * row_bytes(n)));
    for (int64_t chunk = begin; chunk < end; chunk++) {
        float *dw = NULL, *db = NULL;
        if (t->partial) {
            float *p = t->partial + chunk * 2 * n;
            memset(p, 0, (size_t)n * 2 * sizeof *p);
            dw = a->dweight.data ? p : NULL;
            db = a->dbias.data ? p + n : NULL;
        }
        int64_t last = (chunk + 1) * t->chunk_rows;
        if (last > a->x.rows) last = a->x.rows;
        for (int64_t row = chunk * t->chunk_rows; row < last; row++)
            for (int64_t group = 0; group < a->x.cols / n; group++)
                grad_group(a, row, group, w, dw, db, buf);
    }
}

/* out = sum of the chunks' partials (+ out); f32 vector of n values. */
static void join_partials(const nrl_mat *out, bool overwrite, const float *partial, int64_t chunks, int64_t n)
{
    for (int64_t c = 0; c < n; c += SPAN) {
        int64_t m = n - c < SPAN ? n - c : SPAN;
        double total[SPAN];
        for (int64_t i = 0; i < m; i++)
            total[i] = overwrite ? 0 : vector_get(out, c + i);
        for (int64_t k = 0; k < chunks; k++) {
            const float *p = partial + k * 2 * n + c;
            SIMD
            for (int64_t i = 0; i < m; i++)
                total[i] += p[i];
        }
        for (int64_t i = 0; i < m; i++)
            vector_set(out, c + i, (float)total[i]);
    }
}

enum { CHUNK_ROWS = 16, MAX_CHUNKS = 128 };

OP(norm_grad)
{
    nrl_norm_grad_args k = *a;
    int64_t n = k.weight.cols;
    NRL_TRY(check_groups(k.x.cols, n));
    NRL_TRY(cpu_scratch(instance, NORM_ROWS * row_bytes(n)));
    as_vector(&k.rstd);
    as_vector(&k.mean);
    grad_task t = {instance, &k, CHUNK_ROWS, NULL};
    if (k.x.rows > CHUNK_ROWS * MAX_CHUNKS) t.chunk_rows = (k.x.rows + MAX_CHUNKS - 1) / MAX_CHUNKS;
    int64_t chunks = (k.x.rows + t.chunk_rows - 1) / t.chunk_rows;
    bool wanted = k.dweight.data || k.dbias.data;
    void *memory = NULL;
    if (wanted) NRL_TRY(cpu_work(instance, (size_t)(chunks * 2 * n) * sizeof(float), &memory));
    t.partial = memory;
    cpu_split(instance, chunks, row_grain(t.chunk_rows * k.x.cols), grad_chunks, &t);
    if (k.dweight.data) join_partials(&k.dweight, k.overwrite_weight, t.partial, chunks, n);
    if (k.dbias.data) join_partials(&k.dbias, k.overwrite_bias, t.partial + n, chunks, n);
    return NRL_OK;
}
