/*
 * backend_mat.c - matrices on a backend with a double copy on the host.
 */
#include "base/arena.h"
#include "backend.h"
#include "base/convert.h"
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GUARD 1232.0       /* exact in every dtype */
#define F16_NEAR_MAX 65472 /* 65504 less a margin: larger values may become infinite */

void suite_case(suite *s, const char *fmt, ...)
{
    va_list a;
    va_start(a, fmt);
    vsnprintf(s->what, sizeof s->what, fmt, a);
    va_end(a);
}

void suite_clear(suite *s)
{
    for (mat *m = s->mats, *next; m; m = next) {
        next = m->next;
        s->table->free(s->self, m->device);
        free(m->host);
        free(m);
    }
    s->mats = NULL;
    for (int i = 0; i < s->n_devices; i++)
        s->table->free(s->self, s->devices[i]);
    s->n_devices = 0;
}

double suite_uniform(suite *s, double low, double high)
{
    s->random = s->random * 6364136223846793005u + 1442695040888963407u;
    return low + (high - low) * (double)(s->random >> 11) * 0x1p-53;
}

const uint32_t suite_dtypes[3] = {NRL_DTYPE_F32, NRL_DTYPE_BF16, NRL_DTYPE_F16};

static bool is_half(uint32_t dtype)
{
    return dtype == NRL_DTYPE_BF16 || dtype == NRL_DTYPE_F16;
}

static uint16_t to_half(uint32_t dtype, double x)
{
    float f = (float)x;
    uint16_t half;
    convert_from_f32(dtype, &f, 1, &half);
    return half;
}

static double from_half(uint32_t dtype, uint16_t half)
{
    float f;
    convert_to_f32(dtype, &half, 1, &f);
    return f;
}

double mat_round(uint32_t dtype, double x)
{
    if (is_half(dtype)) return from_half(dtype, to_half(dtype, x));
    if (dtype == NRL_DTYPE_F32) return (float)x;
    return x;
}

/* Nothing can be tested without memory: the report shows the point at which the suite ended. */
static void *device_alloc(suite *s, size_t bytes)
{
    void *device = NULL;
    nrl_status st = s->table->alloc(s->self, bytes ? bytes : 1, &device);
    suite_ok(s, st, "alloc gives memory");
    NRL_ASSERT(st, ==, NRL_OK);
    return device;
}

mat *mat_new(suite *s, uint32_t dtype, int64_t rows, int64_t cols, int64_t gap)
{
    mat *m = mem_alloc(sizeof *m);
    m->dtype = dtype;
    m->rows = rows;
    m->cols = cols;
    m->stride = cols + gap;
    size_t n = (size_t)((rows + 1) * m->stride);
    m->host = mem_alloc(n * sizeof *m->host);
    m->device = device_alloc(s, n * 8);
    m->next = s->mats;
    s->mats = m;
    mat_upload(s, m);
    return m;
}

mat *mat_random(suite *s, uint32_t dtype, int64_t rows, int64_t cols, int64_t gap, double low, double high)
{
    mat *m = mat_new(s, dtype, rows, cols, gap);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++)
            mat_set(s, m, r, c, suite_uniform(s, low, high));
    mat_upload(s, m);
    return m;
}

double *mat_value(mat *m, int64_t row, int64_t col)
{
    return m->host + row * m->stride + col;
}

void mat_set(suite *s, mat *m, int64_t row, int64_t col, double value)
{
    (void)s;
    *mat_value(m, row, col) = mat_round(m->dtype, value);
}

static void encode(const mat *m, void *to, int64_t i, double x)
{
    if (m->dtype == NRL_DTYPE_F32)
        ((float *)to)[i] = (float)x;
    else if (is_half(m->dtype))
        ((uint16_t *)to)[i] = to_half(m->dtype, x);
    else if (m->dtype == NRL_DTYPE_I32)
        ((int32_t *)to)[i] = (int32_t)x;
    else
        ((double *)to)[i] = x;
}

static double decode(const mat *m, const void *from, int64_t i)
{
    if (m->dtype == NRL_DTYPE_F32) return ((const float *)from)[i];
    if (is_half(m->dtype)) return from_half(m->dtype, ((const uint16_t *)from)[i]);
    if (m->dtype == NRL_DTYPE_I32) return ((const int32_t *)from)[i];
    return ((const double *)from)[i];
}

