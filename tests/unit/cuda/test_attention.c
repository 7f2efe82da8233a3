/*
 * test_attention.c - the attention kernels under the emulator, at every supported width, aligned
 * (asynchronous copies) and not, compared with sums in double. The backend suite tests narrow heads
 * without alignment; this test covers the rest, and that results are bit-identical when repeated.
 */
#include "cuda_backend.h"
#include "fake_driver.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SEGMENTS = 4 };

typedef struct {
    uint32_t dtype;
    double soft_cap;
    int64_t width, heads, kv_heads, gap, window;
    int n;
    int32_t queries[SEGMENTS], keys[SEGMENTS], prefix[SEGMENTS];
} shape;

typedef struct {
    shape c;
    int32_t cu_q[SEGMENTS + 1], cu_k[SEGMENTS + 1];
    nrl_mat q, k, v, y, lse, dy, dq, dk, dv;
    double *want_y, *want_dq, *want_dk, *want_dv, *want_lse;
    double scale;
    nrl_attention_args forward; /* of operands */
} problem;

static cuda *gpu;
static uint32_t random_state;

static double uniform(void)
{
    random_state = random_state * 1664525u + 1013904223u;
    return (double)(random_state >> 8) / (1 << 23) - 1;
}

static size_t size_of(uint32_t dtype)
{
    return dtype == NRL_DTYPE_F32 ? 4 : 2;
}

static double f16_value(uint16_t h)
{
    int exponent = h >> 10 & 31, mantissa = h & 1023;
    double x = exponent ? ldexp(mantissa + 1024, exponent - 25) : ldexp(mantissa, -24);
    return h & 0x8000 ? -x : x;
}

static double get(const nrl_mat *m, int64_t row, int64_t col)
{
    const char *at = (const char *)m->data + (size_t)(row * m->stride + col) * size_of(m->dtype);
    uint16_t half;
    uint32_t word;
    float f;
    memcpy(&half, at, 2);
    if (m->dtype == NRL_DTYPE_F16) return f16_value(half);
    word = (uint32_t)half << 16;
    if (m->dtype == NRL_DTYPE_F32) memcpy(&word, at, 4);
    memcpy(&f, &word, 4);
    return f;
}

/* Multiples of 1/64 in [-1, 1]: exact in every dtype. */
static void set(const nrl_mat *m, int64_t row, int64_t col, double x)
{
    char *at = (char *)m->data + (size_t)(row * m->stride + col) * size_of(m->dtype);
    float f = (float)(rint(x * 64) / 64);
    uint32_t word;
    memcpy(&word, &f, 4);
    uint16_t half = (uint16_t)(word >> 16);
    if (m->dtype == NRL_DTYPE_F16)
        half = (uint16_t)((word >> 16 & 0x8000) | (f == 0 ? 0 : ((word >> 13 & 0x3ffff) - (112 << 10)) & 0x7fff));
    memcpy(at, m->dtype == NRL_DTYPE_F32 ? (const void *)&word : &half, size_of(m->dtype));
}

/* With NaNs where nothing was written. */
static nrl_mat matrix(uint32_t dtype, int64_t rows, int64_t cols, int64_t gap, bool filled)
{
    nrl_mat m = {.dtype = dtype, .rows = rows, .cols = cols, .stride = cols + gap};
    size_t bytes = (size_t)(rows * m.stride) * size_of(dtype);
    m.data = aligned_alloc(64, (bytes + 64) / 64 * 64);
    assert_non_null(m.data);
    memset(m.data, 0xff, bytes);
    for (int64_t i = 0; filled && i < rows * cols; i++)
        set(&m, i / cols, i % cols, uniform());
    return m;
}

