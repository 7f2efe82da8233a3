/*
 * test_best.c - which evaluation of a run was the best, and how many came after it.
 */
#include "run/step/evaluator.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

/* The evaluation after the next step gives `value`. */
static void judge(run_progress *p, double value, bool is_largest)
{
    nrl_value list[] = {{.name = "eval_loss", .value = 7}, {.name = "eval_accuracy", .value = value}};
    const value_list values = {.list = list, .n = 2, .room = 2};
    p->step++;
    assert_int_equal(best_judge(p, &values, "eval_accuracy", is_largest), NRL_OK);
}

static void the_best_is_the_smallest_or_the_largest(void **state)
{
    static const double given[] = {0.5, 0.25, 0.75, 0.75};
    static const int64_t best_step[2][4] = {{1, 2, 2, 2}, {1, 1, 3, 3}}; /* of two that are equal the first */
    static const int64_t without[2][4] = {{0, 0, 1, 2}, {0, 1, 0, 1}};
    (void)state;
    for (int is_largest = 0; is_largest < 2; is_largest++) {
        run_progress p = {0};
        for (int i = 0; i < 4; i++) {
            judge(&p, given[i], is_largest);
            assert_int_equal(p.best_step, best_step[is_largest][i]);
            assert_int_equal(p.evals_without_best, without[is_largest][i]);
            assert_true(p.best == given[best_step[is_largest][i] - 1]);
        }
    }
}

static void a_nan_is_never_the_best(void **state)
{
    run_progress p = {0};
    (void)state;
    judge(&p, (double)NAN, false);
    assert_int_equal(p.best_step, 0);
    assert_int_equal(p.evals_without_best, 1);
    judge(&p, 3, false);
    judge(&p, (double)NAN, false);
    assert_int_equal(p.best_step, 2);
    assert_int_equal(p.evals_without_best, 1);
}

static void a_metric_that_the_evaluation_lacks_is_named(void **state)
{
    nrl_value loss = {.name = "eval_loss", .value = 1};
    const value_list values = {.list = &loss, .n = 1, .room = 1};
    run_progress p = {.step = 4};
    (void)state;
    assert_int_equal(best_judge(&p, &values, "eval_margin", true), NRL_ERR_CONFIG);
    assert_non_null(strstr(nrl_error_text(), "eval_margin"));
    assert_int_equal(p.best_step, 0);
    assert_int_equal(p.evals_without_best, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_best_is_the_smallest_or_the_largest),
        cmocka_unit_test(a_nan_is_never_the_best),
        cmocka_unit_test(a_metric_that_the_evaluation_lacks_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
