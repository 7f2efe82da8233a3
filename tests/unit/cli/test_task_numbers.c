/* test_task_numbers.c - the numbers that `nrl eval --task` finds in answers equal those of lm-evaluation-harness
 * (tests/data/tasks/scores.json). */
#include "tools/eval/task_score.c"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static const nrl_node *recorded(arena *a, const char *key)
{
    nrl_node *root;
    const char *path = arena_printf(a, "%s/tests/data/tasks/scores.json", getenv("NRL_TEST_SOURCE"));
    assert_int_equal(json_read_file(a, path, 1 << 20, &root), NRL_OK);
    return nrl_node_find(root, key);
}

static void numbers_are_found_as_recorded(void **state)
{
    arena a = {0};
    const nrl_node *rows = recorded(&a, "numbers");
    (void)state;
    assert_true(nrl_node_size(rows) > 10);
    for (size_t i = 0; i < nrl_node_size(rows); i++) {
        const nrl_node *row = nrl_node_at(rows, i);
        const char *text = nrl_node_string(nrl_node_at(row, 0), "");
        assert_string_equal(task_number(&a, text, true), nrl_node_string(nrl_node_at(row, 1), ""));
        assert_string_equal(task_number(&a, text, false), nrl_node_string(nrl_node_at(row, 2), ""));
    }
    arena_free(&a);
}

static void answers_are_compared_as_recorded(void **state)
{
    arena a = {0};
    const nrl_node *rows = recorded(&a, "equal");
    (void)state;
    for (size_t i = 0; i < nrl_node_size(rows); i++) {
        const nrl_node *row = nrl_node_at(rows, i);
        const char *found = task_normalized(&a, nrl_node_string(nrl_node_at(row, 0), ""));
        const char *right = task_normalized(&a, nrl_node_string(nrl_node_at(row, 1), ""));
        assert_int_equal(!strcmp(found, right), nrl_node_bool(nrl_node_at(row, 2), false));
    }
    arena_free(&a);
}

static void the_error_is_that_of_a_sample(void **state)
{
    mean m = {0};
    task_scores s = {0};
    (void)state;
    for (int i = 0; i < 4; i++)
        mean_add(&m, i == 0);
    add_metric(&s, "acc", &m);
    assert_true(s.metrics[0].value == 0.25);
    assert_true(fabs(s.metrics[0].stderr_ - 0.25) < 1e-12); /* sqrt(0.75 / 3) / sqrt(4) */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(numbers_are_found_as_recorded),
                                       cmocka_unit_test(answers_are_compared_as_recorded),
                                       cmocka_unit_test(the_error_is_that_of_a_sample)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