static void query(problem *p, int s, int64_t i, int64_t head)
{
    const shape *c = &p->c;
    int32_t own = c->prefix[s];
    int64_t n_prefix = own < 0 ? 0 : c->keys[own], n = n_prefix + c->keys[s];
    int64_t last = n - c->queries[s] + i, first = c->window && last >= c->window ? last - c->window + 1 : 0;
    int64_t w = c->width, row = p->cu_q[s] + i, col = head * w, kv = head / (c->heads / c->kv_heads) * w;
    double *e = calloc((size_t)n, sizeof *e), *slope = calloc((size_t)n, sizeof *e), sum = 0, delta = 0;
    double *y = p->want_y + row * p->q.cols + col;
#define KEY(j) ((j) < n_prefix ? p->cu_k[own] + (j) : p->cu_k[s] + (j)-n_prefix)
    for (int64_t j = first; j <= last; j++) {
        for (int64_t d = 0; d < w; d++)
            e[j] += p->scale * get(&p->q, row, col + d) * get(&p->k, KEY(j), kv + d);
        double t = c->soft_cap > 0 ? tanh(e[j] / c->soft_cap) : 0;
        slope[j] = 1 - t * t;
        sum += e[j] = exp(c->soft_cap > 0 ? c->soft_cap * t : e[j]);
    }
    p->want_lse[head * p->q.rows + row] = log(sum);
    for (int64_t j = first; j <= last; j++)
        for (int64_t d = 0; d < w; d++)
            y[d] += e[j] / sum * get(&p->v, KEY(j), kv + d);
    for (int64_t d = 0; d < w; d++)
        delta += y[d] * get(&p->dy, row, col + d);
    for (int64_t j = first; j <= last; j++) {
        double dp = 0, *dk = p->want_dk + KEY(j) * p->k.cols + kv, *dv = p->want_dv + KEY(j) * p->k.cols + kv;
        for (int64_t d = 0; d < w; d++)
            dp += get(&p->dy, row, col + d) * get(&p->v, KEY(j), kv + d);
        double prob = e[j] / sum, ds = prob * (dp - delta) * slope[j] * p->scale;
        for (int64_t d = 0; d < w; d++) {
            p->want_dq[row * p->q.cols + col + d] += ds * get(&p->k, KEY(j), kv + d);
            dk[d] += ds * get(&p->q, row, col + d);
            dv[d] += prob * get(&p->dy, row, col + d);
        }
    }
    free(e);
    free(slope);
}

static problem make(const shape *c)
{
    problem p = {.c = *c, .scale = 1 / sqrt((double)c->width)};
    random_state = 7;
    for (int s = 0; s < c->n; s++) {
        p.cu_q[s + 1] = p.cu_q[s] + c->queries[s];
        p.cu_k[s + 1] = p.cu_k[s] + c->keys[s];
    }
    int64_t n = p.cu_q[c->n], m = p.cu_k[c->n], wide = c->heads * c->width, narrow = c->kv_heads * c->width;
    p.q = matrix(c->dtype, n, wide, c->gap, true);
    p.k = matrix(c->dtype, m, narrow, c->gap, true);
    p.v = matrix(c->dtype, m, narrow, c->gap, true);
    p.dy = matrix(c->dtype, n, wide, c->gap, true);
    p.y = matrix(c->dtype, n, wide, c->gap, false);
    p.dq = matrix(c->dtype, n, wide, c->gap, false);
    p.dk = matrix(c->dtype, m, narrow, c->gap, false);
    p.dv = matrix(c->dtype, m, narrow, c->gap, false);
    p.lse = matrix(NRL_DTYPE_F32, c->heads, n, 0, false);
    p.want_y = calloc((size_t)(n * wide), sizeof(double));
    p.want_dq = calloc((size_t)(n * wide), sizeof(double));
    p.want_dk = calloc((size_t)(m * narrow), sizeof(double));
    p.want_dv = calloc((size_t)(m * narrow), sizeof(double));
    p.want_lse = calloc((size_t)(c->heads * n), sizeof(double));
    for (int s = 0; s < c->n; s++)
        for (int64_t i = 0; i < c->queries[s] * c->heads; i++)
            query(&p, s, i / c->heads, i % c->heads);
    return p;
}

