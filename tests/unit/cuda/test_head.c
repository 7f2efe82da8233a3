/*
 * test_head.c - a row of logits that is divided in any way gives the same sums; extreme logits.
 */
#include "cuda_backend.h"
#include "fake_driver.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum { COLUMNS = 9001 };

static cuda *gpu;
static float z[COLUMNS], lse, logp, entropy, log_sum_p2;
static int32_t argmax, target;

static void head(int64_t cols)
{
    nrl_head_args a = {.size = sizeof a,
                       .logits = {.data = z, .dtype = NRL_DTYPE_F32, .rows = 1, .cols = cols, .stride = cols},
                       .target = &target,
                       .inverse_temperature = 1,
                       .logp = &logp,
                       .lse = &lse,
                       .entropy = &entropy,
                       .log_sum_p2 = &log_sum_p2,
                       .argmax = &argmax};
    assert_int_equal(cuda_op_head(gpu, NULL, &a), NRL_OK);
}

static void fill(float value)
{
    for (int i = 0; i < COLUMNS; i++)
        z[i] = value;
}

static void equal_logits_have_the_entropy_of_their_number(void **state)
{
    (void)state;
    fill(-1e4f);
    target = 17;
    head(COLUMNS);
    assert_int_equal(argmax, 0);
    assert_true(fabs(logp + log(COLUMNS)) < 2e-5);
    assert_true(fabs(entropy - log(COLUMNS)) < 2e-5);
    assert_true(fabs(log_sum_p2 + log(COLUMNS)) < 2e-5);
}

static void hidden_logits_change_nothing(void **state)
{
    (void)state;
    fill(-INFINITY);
    z[5000] = 3;
    z[8000] = 3;
    target = 8000;
    head(COLUMNS);
    assert_int_equal(argmax, 5000);
    assert_true(fabs(logp + log(2)) < 1e-6 && fabs(entropy - log(2)) < 1e-6);
    assert_true(fabs(lse - 3 - log(2)) < 1e-6);
}

static void the_first_of_equals_wins_wherever_it_is(void **state)
{
    (void)state;
    for (int at = 1; at < COLUMNS; at += 977) {
        fill(0);
        z[at] = z[COLUMNS - 1] = 2;
        target = -1;
        head(COLUMNS);
        assert_int_equal(argmax, at);
        assert_true(logp == 0);
    }
}

static void a_nan_is_not_lost(void **state)
{
    (void)state;
    fill(1);
    z[4321] = NAN;
    target = 0;
    head(COLUMNS);
    assert_true(isnan(lse) && isnan(logp) && isnan(entropy));
    assert_int_equal(argmax, 4321);
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
        cmocka_unit_test(equal_logits_have_the_entropy_of_their_number),
        cmocka_unit_test(hidden_logits_change_nothing),
        cmocka_unit_test(the_first_of_equals_wins_wherever_it_is),
        cmocka_unit_test(a_nan_is_not_lost),
    };
    return cmocka_run_group_tests(tests, open_gpu, close_gpu);
}
