/*
 * test_fp8.c - operands of products rounded to 8 bits on every instruction set: every number of both formats, and f32
 * numbers around the middles between neighbours, as PyTorch 2.15 converts them (torch.float8_e4m3fn and float8_e5m2);
 * what is too large, infinite or not a number; and scales.
 */
#include "support/backend.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

/* The numbers of codes 0 to the largest; the codes of negative numbers are 128 higher. */
/* clang-format off */
static const float e4m3_values[127] = {
    0, 0.001953125, 0.00390625, 0.005859375, 0.0078125, 0.009765625, 0.01171875, 0.013671875, 0.015625, 0.017578125,
    0.01953125, 0.021484375, 0.0234375, 0.025390625, 0.02734375, 0.029296875, 0.03125, 0.03515625, 0.0390625,
    0.04296875, 0.046875, 0.05078125, 0.0546875, 0.05859375, 0.0625, 0.0703125, 0.078125, 0.0859375, 0.09375,
    0.1015625, 0.109375, 0.1171875, 0.125, 0.140625, 0.15625, 0.171875, 0.1875, 0.203125, 0.21875, 0.234375, 0.25,
    0.28125, 0.3125, 0.34375, 0.375, 0.40625, 0.4375, 0.46875, 0.5, 0.5625, 0.625, 0.6875, 0.75, 0.8125, 0.875,
    0.9375, 1, 1.125, 1.25, 1.375, 1.5, 1.625, 1.75, 1.875, 2, 2.25, 2.5, 2.75, 3, 3.25, 3.5, 3.75, 4, 4.5, 5, 5.5, 6,
    6.5, 7, 7.5, 8, 9, 10, 11, 12, 13, 14, 15, 16, 18, 20, 22, 24, 26, 28, 30, 32, 36, 40, 44, 48, 52, 56, 60, 64, 72,
    80, 88, 96, 104, 112, 120, 128, 144, 160, 176, 192, 208, 224, 240, 256, 288, 320, 352, 384, 416, 448,
};
/* Bit 0, 1, 2: the number just below, at and just above the middle of a code and the next rounds to the next. */
static const uint8_t e4m3_middles[126] = {
    4, 6, 4, 6, 4, 6, 4, 6, 4, 6, 4, 6, 4, 6, 4, 6, 4, 6, 4, 6, 4, 6, 4, 6, 4, 6, 4, 6, 4, 6, 4, 6, 4, 6, 4, 6, 4, 6,
    4, 6, 4, 6, 4, 6, 4, 6, 4, 6, 4, 6, 4, 6, 4, 6, 4, 6, 4, 6, 4, 6, 4, 6, 4, 6, 4, 6, 4, 6, 4, 6, 4, 6, 4, 6, 4, 6,
    4, 6, 4, 6, 4, 6, 4, 6, 4, 6, 4, 6, 4, 6, 4, 6, 4, 6, 4, 6, 4, 6, 4, 6, 4, 6, 4, 6, 4, 6, 4, 6, 4, 6, 4, 6, 4, 6,
    4, 6, 4, 6, 4, 6, 4, 6, 4, 6, 4, 6,
};
static const float e5m2_values[124] = {
    0, 0x1.0000000000000p-16, 0x1.0000000000000p-15, 0x1.8000000000000p-15, 6.103515625e-05, 0x1.4000000000000p-14,
    0x1.8000000000000p-14, 0x1.c000000000000p-14, 0.0001220703125, 0x1.4000000000000p-13, 0x1.8000000000000p-13,
    0x1.c000000000000p-13, 0.000244140625, 0x1.4000000000000p-12, 0.0003662109375, 0x1.c000000000000p-12,
    0.00048828125, 0.0006103515625, 0.000732421875, 0.0008544921875, 0.0009765625, 0.001220703125, 0.00146484375,
    0.001708984375, 0.001953125, 0.00244140625, 0.0029296875, 0.00341796875, 0.00390625, 0.0048828125, 0.005859375,
    0.0068359375, 0.0078125, 0.009765625, 0.01171875, 0.013671875, 0.015625, 0.01953125, 0.0234375, 0.02734375,
    0.03125, 0.0390625, 0.046875, 0.0546875, 0.0625, 0.078125, 0.09375, 0.109375, 0.125, 0.15625, 0.1875, 0.21875,
    0.25, 0.3125, 0.375, 0.4375, 0.5, 0.625, 0.75, 0.875, 1, 1.25, 1.5, 1.75, 2, 2.5, 3, 3.5, 4, 5, 6, 7, 8, 10, 12,
    14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384, 448, 512, 640, 768, 896,
    1024, 1280, 1536, 1792, 2048, 2560, 3072, 3584, 4096, 5120, 6144, 7168, 8192, 10240, 12288, 14336, 16384, 20480,
    24576, 28672, 32768, 40960, 49152, 57344,
};
/* Bit 0, 1, 2: the number just below, at and just above the middle of a code and the next rounds to the next. */
static const uint8_t e5m2_middles[123] = {
    4, 6, 4, 6, 4, 6, 4, 6, 4, 6, 4, 6, 4, 6, 4, 6, 4, 6, 4, 6, 4, 6, 4, 6, 4, 6, 4, 6, 4, 6, 4, 6, 4, 6, 4, 6, 4, 6,
    4, 6, 4, 6, 4, 6, 4, 6, 4, 6, 4, 6, 4, 6, 4, 6, 4, 6, 4, 6, 4, 6, 4, 6, 4, 6, 4, 6, 4, 6, 4, 6, 4, 6, 4, 6, 4, 6,
    4, 6, 4, 6, 4, 6, 4, 6, 4, 6, 4, 6, 4, 6, 4, 6, 4, 6, 4, 6, 4, 6, 4, 6, 4, 6, 4, 6, 4, 6, 4, 6, 4, 6, 4, 6, 4, 6,
    4, 6, 4, 6, 4, 6, 4, 6, 4,
};
/* clang-format on */