static void drop(problem *p)
{
    void *all[] = {p->q.data,  p->k.data,  p->v.data, p->y.data,  p->lse.data, p->dy.data, p->dq.data,
                   p->dk.data, p->dv.data, p->want_y, p->want_dq, p->want_dk,  p->want_dv, p->want_lse};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

static nrl_attention_grad_args operands(problem *p)
{
    const shape *c = &p->c;
    bool has_prefix = false;
    for (int s = 0; s < c->n; s++)
        has_prefix = has_prefix || c->prefix[s] >= 0;
    const int32_t *prefix = has_prefix ? c->prefix : NULL;
    p->forward = (nrl_attention_args){.size = sizeof(nrl_attention_args),
                                      .n_segments = (uint32_t)c->n,
                                      .q = p->q,
                                      .k = p->k,
                                      .v = p->v,
                                      .y = p->y,
                                      .lse = p->lse,
                                      .cu_q = p->cu_q,
                                      .cu_k = p->cu_k,
                                      .prefix = prefix,
                                      .host_cu_q = p->cu_q,
                                      .host_cu_k = p->cu_k,
                                      .host_prefix = prefix,
                                      .n_heads = c->heads,
                                      .n_kv_heads = c->kv_heads,
                                      .head_dim = c->width,
                                      .window = c->window,
                                      .scale = p->scale,
                                      .soft_cap = c->soft_cap};
    return (nrl_attention_grad_args){.size = sizeof(nrl_attention_grad_args),
                                     .forward = &p->forward,
                                     .dy = p->dy,
                                     .dq = p->dq,
                                     .dk = p->dk,
                                     .dv = p->dv};
}

/* Largest distance; NaN counts as infinite. */
static double distance(const nrl_mat *m, const double *want)
{
    double worst = 0;
    for (int64_t i = 0; i < m->rows * m->cols; i++) {
        double d = fabs(get(m, i / m->cols, i % m->cols) - want[i]);
        if (!(d <= worst)) worst = d == d ? d : INFINITY;
    }
    return worst;
}

static void run(problem *p)
{
    nrl_attention_grad_args a = operands(p);
    assert_int_equal(cuda_op_attention(gpu, NULL, a.forward), NRL_OK);
    assert_int_equal(cuda_op_attention_grad(gpu, NULL, &a), NRL_OK);
}

/* P and dS are rounded to 16 bits before their products, and sums of up to 150 such terms of size 1
 * are compared; f32 differs by the order of sums. */
static double tolerance(uint32_t dtype)
{
    return dtype == NRL_DTYPE_BF16 ? 0.02 : dtype == NRL_DTYPE_F16 ? 0.003 : 2e-5;
}

static void check(const shape *c)
{
    problem p = make(c);
    run(&p);
    struct {
        const char *name;
        const nrl_mat *got;
        const double *want;
    } of[] = {{"y", &p.y, p.want_y},
              {"lse", &p.lse, p.want_lse},
              {"dq", &p.dq, p.want_dq},
              {"dk", &p.dk, p.want_dk},
              {"dv", &p.dv, p.want_dv}};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        double d = distance(of[i].got, of[i].want);
        if (d > tolerance(c->dtype))
            fail_msg("%s of %s heads of %lld, gap %lld, window %lld, is %g off", of[i].name,
                     nrl_dtype_name((nrl_dtype)c->dtype), (long long)c->width, (long long)c->gap, (long long)c->window,
                     d);
    }
    drop(&p);
}

static const shape packed = {
    .heads = 4, .kv_heads = 2, .n = 3, .queries = {70, 1, 33}, .keys = {70, 1, 33}, .prefix = {-1, -1, -1}};

static void every_width_gives_what_sums_in_double_give(void **state)
{
    static const int64_t widths[] = {64, 72, 80, 96, 128, 200, 256};
    (void)state;
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
        for (int k = 0; k < 3; k++) {
            shape c = packed;
            c.width = widths[i];
            c.gap = k == 1;
            c.heads = 2;
            c.kv_heads = 1;
            c.n = 2;
            c.dtype = k == 2 ? NRL_DTYPE_F16 : NRL_DTYPE_BF16;
            check(&c);
        }
}

