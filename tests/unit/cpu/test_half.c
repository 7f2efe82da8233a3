/*
 * test_half.c - 16-bit numbers on every instruction set: all of them are widened, and values
 * between and halfway between them are rounded, with the bits of core/model/convert.c; products of
 * f16 compared with sums in double.
 */
#include "base/convert.h"
#include "support/backend.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static nrl_backend table;

static nrl_mat row(void *data, nrl_dtype dtype, int64_t n)
{
    return (nrl_mat){.data = data, .dtype = dtype, .rows = 1, .cols = n, .stride = n};
}

static void copy(void *self, nrl_mat from, nrl_mat to)
{
    nrl_copy_args k = {.size = sizeof k, .x = from, .y = to, .alpha = 1};
    assert_int_equal(table.ops->copy(self, NULL, &k), NRL_OK);
}

enum { HALVES = 65536, NEAR = 5 };
static const nrl_dtype dtypes[] = {NRL_DTYPE_BF16, NRL_DTYPE_F16};

static void every_half_is_widened_exactly(void **state)
{
    static uint16_t halves[HALVES];
    static float want[HALVES], got[HALVES];
    (void)state;
    for (int i = 0; i < HALVES; i++)
        halves[i] = (uint16_t)i;
    for (int d = 0; d < 2; d++) {
        convert_to_f32(dtypes[d], halves, HALVES, want);
        for (int64_t isa = 1; isa <= 3; isa++) {
            void *self = test_open_isa(&table, isa);
            if (!self) continue;
            for (int64_t at = 0, n = 1; at < HALVES; at += n, n = n % 37 + 1) { /* whole registers and rests */
                n = n < HALVES - at ? n : HALVES - at;
                copy(self, row(halves + at, dtypes[d], n), row(got + at, NRL_DTYPE_F32, n));
            }
            for (int i = 0; i < HALVES; i++)
                assert_true(memcmp(&got[i], &want[i], 4) == 0 || (isnan(got[i]) && isnan(want[i])));
            table.close(self);
        }
    }
}

/* Around h and around the middle between h and its neighbour: one f32 below, at, one above. */
static void fill_near(nrl_dtype dtype, float *x)
{
    for (int i = 0; i < HALVES; i++) {
        uint16_t h = (uint16_t)i, next = (uint16_t)(i + 1);
        float at, beyond;
        convert_to_f32(dtype, &h, 1, &at);
        convert_to_f32(dtype, &next, 1, &beyond);
        float middle = (float)(((double)at + (double)beyond) / 2);
        float near[NEAR] = {at, nextafterf(at, INFINITY), nextafterf(middle, -INFINITY), middle,
                            nextafterf(middle, INFINITY)};
        memcpy(x + (size_t)i * NEAR, near, sizeof near);
    }
}

static void every_half_is_rounded_to_nearest(void **state)
{
    enum { COUNT = HALVES * NEAR };
    static float x[COUNT];
    static uint16_t want[COUNT], got[COUNT];
    (void)state;
    for (int d = 0; d < 2; d++) {
        fill_near(dtypes[d], x);
        convert_from_f32(dtypes[d], x, COUNT, want);
        for (int64_t isa = 1; isa <= 3; isa++) {
            void *self = test_open_isa(&table, isa);
            if (!self) continue;
            for (int64_t at = 0, n = 1; at < COUNT; at += n, n = n % 37 + 1) {
                n = n < COUNT - at ? n : COUNT - at;
                copy(self, row(x + at, NRL_DTYPE_F32, n), row(got + at, dtypes[d], n));
            }
            for (int i = 0; i < COUNT; i++)
                if (!isnan(x[i]) && got[i] != want[i])
                    fail_msg("%s, isa %d: %.9g is %04x, expected %04x", nrl_dtype_name(dtypes[d]), (int)isa,
                             (double)x[i], (unsigned)got[i], (unsigned)want[i]);
            table.close(self);
        }
    }
}

/* 70000 overflows on its way out alone: the sum of products is f32. */
static void a_product_overflows_in_its_result_alone(void **state)
{
    enum { K = 8 };
    uint16_t a[K], b[K], low[1];
    float values[K], high[1];
    (void)state;
    for (int i = 0; i < K; i++)
        values[i] = i < 7 ? 100 : 0;
    convert_from_f32(NRL_DTYPE_F16, values, K, a);
    memcpy(b, a, sizeof b);
    for (int64_t isa = 1; isa <= 3; isa++) {
        void *self = test_open_isa(&table, isa);
        if (!self) continue;
        nrl_gemm_args g = {.size = sizeof g,
                           .transpose_b = true,
                           .overwrite = true,
                           .a = row(a, NRL_DTYPE_F16, K),
                           .b = row(b, NRL_DTYPE_F16, K),
                           .c = row(high, NRL_DTYPE_F32, 1),
                           .alpha = 1};
        assert_int_equal(table.ops->gemm(self, NULL, &g), NRL_OK);
        assert_true(high[0] == 70000);
        g.c = row(low, NRL_DTYPE_F16, 1);
        assert_int_equal(table.ops->gemm(self, NULL, &g), NRL_OK);
        assert_int_equal(low[0], 0x7c00);
        table.close(self);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_half_is_widened_exactly),
        cmocka_unit_test(every_half_is_rounded_to_nearest),
        cmocka_unit_test(a_product_overflows_in_its_result_alone),
    };
    if (!test_backend_table("cpu", &table)) return 77;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
