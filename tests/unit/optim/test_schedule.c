/*
 * test_schedule.c - schedule plugins: learning rates compared with those of transformers
 * (tests/data/optim/optim.json), and what they refuse.
 */
#include "base/json.h"
#include "optim/schedule.h"
#include "support/options.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TOLERANCE 1e-12 /* both sides compute in double */

typedef struct {
    arena memory;
    plugin_host *host;
    schedule s;
} fixture;

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    f->host = test_host();
    *state = f;
    return f->host ? 0 : 1;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    schedule_close(&f->s);
    plugin_host_destroy(f->host);
    arena_free(&f->memory);
    free(f);
    return 0;
}

static nrl_status open_schedule(fixture *f, const char *name, const char *yaml, double lr, int64_t steps)
{
    const void *table;
    void *options;
    schedule_close(&f->s);
    NRL_TRY(test_options(f->host, &f->memory, NRL_KIND_SCHEDULE, "schedule", name, yaml, &table, &options));
    return schedule_open(&f->s, table, options, lr, steps);
}

static double rate_at(const fixture *f, int64_t step)
{
    double rate = -1;
    assert_int_equal(schedule_rate(&f->s, step, &rate), NRL_OK);
    return rate;
}

/* A golden case as a user would have written it: warm-up and the peer's keyword arguments. */
static const char *as_yaml(arena *a, const nrl_node *golden)
{
    const nrl_node *more = nrl_node_find(golden, "kwargs");
    int64_t warmup = nrl_node_int(nrl_node_find(golden, "warmup"), 0);
    const char *text = warmup ? arena_printf(a, "warmup_steps: %lld", (long long)warmup) : "";
    for (size_t i = 0; i < nrl_node_size(more); i++)
        text = arena_printf(a, "%s%s%s: %.17g", text, *text ? ", " : "", nrl_node_key(more, i),
                            nrl_node_f64(nrl_node_at(more, i), 0));
    return arena_printf(a, "{%s}", text);
}

static void rates_equal_those_of_transformers(void **state)
{
    fixture *f = *state;
    nrl_node *golden;
    char *path = mem_printf("%s/tests/data/optim/optim.json", getenv("NRL_TEST_SOURCE"));
    assert_int_equal(json_read_file(&f->memory, path, 1 << 20, &golden), NRL_OK);
    const nrl_node *cases = nrl_node_find(golden, "schedules");
    assert_int_equal(nrl_node_size(cases), 11);
    for (size_t i = 0; i < nrl_node_size(cases); i++) {
        const nrl_node *c = nrl_node_at(cases, i), *rates = nrl_node_find(c, "lr_used_at_step");
        const char *name = nrl_node_string(nrl_node_find(c, "name"), "");
        assert_int_equal(open_schedule(f, name, as_yaml(&f->memory, c), nrl_node_f64(nrl_node_find(c, "lr"), 0),
                                       nrl_node_int(nrl_node_find(c, "steps"), 0)),
                         NRL_OK);
        for (size_t t = 0; t < nrl_node_size(rates); t++) {
            double want = nrl_node_f64(nrl_node_at(rates, t), -1), got = rate_at(f, (int64_t)t);
            if (fabs(got - want) > TOLERANCE) fail_msg("%s, step %zu: %.17g, expected %.17g", name, t, got, want);
        }
    }
    free(path);
}

static void the_first_step_of_a_warm_up_has_rate_0(void **state)
{
    fixture *f = *state;
    assert_int_equal(open_schedule(f, "linear", "{warmup_steps: 2}", 1, 10), NRL_OK);
    assert_true(rate_at(f, 0) == 0);
    assert_true(rate_at(f, 2) == 1);
}

static void a_ratio_is_rounded_up_to_steps(void **state)
{
    fixture *f = *state;
    assert_int_equal(open_schedule(f, "cosine", "{warmup_ratio: 0.1}", 1, 24), NRL_OK);
    assert_true(rate_at(f, 2) < 1);
    assert_true(rate_at(f, 3) == 1);
}

static void a_warm_up_longer_than_the_run_only_rises(void **state)
{
    fixture *f = *state;
    const char **names;
    size_t n = plugin_names(f->host, &f->memory, NRL_KIND_SCHEDULE, &names);
    assert_true(n >= 9);
    for (size_t i = 0; i < n; i++) {
        bool with_floor = !strcmp(names[i], "cosine_with_min_lr");
        if (!strcmp(names[i], "constant")) continue;
        assert_int_equal(open_schedule(f, names[i],
                                       with_floor ? "{warmup_steps: 100, min_lr_rate: 0.1}" : "{warmup_steps: 100}", 1,
                                       10),
                         NRL_OK);
        for (int64_t t = 1; t < 10; t++) {
            assert_true(rate_at(f, t) > rate_at(f, t - 1));
            assert_true(rate_at(f, t) < 0.1);
        }
    }
}

static void expect_refused(fixture *f, const char *name, const char *yaml, double lr, const char *words)
{
    assert_int_equal(open_schedule(f, name, yaml, lr, 10), NRL_ERR_CONFIG);
    if (!strstr(nrl_error_text(), words)) fail_msg("'%s' lacks '%s'", nrl_error_text(), words);
}

static void two_ways_to_say_one_thing_are_refused(void **state)
{
    fixture *f = *state;
    expect_refused(f, "linear", "{warmup_steps: 5, warmup_ratio: 0.1}", 1, "expected one of them");
    expect_refused(f, "cosine_with_min_lr", "{}", 1, "needs min_lr or min_lr_rate");
    expect_refused(f, "cosine_with_min_lr", "{min_lr: 0.1, min_lr_rate: 0.1}", 1, "expected one of them");
}

static void floors_above_the_peak_are_refused(void **state)
{
    fixture *f = *state;
    expect_refused(f, "polynomial", "{lr_end: 0.5}", 0.5, "expected less than lr");
    expect_refused(f, "cosine_with_min_lr", "{min_lr: 2}", 1, "expected at most lr");
}

static void stages_longer_than_the_run_are_refused(void **state)
{
    expect_refused(*state, "warmup_stable_decay", "{warmup_steps: 3, num_stable_steps: 5, num_decay_steps: 4}", 1,
                   "exceed the 10 steps");
}

static double falling_below_0(const void *self, int64_t step)
{
    (void)self;
    return step ? -1.0 : (double)NAN;
}

static void a_rate_that_is_no_number_is_an_error(void **state)
{
    (void)state;
    const nrl_schedule table = {.plugin = {.name = "odd"}, .factor = falling_below_0};
    schedule s = {0};
    double rate;
    assert_int_equal(schedule_open(&s, &table, NULL, 1e-3, 10), NRL_OK);
    for (int64_t t = 0; t < 2; t++) {
        assert_int_equal(schedule_rate(&s, t, &rate), NRL_ERR_PLUGIN);
        assert_non_null(strstr(nrl_error_text(), "schedule 'odd' has the factor"));
    }
    schedule_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rates_equal_those_of_transformers),
        cmocka_unit_test(the_first_step_of_a_warm_up_has_rate_0),
        cmocka_unit_test(a_ratio_is_rounded_up_to_steps),
        cmocka_unit_test(a_warm_up_longer_than_the_run_only_rises),
        cmocka_unit_test(two_ways_to_say_one_thing_are_refused),
        cmocka_unit_test(floors_above_the_peak_are_refused),
        cmocka_unit_test(stages_longer_than_the_run_are_refused),
        cmocka_unit_test(a_rate_that_is_no_number_is_an_error),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