static void f16_and_f32_do_too(void **state)
{
    (void)state;
    shape c = packed;
    c.n = 2;
    for (c.width = 40; c.width <= 136; c.width += 96)
        for (c.dtype = NRL_DTYPE_F32; c.dtype <= NRL_DTYPE_F16; c.dtype++)
            check(&c);
}

static void prefixes_windows_and_cached_keys_hold_when_aligned(void **state)
{
    (void)state;
    shape c = {.dtype = NRL_DTYPE_BF16,
               .width = 64,
               .heads = 4,
               .kv_heads = 1,
               .gap = 8,
               .n = 4,
               .queries = {75, 20, 66, 5},
               .keys = {75, 20, 66, 5},
               .prefix = {-1, 0, 0, -1}};
    check(&c);
    c.window = 50;
    check(&c);
    shape cached = {.dtype = NRL_DTYPE_BF16,
                    .width = 128,
                    .heads = 2,
                    .kv_heads = 2,
                    .n = 3,
                    .queries = {1, 0, 67},
                    .keys = {140, 9, 90},
                    .prefix = {-1, -1, -1}};
    check(&cached);
    cached.window = 33;
    check(&cached);
}

static void scores_are_capped(void **state)
{
    (void)state;
    shape c = packed;
    c.soft_cap = 0.75;
    for (c.width = 64; c.width <= 256; c.width += 192)
        for (c.dtype = NRL_DTYPE_F32; c.dtype <= NRL_DTYPE_F16; c.dtype++)
            check(&c);
}

static void results_repeat_bit_for_bit(void **state)
{
    (void)state;
    shape c = packed;
    c.width = 64;
    c.dtype = NRL_DTYPE_BF16;
    problem a = make(&c), b = make(&c);
    run(&a);
    run(&b);
    assert_memory_equal(a.dk.data, b.dk.data, (size_t)(a.dk.rows * a.dk.stride) * 2);
    assert_memory_equal(a.dq.data, b.dq.data, (size_t)(a.dq.rows * a.dq.stride) * 2);
    drop(&a);
    drop(&b);
}

static void what_cannot_be_computed_is_said(void **state)
{
    (void)state;
    shape c = packed;
    c.width = 64;
    c.dtype = NRL_DTYPE_F32;
    problem p = make(&c);
    nrl_attention_grad_args a = operands(&p);
    p.forward.head_dim = 320;
    p.forward.n_heads = p.forward.n_kv_heads = 1;
    p.forward.q.cols = p.forward.k.cols = p.forward.v.cols = p.forward.y.cols = 320;
    assert_int_equal(cuda_op_attention(gpu, NULL, &p.forward), NRL_ERR_PLUGIN);
    assert_non_null(strstr(nrl_error_text(), "width 320"));
    a = operands(&p);
    p.forward.k.cols--;
    assert_int_equal(cuda_op_attention(gpu, NULL, &p.forward), NRL_ERR_BUG);
    a = operands(&p);
    p.forward.v.dtype = NRL_DTYPE_BF16;
    assert_int_equal(cuda_op_attention(gpu, NULL, &p.forward), NRL_ERR_PLUGIN);
    a = operands(&p);
    p.forward.lse.data = NULL;
    assert_int_equal(cuda_op_attention_grad(gpu, NULL, &a), NRL_ERR_BUG);
    drop(&p);
}

static int open_gpu(void **state)
{
    (void)state;
    fake_reset();
    const cuda_options o = {.memory_fraction = 0.9, .device = -1};
    return cuda_open_driver(fake_driver(), &o, 0, &gpu) == NRL_OK ? 0 : -1;
}

static int close_gpu(void **state)
{
    (void)state;
    cuda_close(gpu);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_width_gives_what_sums_in_double_give),
        cmocka_unit_test(f16_and_f32_do_too),
        cmocka_unit_test(prefixes_windows_and_cached_keys_hold_when_aligned),
        cmocka_unit_test(scores_are_capped),
        cmocka_unit_test(results_repeat_bit_for_bit),
        cmocka_unit_test(what_cannot_be_computed_is_said),
    };
    return cmocka_run_group_tests(tests, open_gpu, close_gpu);
}
