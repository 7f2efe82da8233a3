/*
 * test_loss_scale.c - the loss scale compared with torch.amp.GradScaler (PyTorch 2.15): the values
 * of get_scale() and the growth tracker after each update. An 'x' in a pattern is a step whose
 * gradient was not finite.
 */
#include "optim/loss_scale.h"
#include <nrl/nrl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static const config_loss_scale defaults = {
    .dynamic = true, .init = 65536, .growth = 2, .backoff = 0.5, .growth_interval = 2000, .min = 0x1p-14};

typedef struct {
    double scale;
    int64_t good_steps;
} after;

static void expect(const config_loss_scale *rule, const char *pattern, const after *steps)
{
    loss_scale s;
    loss_scale_start(&s, rule);
    for (size_t i = 0; pattern[i]; i++) {
        assert_int_equal(loss_scale_update(&s, pattern[i] != 'x'), NRL_OK);
        if (s.scale != steps[i].scale || s.good_steps != steps[i].good_steps)
            fail_msg("step %zu of %s: %.17g after %lld, expected %.17g after %lld", i, pattern, s.scale,
                     (long long)s.good_steps, steps[i].scale, (long long)steps[i].good_steps);
    }
}

static void it_grows_and_backs_off_as_pytorch_does(void **state)
{
    (void)state;
    static const after steps[] = {{32768, 0}, {16384, 0}, {16384, 1}, {16384, 2}, {32768, 0}, {32768, 1},
                                  {32768, 2}, {65536, 0}, {65536, 1}, {32768, 0}, {32768, 1}, {32768, 2},
                                  {16384, 0}, {16384, 1}, {16384, 2}, {32768, 0}};
    config_loss_scale rule = defaults;
    rule.growth_interval = 3;
    expect(&rule, "xx.......x..x...", steps);
}

/* 8e38 and 1.9e39 are beyond f32; factors that f32 rounds. */
static void it_stays_within_f32_as_there(void **state)
{
    (void)state;
    static const after steps[] = {{9.999999680285692e+37, 1},  {9.999999680285692e+37, 0}, {2.9999998533796837e+37, 0},
                                  {2.9999998533796837e+37, 1}, {2.399999882703747e+38, 0}, {2.399999882703747e+38, 1},
                                  {2.399999882703747e+38, 0},  {7.199999850935337e+37, 0}, {7.199999850935337e+37, 1}};
    config_loss_scale rule = defaults;
    rule.init = 1e38, rule.growth = 8, rule.backoff = 0.3, rule.growth_interval = 2;
    expect(&rule, "..x....x.", steps);
}

static void by_default_it_doubles_every_2000_steps(void **state)
{
    (void)state;
    loss_scale s;
    loss_scale_start(&s, &defaults);
    for (int i = 0; i < 1999; i++)
        loss_scale_update(&s, true);
    assert_true(s.scale == 65536 && s.good_steps == 1999);
    loss_scale_update(&s, true);
    assert_true(s.scale == 131072 && s.good_steps == 0);
    loss_scale_update(&s, true);
    assert_true(s.scale == 131072 && s.good_steps == 1);
}

static void below_the_least_scale_it_gives_up(void **state)
{
    (void)state;
    loss_scale s;
    loss_scale_start(&s, &defaults);
    for (int i = 0; i < 30; i++)
        assert_int_equal(loss_scale_update(&s, false), NRL_OK);
    assert_true(s.scale == 0x1p-14);
    assert_int_equal(loss_scale_update(&s, false), NRL_ERR_DIVERGED);
    assert_non_null(strstr(nrl_error_text(), "the loss scale fell to 3.05176e-05, below 6.10352e-05"));
    assert_int_equal(s.overflows, 31);
}

static void a_scale_that_stays_does(void **state)
{
    (void)state;
    static const config_loss_scale rule = {.init = 1000};
    loss_scale s;
    loss_scale_start(&s, &rule);
    for (int i = 0; i < 10; i++)
        assert_int_equal(loss_scale_update(&s, i % 2), NRL_OK);
    assert_true(s.scale == 1000 && s.good_steps == 0 && s.overflows == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_grows_and_backs_off_as_pytorch_does),
        cmocka_unit_test(it_stays_within_f32_as_there),
        cmocka_unit_test(by_default_it_doubles_every_2000_steps),
        cmocka_unit_test(below_the_least_scale_it_gives_up),
        cmocka_unit_test(a_scale_that_stays_does),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