static size_t element_size(const mat *m)
{
    return is_half(m->dtype) ? 2 : m->dtype == NRL_DTYPE_F64 ? 8 : 4;
}

void mat_upload(suite *s, mat *m)
{
    int64_t n = (m->rows + 1) * m->stride;
    void *bytes = mem_alloc((size_t)n * 8);
    for (int64_t i = 0; i < n; i++) {
        bool guard = i % m->stride >= m->cols || i / m->stride >= m->rows;
        encode(m, bytes, i, guard ? GUARD : m->host[i]);
    }
    suite_ok(s, s->table->copy(s->self, NULL, m->device, bytes, (size_t)n * element_size(m), NRL_COPY_TO_DEVICE),
             "copy to the device works");
    free(bytes);
}

bool mat_download(suite *s, mat *m)
{
    int64_t n = (m->rows + 1) * m->stride;
    void *bytes = mem_alloc((size_t)n * 8);
    suite_read(s, bytes, m->device, (size_t)n * element_size(m));
    bool intact = true;
    for (int64_t i = 0; i < n; i++) {
        bool guard = i % m->stride >= m->cols || i / m->stride >= m->rows;
        if (guard)
            intact = intact && decode(m, bytes, i) == GUARD;
        else
            m->host[i] = decode(m, bytes, i);
    }
    free(bytes);
    return report_check(s->report, intact, "nothing is written outside a matrix", "%s", s->what);
}

nrl_mat mat_args(const mat *m)
{
    if (!m) return (nrl_mat){0};
    return (nrl_mat){.data = m->device, .dtype = m->dtype, .rows = m->rows, .cols = m->cols, .stride = m->stride};
}

void *suite_array(suite *s, const void *host, size_t bytes)
{
    NRL_ASSERT(s->n_devices, <, COUNT(s->devices));
    void *device = device_alloc(s, bytes);
    s->devices[s->n_devices++] = device;
    suite_ok(s, s->table->copy(s->self, NULL, device, host, bytes, NRL_COPY_TO_DEVICE), "copy to the device works");
    return device;
}

void suite_read(suite *s, void *host, const void *device, size_t bytes)
{
    if (s->table->stream_wait) suite_ok(s, s->table->stream_wait(s->self, NULL), "waiting for the stream works");
    suite_ok(s, s->table->copy(s->self, NULL, host, device, bytes, NRL_COPY_TO_HOST), "copy to the host works");
    if (s->table->stream_wait) suite_ok(s, s->table->stream_wait(s->self, NULL), "waiting for the stream works");
}

bool suite_ok(suite *s, nrl_status st, const char *rule)
{
    return report_check(s->report, st == NRL_OK, rule, "%s: error %d: %s", s->what, (int)st,
                        st == NRL_OK ? "" : nrl_error_text());
}

bool suite_expect(suite *s, const char *rule, mat *m, const double *want, double rel, double abs)
{
    /* one rounding, with ties in either direction; below 2^-14 the spacing of f16 values is 2^-24 */
    double least = m->dtype == NRL_DTYPE_BF16 ? 1.0 / 200 : m->dtype == NRL_DTYPE_F16 ? 1.0 / 1600 : 0;
    if (rel < least) rel = least;
    if (m->dtype == NRL_DTYPE_F16 && abs < 0x1p-24) abs = 0x1p-24;
    if (!mat_download(s, m)) return false;
    double worst = 0, got_at = 0, want_at = 0;
    int64_t at = -1;
    for (int64_t i = 0; i < m->rows * m->cols; i++) {
        double got = *mat_value(m, i / m->cols, i % m->cols), w = want[i];
        double error = fabs(got - w) / (rel * fabs(w) + abs + 1e-300);
        if (isnan(got) && isnan(w))
            error = 0;
        else if (got == w || (isinf(got) && got * w > 0 && m->dtype == NRL_DTYPE_F16 && fabs(w) > F16_NEAR_MAX))
            error = 0;
        else if (isnan(error))
            error = INFINITY;
        if (error <= worst) continue;
        worst = error;
        at = i;
        got_at = got;
        want_at = w;
    }
    return report_check(
        s->report, worst <= 1, rule, "%s: element %lld,%lld is %.9g, expected %.9g (%.2g times the tolerance)", s->what,
        (long long)(at < 0 ? 0 : at / m->cols), (long long)(at < 0 ? 0 : at % m->cols), got_at, want_at, worst);
}
