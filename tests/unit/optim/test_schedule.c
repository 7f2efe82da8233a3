/*
 * test_schedule.c - learning rates compared with those of transformers
 * (tests/data/optim/optim.json).
 */
#include "base/json.h"
#include "config/options.h"
#include "optim/schedule.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TOLERANCE 1e-12 /* both sides compute in double */

/* A golden case as a user would have written it: warm-up and the peer's keyword arguments. */
static nrl_node *as_config(arena *a, const nrl_node *golden)
{
    nrl_node *map = node_new(a, NRL_NODE_MAP);
    const nrl_node *more = nrl_node_find(golden, "kwargs");
    node_append(a, map, "warmup_steps", node_copy(a, nrl_node_find(golden, "warmup")));
    for (size_t i = 0; i < nrl_node_size(more); i++)
        node_append(a, map, nrl_node_key(more, i), node_copy(a, nrl_node_at(more, i)));
    return map;
}

static schedule_options read_options(arena *a, const nrl_node *map)
{
    schedule_options o = {0};
    config_problems problems = {0};
    option_part part = {schedule_rows, schedule_n_rows, sizeof(nrl_option), &o};
    options_fill(a, &problems, "schedule", map, &part, 1);
    assert_int_equal(problems_report(&problems), NRL_OK);
    return o;
}

static schedule_options defaults(int64_t name)
{
    arena a = {0};
    schedule_options o = read_options(&a, NULL);
    arena_free(&a);
    o.name = name;
    return o;
}

static void rates_equal_those_of_transformers(void **state)
{
    (void)state;
    arena a = {0};
    nrl_node *golden;
    char *path = mem_printf("%s/tests/data/optim/optim.json", getenv("NRL_TEST_SOURCE"));
    assert_int_equal(json_read_file(&a, path, 1 << 20, &golden), NRL_OK);
    const nrl_node *cases = nrl_node_find(golden, "schedules");
    assert_int_equal(nrl_node_size(cases), 11);
    for (size_t i = 0; i < nrl_node_size(cases); i++) {
        const nrl_node *c = nrl_node_at(cases, i), *rates = nrl_node_find(c, "lr_used_at_step");
        schedule_options o = read_options(&a, as_config(&a, c));
        schedule s;
        assert_int_equal(schedule_find(nrl_node_string(nrl_node_find(c, "name"), ""), &o), NRL_OK);
        assert_int_equal(
            schedule_init(&s, &o, nrl_node_f64(nrl_node_find(c, "lr"), 0), nrl_node_int(nrl_node_find(c, "steps"), 0)),
            NRL_OK);
        for (size_t t = 0; t < nrl_node_size(rates); t++) {
            double want = nrl_node_f64(nrl_node_at(rates, t), -1);
            double got = schedule_rate(&s, (int64_t)t);
            if (fabs(got - want) > TOLERANCE)
                fail_msg("%s, step %zu: %.17g, expected %.17g", nrl_node_string(nrl_node_find(c, "name"), ""), t, got,
                         want);
        }
    }
    free(path);
    arena_free(&a);
}

static void the_first_step_of_a_warm_up_has_rate_0(void **state)
{
    (void)state;
    schedule_options o = defaults(SCHEDULE_LINEAR);
    schedule s;
    o.warmup_steps = 2;
    assert_int_equal(schedule_init(&s, &o, 1, 10), NRL_OK);
    assert_true(schedule_rate(&s, 0) == 0);
    assert_true(schedule_rate(&s, 2) == 1);
}

static void a_ratio_is_rounded_up_to_steps(void **state)
{
    (void)state;
    schedule_options o = defaults(SCHEDULE_COSINE);
    schedule s;
    o.warmup_ratio = 0.1;
    assert_int_equal(schedule_init(&s, &o, 1, 24), NRL_OK);
    assert_int_equal(s.options.warmup_steps, 3);
}