static const struct {
    uint32_t format;
    int n; /* codes that are not negative */
    const float *values;
    const uint8_t *middles;
} formats[] = {{NRL_FP8_E4M3, 127, e4m3_values, e4m3_middles}, {NRL_FP8_E5M2, 124, e5m2_values, e5m2_middles}};

static nrl_backend table;

/* y[n] = x[n] rounded: a product with 1. */
static void round_all(void *self, uint32_t format, const float *scale, float *amax, float *x, float *y, int64_t n)
{
    float one = 1;
    nrl_gemm_args g = {.size = sizeof g,
                       .transpose_a = true,
                       .overwrite = true,
                       .a = {.data = x, .dtype = NRL_DTYPE_F32, .rows = 1, .cols = n, .stride = n},
                       .b = {.data = &one, .dtype = NRL_DTYPE_F32, .rows = 1, .cols = 1, .stride = 1},
                       .c = {.data = y, .dtype = NRL_DTYPE_F32, .rows = n, .cols = 1, .stride = 1},
                       .alpha = 1,
                       .fp8_a = {.format = format, .scale = scale, .amax = amax},
                       .fp8_b = {.format = NRL_FP8_E4M3}};
    assert_int_equal(table.ops->gemm(self, NULL, &g), NRL_OK);
}

enum { MOST = 8 * 128 };

/* Numbers, and what becomes of them with scale 1. */
static int64_t fill(int f, float *x, float *want)
{
    int64_t n = 0;
    for (int i = 0; i < formats[f].n; i++)
        for (int sign = 1; sign >= -1; sign -= 2) {
            const float value = formats[f].values[i], next = formats[f].values[i + 1 < formats[f].n ? i + 1 : i];
            const float middle = (value + next) / 2;
            const float around[] = {nextafterf(middle, 0), middle, nextafterf(middle, INFINITY)};
            x[n] = want[n] = (float)sign * value;
            n++;
            for (int k = 0; k < 3 && i + 1 < formats[f].n; k++, n++) {
                x[n] = (float)sign * around[k];
                want[n] = (float)sign * (formats[f].middles[i] >> k & 1 ? next : value);
            }
        }
    return n;
}

static void numbers_are_rounded_as_by_pytorch(void **state)
{
    static float x[MOST], want[MOST], got[MOST];
    (void)state;
    for (int f = 0; f < 2; f++) {
        const int64_t n = fill(f, x, want);
        for (int64_t isa = 1; isa <= 3; isa++) {
            void *self = test_open_isa(&table, isa);
            if (!self) continue;
            for (int exponent = -62; exponent <= 62; exponent += 31) { /* x / scale has the bits of x, scaled */
                static float scaled[MOST];
                const float scale = ldexpf(1, exponent);
                for (int64_t i = 0; i < n; i++)
                    scaled[i] = x[i] / scale;
                round_all(self, formats[f].format, &scale, NULL, scaled, got, n);
                for (int64_t i = 0; i < n; i++)
                    if (got[i] * scale != want[i])
                        fail_msg("format %d, isa %d, scale %g: %.9g became %.9g, expected %.9g", f, (int)isa,
                                 (double)scale, (double)x[i], (double)(got[i] * scale), (double)want[i]);
            }
            table.close(self);
        }
    }
}

static void what_is_too_large_becomes_the_largest(void **state)
{
    (void)state;
    for (int64_t isa = 1; isa <= 3; isa++) {
        void *self = test_open_isa(&table, isa);
        if (!self) continue;
        for (int f = 0; f < 2; f++) {
            const float largest = formats[f].values[formats[f].n - 1], scale = 1;
            float x[] = {largest * 1.03f, -largest * 2, 3e38f, INFINITY, NAN}, y[5], amax = 0;
            round_all(self, formats[f].format, &scale, &amax, x, y, 5);
            assert_true(y[0] == largest && y[1] == -largest && y[2] == largest && isnan(y[3]) && isnan(y[4]));
            assert_true(isnan(amax));
            round_all(self, formats[f].format, &scale, &amax, x, y, 1);
            assert_true(isnan(amax)); /* stays the largest of all calls */
        }
        table.close(self);
    }
}

/* Of a scale of 0: the largest power of two that saturates nothing. */
static void a_scale_of_0_follows_the_largest_value(void **state)
{
    (void)state;
    for (int64_t isa = 1; isa <= 3; isa++) {
        void *self = test_open_isa(&table, isa);
        if (!self) continue;
        for (int f = 0; f < 2; f++) {
            const float largest = formats[f].values[formats[f].n - 1], none = 0;
            for (int exponent = -40; exponent <= 40; exponent += 8) {
                /* The least number that is not 0 becomes 0 if the scale is one half of what it may be. */
                const float least = ldexpf(formats[f].values[1] * 0.75f, exponent), most = ldexpf(largest, exponent);
                float x[] = {least, -most}, y[2], amax = most / 2;
                round_all(self, formats[f].format, exponent % 16 ? &none : NULL, &amax, x, y, 2);
                assert_true(y[0] == least / 0.75f && y[1] == -most && amax == most);
                x[1] = -nextafterf(most, INFINITY);
                round_all(self, formats[f].format, &none, NULL, x, y, 2);
                assert_true(y[0] == 0 && y[1] == -most);
            }
        }
        table.close(self);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_rounded_as_by_pytorch),
        cmocka_unit_test(what_is_too_large_becomes_the_largest),
        cmocka_unit_test(a_scale_of_0_follows_the_largest_value),
    };
    if (!test_backend_table("cpu", &table)) return 77;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
