/*
 * test_kernels.c - kernels under the emulator in cases that the backend suite does not cover: rows
 * wider than the registers of a thread, f16, the bits of dropout, long matrices, bit-identical
 * repetition.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "cuda_backend.h"
#include "fake_driver.h"
#include "support/backend.h"
#include <math.h>

/* f32 sums of up to 10^4 terms of size one, in another order. */
#define SUM_TOLERANCE 2e-4
/* One rounding of f16, 11 bits. */
#define F16_TOLERANCE 5e-4

static cuda *gpu;
static device cpu;
static uint64_t state_of_random = 5;

static int open_both(void **state)
{
    static const cuda_options usual = {.memory_fraction = 1, .device = -1};
    (void)state;
    if (cuda_open_driver(fake_driver(), &usual, 0, &gpu)) return 1;
    return !test_device_open(&cpu) || !cpu.info.host_memory;
}

static int close_both(void **state)
{
    (void)state;
    cuda_close(gpu);
    device_close(&cpu);
    return 0;
}

static float *values(int64_t n)
{
    float *x = malloc((size_t)(n + 1) * sizeof *x);
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)test_uniform(&state_of_random);
    return x;
}

static nrl_mat mat(void *data, int64_t rows, int64_t cols)
{
    return (nrl_mat){data, NRL_DTYPE_F32, 0, rows, cols, cols};
}

static void assert_near(const float *a, const float *b, int64_t n, double tolerance)
{
    for (int64_t i = 0; i < n; i++)
        if (a[i] != b[i] && !(fabs((double)a[i] - b[i]) <= tolerance * (1 + fabs((double)b[i]))))
            fail_msg("element %lld is %.9g, expected %.9g", (long long)i, a[i], b[i]);
}

/* Both backends on the same operands; out[0] and out[1] are compared. */
static void norm_of_width(int64_t width, bool rms, bool residual)
{
    /* More rows than blocks at one width that takes a whole block: they loop. */
    const int64_t rows = width == 520 ? 70 : 19;
    int64_t n = rows * width;
    float *x = values(n), *r = values(n), *w = values(width), *b = values(width), *dy = values(n);
    float *out[2][7];
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < 7; i++)
            out[k][i] = calloc((size_t)n, sizeof(float));
        nrl_norm_args a = {.size = sizeof a,
                           .rms = rms,
                           .x = mat(x, rows, width),
                           .weight = mat(w, 1, width),
                           .y = mat(out[k][0], rows, width),
                           .rstd = mat(out[k][1], 1, rows),
                           .eps = 1e-5};
        if (!rms) a.bias = mat(b, 1, width), a.mean = mat(out[k][2], 1, rows);
        if (residual) a.residual = mat(r, rows, width), a.sum = mat(out[k][3], rows, width);
        nrl_norm_grad_args g = {.size = sizeof g,
                                .rms = rms,
                                .overwrite_weight = true,
                                .x = residual ? a.sum : a.x,
                                .weight = a.weight,
                                .mean = a.mean,
                                .rstd = a.rstd,
                                .dy = mat(dy, rows, width),
                                .dsum = mat(r, rows, width),
                                .dx = mat(out[k][4], rows, width),
                                .dweight = mat(out[k][5], 1, width)};
        if (!rms) g.dbias = mat(out[k][6], 1, width);
        assert_int_equal(k ? cpu.ops.norm(cpu.self, NULL, &a) : cuda_op_norm(gpu, NULL, &a), NRL_OK);
        assert_int_equal(k ? cpu.ops.norm_grad(cpu.self, NULL, &g) : cuda_op_norm_grad(gpu, NULL, &g), NRL_OK);
    }
    for (int i = 0; i < 7; i++) {
        assert_near(out[0][i], out[1][i], n, SUM_TOLERANCE);
        free(out[0][i]);
        free(out[1][i]);
    }
    float *all[] = {x, r, w, b, dy};
    for (int i = 0; i < 5; i++)
        free(all[i]);
}

