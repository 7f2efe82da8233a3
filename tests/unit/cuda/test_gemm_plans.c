/*
 * test_gemm_plans.c - the table of plans of matrix products, over a library that counts them: each product is
 * planned once, and a full table replaces the plan that was used least recently.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>

#include "gemm_plans.h"

static int n_made, n_live, fails;

/* A plan is the number of rows, and a product without rows has none. */
static nrl_status make(void *library, const gemm_product *p, size_t workspace_bytes, const gemm_choice *choice,
                       void **plan)
{
    (void)library, (void)workspace_bytes, (void)choice;
    n_made++;
    *plan = NULL;
    if (fails) return nrl_fail(NRL_ERR_DEVICE, "no plan today");
    if (!p->rows) return NRL_OK;
    int64_t *rows = malloc(sizeof *rows);
    *rows = p->rows;
    n_live++;
    *plan = rows;
    return NRL_OK;
}

static void discard(void *library, void *plan)
{
    (void)library;
    n_live--;
    free(plan);
}

static const gemm_library counting = {.plan = make, .plan_free = discard};
static gemm_plans plans;

static int open_plans(void **state)
{
    (void)state;
    n_made = n_live = fails = 0;
    return gemm_plans_open(&plans, &counting, NULL);
}

static int close_plans(void **state)
{
    (void)state;
    gemm_plans_close(&plans);
    return n_live;
}

/* Finds the product of so many rows; returns whether it was planned for this. */
static bool is_planned_anew(int64_t rows)
{
    const gemm_product p = {.rows = rows, .cols = 8, .depth = 8, .type = NRL_DTYPE_BF16};
    int before = n_made;
    void *plan;
    assert_int_equal(gemm_plans_find(&plans, &p, 256, NULL, NULL, &plan), NRL_OK);
    if (rows)
        assert_int_equal(*(int64_t *)plan, rows);
    else
        assert_null(plan);
    return n_made > before;
}

static void a_product_is_planned_once_even_if_it_has_no_plan(void **state)
{
    (void)state;
    for (int64_t rows = 0; rows < 100; rows++)
        assert_true(is_planned_anew(rows));
    for (int64_t rows = 0; rows < 100; rows++)
        assert_false(is_planned_anew(rows));
}

static void a_full_table_replaces_what_was_used_least_recently(void **state)
{
    const int64_t most = GEMM_PLANS_MOST;
    (void)state;
    for (int64_t rows = 1; rows <= most; rows++)
        assert_true(is_planned_anew(rows));
    assert_false(is_planned_anew(1)); /* now 2 is the oldest */
    assert_true(is_planned_anew(most + 1));
    assert_int_equal(n_live, most);
    assert_false(is_planned_anew(1));
    for (int64_t rows = 3; rows <= most + 1; rows++)
        assert_false(is_planned_anew(rows));
    assert_true(is_planned_anew(2)); /* in place of 1, and so on */
    assert_true(is_planned_anew(1));
    assert_true(is_planned_anew(3));
}

/* A fixed product between ever new ones, as a head's between packed batches. */
static void what_every_step_uses_stays(void **state)
{
    (void)state;
    assert_true(is_planned_anew(7));
    for (int64_t rows = 100; rows < 100 + 4 * GEMM_PLANS_MOST; rows++) {
        assert_true(is_planned_anew(rows));
        assert_false(is_planned_anew(7));
    }
    assert_int_equal(n_live, GEMM_PLANS_MOST);
}

static void a_failure_is_not_remembered(void **state)
{
    const gemm_product p = {.rows = 5, .type = NRL_DTYPE_BF16};
    void *plan;
    (void)state;
    fails = 1;
    assert_int_equal(gemm_plans_find(&plans, &p, 256, NULL, NULL, &plan), NRL_ERR_DEVICE);
    fails = 0;
    assert_int_equal(gemm_plans_find(&plans, &p, 256, NULL, NULL, &plan), NRL_OK);
    assert_int_equal(n_made, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_product_is_planned_once_even_if_it_has_no_plan, open_plans, close_plans),
        cmocka_unit_test_setup_teardown(a_full_table_replaces_what_was_used_least_recently, open_plans, close_plans),
        cmocka_unit_test_setup_teardown(what_every_step_uses_stays, open_plans, close_plans),
        cmocka_unit_test_setup_teardown(a_failure_is_not_remembered, open_plans, close_plans),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
