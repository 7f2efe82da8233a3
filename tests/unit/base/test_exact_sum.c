/*
 * test_exact_sum.c - sums of squares: equal to those of long double, and the same bits however the terms are divided.
 */
#include "base/exact_sum.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
/* cmocka.h needs the four above */
#include <cmocka.h>

enum { N = 32 * 1000 + 7 };

/* Of very different sizes, so that rounding shows any other order. */
static float *numbers(void)
{
    float *x = malloc(N * sizeof *x);
    uint64_t state = 1;
    assert_non_null(x);
    for (int i = 0; i < N; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        x[i] = ldexpf((float)(int32_t)(state >> 32) * 0x1p-31f, (int)(state >> 20 & 63) - 40);
    }
    return x;
}

static void any_division_gives_the_same_bits(void **state)
{
    (void)state;
    float *x = numbers();
    exact_sum whole = {0};
    long double want = 0;
    exact_add_squares(&whole, x, N);
    for (int i = 0; i < N; i++)
        want += (long double)x[i] * x[i];
    assert_true(fabsl(exact_value(&whole) - want) <= 1e-14L * want);
    for (int64_t chunks = 1; chunks < 700; chunks = chunks * 3 + 1) {
        exact_sum total = {0};
        const int64_t n = EXACT_CHUNK * chunks;
        for (int64_t at = (N - 1) / n * n; at >= 0; at -= n) { /* the last one first */
            exact_sum part = {0};
            exact_add_squares(&part, x + at, N - at < n ? N - at : n);
            exact_merge(&total, &part);
        }
        assert_memory_equal(&total, &whole, sizeof total);
    }
    free(x);
}

static void extremes_are_exact(void **state)
{
    (void)state;
    const float ends[] = {0x1p-149f, 0, -0.0f, -0x1.fffffep127f};
    exact_sum s = {0}, large = {0};
    assert_true(exact_value(&s) == 0);
    exact_add_squares(&s, ends, 3);
    assert_true(exact_value(&s) == 0x1p-298);
    exact_add_squares(&large, ends, 4);
    assert_true(exact_value(&large) == 0x1.fffffep127 * 0x1.fffffep127);
}

static void what_is_not_finite_stays_so(void **state)
{
    (void)state;
    const float infinite[] = {1, -INFINITY}, none[] = {NAN, 1};
    exact_sum s = {0}, t = {0};
    exact_add_squares(&s, infinite, 2);
    assert_true(isinf(exact_value(&s)));
    exact_add_squares(&t, none, 2);
    exact_merge(&s, &t);
    assert_true(isnan(exact_value(&s)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_division_gives_the_same_bits),
        cmocka_unit_test(extremes_are_exact),
        cmocka_unit_test(what_is_not_finite_stays_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