static void norms_of_any_width_agree_with_the_cpu(void **state)
{
    static const int64_t widths[] = {1, 7, 64, 511, 520, 1024, 4096, 4104, 8192, 8200, 20001};
    (void)state;
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
        for (int k = 0; k < 4; k++)
            norm_of_width(widths[i], k & 1, k & 2);
}

static void reductions_of_long_and_wide_matrices_agree_with_the_cpu(void **state)
{
    static const int64_t shapes[][2] = {{20000, 3}, {300, 257}, {2, 40000}, {1, 1}, {3, 0}, {0, 3}};
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (uint32_t op = 1; op <= NRL_REDUCTION_LOG_SUM_EXP; op++)
            for (uint32_t axis = 1; axis <= NRL_AXIS_COLUMNS; axis++) {
                int64_t rows = shapes[i][0], cols = shapes[i][1];
                int64_t n = axis == NRL_AXIS_ALL ? 1 : axis == NRL_AXIS_ROWS ? cols : rows;
                float *x = values(rows * cols), *a = values(n), *b = values(n);
                nrl_reduce_args r = {.size = sizeof r, .op = op, .axis = axis, .overwrite = true};
                r.x = mat(x, rows, cols);
                r.y = mat(a, 1, n);
                assert_int_equal(cuda_op_reduce(gpu, NULL, &r), NRL_OK);
                r.y = mat(b, 1, n);
                assert_int_equal(cpu.ops.reduce(cpu.self, NULL, &r), NRL_OK);
                assert_near(a, b, n, SUM_TOLERANCE);
                free(x);
                free(a);
                free(b);
            }
}

static void dropout_keeps_what_the_cpu_keeps(void **state)
{
    enum { N = 5003 };
    float *x = values(N), *a = values(N), *b = values(N);
    nrl_dropout_args d = {.size = sizeof d, .x = mat(x, 1, N), .p = 0.3, .key = 0x123456789ABCDEFu};
    (void)state;
    d.y = mat(a, 1, N);
    assert_int_equal(cuda_op_dropout(gpu, NULL, &d), NRL_OK);
    d.y = mat(b, 1, N);
    assert_int_equal(cpu.ops.dropout(cpu.self, NULL, &d), NRL_OK);
    assert_memory_equal(a, b, N * sizeof *a);
    free(x);
    free(a);
    free(b);
}

/* There and back: exact for what f16 holds, near for what it rounds, infinite beyond 65504. */
static void f16_is_rounded_to_nearest(void **state)
{
    float x[] = {0,     1,          -2,       65504,     65519, 65520, -1e9f, 6.1035e-5f, 5.9604645e-8f,
                 2e-8f, 1.0004883f, 0.33333f, 3.1415926f};
    enum { N = sizeof x / sizeof *x };
    float y[N];
    uint16_t half[N];
    nrl_copy_args c = {.size = sizeof c, .x = mat(x, 1, N), .y = mat(half, 1, N), .alpha = 1};
    (void)state;
    c.y.dtype = NRL_DTYPE_F16;
    assert_int_equal(cuda_op_copy(gpu, NULL, &c), NRL_OK);
    c.x = c.y;
    c.y = mat(y, 1, N);
    assert_int_equal(cuda_op_copy(gpu, NULL, &c), NRL_OK);
    assert_true(half[1] == 0x3C00 && half[3] == 0x7BFF && half[4] == 0x7BFF && half[5] == 0x7C00);
    assert_true(half[8] == 1 && half[9] == 0 && half[10] == 0x3C00);
    assert_true(isinf(y[5]) && isinf(y[6]) && y[6] < 0);
    assert_true(y[8] == 5.9604644775390625e-8f);
    for (int i = 11; i < N; i++)
        assert_true(fabsf(y[i] - x[i]) <= F16_TOLERANCE * x[i]);
}

