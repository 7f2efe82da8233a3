/*
 * test_init.c - initial values: any slice gives the same numbers, other names and seeds give other
 * numbers, and they are normally distributed. And the number formats of files, all 65536 values of
 * each half type.
 */
#include "base/convert.h"
#include "support.h"
#include <math.h>

enum { N = 100000 };

static nrl_param normal(const char *name)
{
    return (nrl_param){.name = name, .init = NRL_INIT_NORMAL, .init_scale = 0.5};
}

static void a_slice_holds_the_same_values_as_the_whole(void **state)
{
    (void)state;
    nrl_param p = normal("w");
    float whole[64], part[64];
    model_init_values(&p, 7, 0, 64, whole);
    for (int begin = 0; begin < 20; begin++)
        for (int n = 1; n < 20; n++) {
            model_init_values(&p, 7, begin, n, part);
            assert_memory_equal(part, whole + begin, (size_t)n * sizeof *part);
        }
}

static void names_and_seeds_give_other_values(void **state)
{
    (void)state;
    nrl_param p = normal("w"), q = normal("v");
    float a[8], b[8], c[8];
    model_init_values(&p, 7, 0, 8, a);
    model_init_values(&q, 7, 0, 8, b);
    model_init_values(&p, 8, 0, 8, c);
    assert_memory_not_equal(a, b, sizeof a);
    assert_memory_not_equal(a, c, sizeof a);
}

/* Standard errors for N values: mean 0.0016, variance 0.45 %, kurtosis 0.016; five of each. */
static void values_are_normal(void **state)
{
    (void)state;
    nrl_param p = normal("w");
    float *x = mem_alloc(N * sizeof *x);
    model_init_values(&p, 1, 0, N, x);
    double m1 = 0, m2 = 0, m4 = 0, lag = 0;
    for (int i = 0; i < N; i++) {
        double z = x[i] / 0.5;
        m1 += z / N;
        m2 += z * z / N;
        m4 += z * z * z * z / N;
        if (i) lag += z * x[i - 1] / 0.5 / N;
    }
    assert_true(fabs(m1) < 0.016 && fabs(m2 - 1) < 0.023 && fabs(m4 / (m2 * m2) - 3) < 0.08);
    assert_true(fabs(lag) < 0.016);
    free(x);
}

static void every_half_survives_the_way_to_f32_and_back(void **state)
{
    (void)state;
    static const nrl_dtype types[] = {NRL_DTYPE_F16, NRL_DTYPE_BF16};
    for (int t = 0; t < 2; t++)
        for (uint32_t h = 0; h < 65536; h++) {
            uint16_t in = (uint16_t)h, back;
            float f;
            convert_to_f32(types[t], &in, 1, &f);
            convert_from_f32(types[t], &f, 1, &back);
            if (!isnan(f))
                assert_int_equal(in, back);
            else {
                convert_to_f32(types[t], &back, 1, &f);
                assert_true(isnan(f));
            }
        }
}

/* Midway between two halves goes to the even one, a little more to the upper one. */
static void rounding_is_to_nearest_even(void **state)
{
    (void)state;
    static const nrl_dtype types[] = {NRL_DTYPE_F16, NRL_DTYPE_BF16};
    static const uint16_t largest[] = {0x7BFF, 0x7F7F};
    for (int t = 0; t < 2; t++)
        for (uint32_t h = 0; h < largest[t]; h++) {
            uint16_t pair[2] = {(uint16_t)h, (uint16_t)(h + 1)}, got;
            float f[2];
            convert_to_f32(types[t], pair, 2, f);
            float middle = (float)(((double)f[0] + (double)f[1]) / 2), above = nextafterf(middle, f[1]);
            convert_from_f32(types[t], &middle, 1, &got);
            assert_int_equal(got, h & 1 ? h + 1 : h);
            convert_from_f32(types[t], &above, 1, &got);
            if (above < f[1]) assert_int_equal(got, h + 1);
        }
    float big = 65520.0f;
    uint16_t got;
    convert_from_f32(NRL_DTYPE_F16, &big, 1, &got);
    assert_int_equal(got, 0x7C00);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_slice_holds_the_same_values_as_the_whole),
        cmocka_unit_test(names_and_seeds_give_other_values),
        cmocka_unit_test(values_are_normal),
        cmocka_unit_test(every_half_survives_the_way_to_f32_and_back),
        cmocka_unit_test(rounding_is_to_nearest_even),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