static void a_warm_up_longer_than_the_run_only_rises(void **state)
{
    (void)state;
    for (int64_t name = SCHEDULE_CONSTANT_WITH_WARMUP; name < SCHEDULE_COUNT; name++) {
        schedule_options o = defaults(name);
        schedule s;
        o.warmup_steps = 100;
        if (name == SCHEDULE_COSINE_WITH_MIN_LR) o.min_lr_rate = 0.1;
        assert_int_equal(schedule_init(&s, &o, 1, 10), NRL_OK);
        for (int64_t t = 1; t < 10; t++) {
            assert_true(schedule_rate(&s, t) > schedule_rate(&s, t - 1));
            assert_true(schedule_rate(&s, t) < 0.1);
        }
    }
}

static void rates_stay_finite_for_one_step_and_beyond_the_end(void **state)
{
    (void)state;
    static const int64_t warm[] = {0, 1, 2}, total[] = {1, 2, 3};
    for (int64_t name = SCHEDULE_CONSTANT; name < SCHEDULE_COUNT; name++)
        for (size_t i = 0; i < 9; i++) {
            schedule_options o = defaults(name);
            schedule s;
            if (name != SCHEDULE_CONSTANT) o.warmup_steps = warm[i % 3];
            if (name == SCHEDULE_COSINE_WITH_MIN_LR) o.min_lr = 0.1;
            assert_int_equal(schedule_init(&s, &o, 1, total[i / 3]), NRL_OK);
            for (int64_t t = 0; t < 8; t++)
                assert_true(schedule_rate(&s, t) >= 0 && schedule_rate(&s, t) <= 1);
        }
}

static void expect_refused(const schedule_options *o, const char *words)
{
    assert_int_equal(schedule_check(o), NRL_ERR_CONFIG);
    if (!strstr(nrl_error_text(), words)) fail_msg("'%s' lacks '%s'", nrl_error_text(), words);
}

static void options_that_a_schedule_would_ignore_are_refused(void **state)
{
    (void)state;
    schedule_options o = defaults(SCHEDULE_CONSTANT);
    o.warmup_steps = 5;
    expect_refused(&o, "constant_with_warmup does");
    o = defaults(SCHEDULE_LINEAR);
    o.min_lr = 1e-5;
    expect_refused(&o, "'linear' does not use min_lr");
}

static void two_ways_to_say_one_thing_are_refused(void **state)
{
    (void)state;
    schedule_options o = defaults(SCHEDULE_LINEAR);
    o.warmup_steps = 5;
    o.warmup_ratio = 0.1;
    expect_refused(&o, "expected one of them");
    o = defaults(SCHEDULE_COSINE_WITH_MIN_LR);
    expect_refused(&o, "needs min_lr or min_lr_rate");
    o.min_lr = o.min_lr_rate = 0.1;
    expect_refused(&o, "expected one of them");
}

static void an_unknown_name_is_refused_with_the_nearest(void **state)
{
    (void)state;
    schedule_options o = {0};
    assert_int_equal(schedule_find("cosin", &o), NRL_ERR_CONFIG);
    assert_non_null(strstr(nrl_error_text(), "did you mean 'cosine'?"));
    assert_non_null(strstr(nrl_error_text(), "warmup_stable_decay"));
}

static void floors_above_the_peak_are_refused(void **state)
{
    (void)state;
    schedule_options o = defaults(SCHEDULE_POLYNOMIAL);
    schedule s;
    o.lr_end = 0.5;
    assert_int_equal(schedule_init(&s, &o, 0.5, 10), NRL_ERR_CONFIG);
    o = defaults(SCHEDULE_COSINE_WITH_MIN_LR);
    o.min_lr = 2;
    assert_int_equal(schedule_init(&s, &o, 1, 10), NRL_ERR_CONFIG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rates_equal_those_of_transformers),
        cmocka_unit_test(the_first_step_of_a_warm_up_has_rate_0),
        cmocka_unit_test(a_ratio_is_rounded_up_to_steps),
        cmocka_unit_test(a_warm_up_longer_than_the_run_only_rises),
        cmocka_unit_test(rates_stay_finite_for_one_step_and_beyond_the_end),
        cmocka_unit_test(options_that_a_schedule_would_ignore_are_refused),
        cmocka_unit_test(two_ways_to_say_one_thing_are_refused),
        cmocka_unit_test(an_unknown_name_is_refused_with_the_nearest),
        cmocka_unit_test(floors_above_the_peak_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