/* Whole numbers, exact in every dtype; the transposed way too. */
static void copies_go_between_any_dtypes(void **state)
{
    enum { ROWS = 13, COLS = 21, N = ROWS * COLS };
    static const uint32_t dtypes[] = {NRL_DTYPE_F64, NRL_DTYPE_I32, NRL_DTYPE_I64, NRL_DTYPE_U8, NRL_DTYPE_BF16};
    enum { DTYPES = sizeof dtypes / sizeof *dtypes };
    (void)state;
    for (int from = 0; from < DTYPES; from++)
        for (int to = 0; to < DTYPES; to++)
            for (int t = 0; t < 2; t++) {
                double *x = calloc(N, sizeof *x), *a = calloc(N, sizeof *a), *b = calloc(N, sizeof *b);
                nrl_copy_args c = {.size = sizeof c, .alpha = 1, .transpose = t};
                nrl_mat numbers = mat(calloc(N, sizeof(float)), ROWS, COLS);
                for (int i = 0; i < N; i++)
                    ((float *)numbers.data)[i] = (float)(i % 100);
                c.x = mat(x, ROWS, COLS);
                c.x.dtype = dtypes[from];
                nrl_copy_args fill = {.size = sizeof fill, .x = numbers, .y = c.x, .alpha = 1};
                assert_int_equal(cpu.ops.copy(cpu.self, NULL, &fill), NRL_OK);
                for (int k = 0; k < 2; k++) {
                    c.y = mat(k ? b : a, t ? COLS : ROWS, t ? ROWS : COLS);
                    c.y.dtype = dtypes[to];
                    assert_int_equal(k ? cpu.ops.copy(cpu.self, NULL, &c) : cuda_op_copy(gpu, NULL, &c), NRL_OK);
                }
                assert_memory_equal(a, b, N * sizeof *a);
                free(x);
                free(a);
                free(b);
                free(numbers.data);
            }
}

static void scatter_gives_the_same_bits_twice(void **state)
{
    enum { N = 700, ROWS = 13, COLS = 37 };
    int32_t index[N];
    float *dy = values(N * COLS), *a = values(ROWS * COLS), *b = values(ROWS * COLS);
    (void)state;
    for (int i = 0; i < N; i++)
        index[i] = i % 11 == 0 ? -1 : i * i % ROWS;
    nrl_scatter_args s = {.size = sizeof s, .overwrite = true, .dy = mat(dy, N, COLS), .index = index};
    for (int k = 0; k < 2; k++) {
        s.dx = mat(k ? b : a, ROWS, COLS);
        assert_int_equal(cuda_op_scatter(gpu, NULL, &s), NRL_OK);
    }
    assert_memory_equal(a, b, ROWS * COLS * sizeof *a);
    assert_int_equal(cpu.ops.scatter(cpu.self, NULL, &s), NRL_OK);
    assert_near(a, b, ROWS * COLS, SUM_TOLERANCE);
    gpu->relaxed = true; /* in the order that comes */
    s.dx = mat(a, ROWS, COLS);
    assert_int_equal(cuda_op_scatter(gpu, NULL, &s), NRL_OK);
    s.overwrite = false;
    s.dx = mat(b, ROWS, COLS);
    assert_int_equal(cpu.ops.scatter(cpu.self, NULL, &s), NRL_OK);
    s.dx = mat(a, ROWS, COLS);
    assert_int_equal(cuda_op_scatter(gpu, NULL, &s), NRL_OK);
    gpu->relaxed = false;
    assert_near(a, b, ROWS * COLS, SUM_TOLERANCE);
    free(dy);
    free(a);
    free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(norms_of_any_width_agree_with_the_cpu),
        cmocka_unit_test(reductions_of_long_and_wide_matrices_agree_with_the_cpu),
        cmocka_unit_test(dropout_keeps_what_the_cpu_keeps),
        cmocka_unit_test(f16_is_rounded_to_nearest),
        cmocka_unit_test(copies_go_between_any_dtypes),
        cmocka_unit_test(scatter_gives_the_same_bits_twice),
    };
    return cmocka_run_group_tests(tests, open_both, close_both);
}
