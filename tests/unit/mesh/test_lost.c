/*
 * test_lost.c - ranks that are killed, stopped or fail: all others name the same rank within ten
 * seconds.
 */
#include "forked.h"
#include "mesh/internal.h"

static void end_one_of_four(int32_t lost, const char *want)
{
    group g;
    prepare(&g, 4, go_on);
    start_all(&g);
    await_all(&g);
    clock_sleep(1.2);
    double since = clock_seconds();
    end_rank(&g, lost);
    expect_named(&g, lost, since, want, ", step ");
}

static void a_killed_rank_is_named_by_all(void **state)
{
    (void)state;
    end_one_of_four(2, "rank 2 (");
}

static void the_rank_that_holds_the_store_may_be_killed_too(void **state)
{
    (void)state;
    end_one_of_four(0, "rank 0 (");
}

static void stopped_ranks_are_named_by_all(void **state)
{
    (void)state;
    group a, b; /* at once, to save time */
    prepare(&a, 4, go_on);
    start_all(&a);
    prepare(&b, 3, go_on);
    start_all(&b);
    await_all(&a);
    await_all(&b);
    clock_sleep(1.2);
    double since = clock_seconds();
    kill(a.children[2].pid, SIGSTOP);
    kill(b.children[0].pid, SIGSTOP);
    expect_named(&a, 2, since, "rank 2 (", ", step ");
    expect_named(&b, 0, since, "rank 0 (", ", step ");
    end_rank(&a, 2);
    end_rank(&b, 0);
}

/* ---- ranks that say why ---- */

static nrl_status fail_at(nrl_mesh *m, int32_t rank, int32_t who)
{
    int32_t all[PAIRS_MAX];
    for (int i = 0; i < 5; i++)
        NRL_TRY(mesh_exchange(m, "tick", &rank, sizeof rank, all));
    if (rank == who) return nrl_fail(NRL_ERR_DATA, "row 17 of train.jsonl is empty");
    return go_on(m, rank);
}

static nrl_status one_fails(nrl_mesh *m, int32_t rank)
{
    return fail_at(m, rank, 1);
}

static nrl_status zero_fails(nrl_mesh *m, int32_t rank)
{
    return fail_at(m, rank, 0);
}

static void expect_told(int32_t who, nrl_status (*body)(nrl_mesh *m, int32_t rank), const char *want)
{
    group g;
    prepare(&g, 4, body);
    start_all(&g);
    for (int32_t r = 0; r < 4; r++) {
        rank_report report;
        assert_true(collect(&g, r, &report));
        assert_int_equal(report.status, r == who ? NRL_ERR_DATA : NRL_ERR_PEER);
        if (r != who) assert_string_equal(report.text, want);
    }
    end_errors(&g);
}

static void a_rank_that_fails_tells_the_others_why(void **state)
{
    (void)state;
    expect_told(1, one_fails, "rank 1 failed: row 17 of train.jsonl is empty");
}

static void the_holder_of_the_store_waits_until_its_reason_is_read(void **state)
{
    (void)state;
    expect_told(0, zero_fails, "rank 0 failed: row 17 of train.jsonl is empty");
}

/* A device that waits for an exchange with the lost rank holds up the step thread, as a full queue of launches does. */
static nrl_status wait_for_device(nrl_mesh *m, int32_t rank)
{
    int32_t all[PAIRS_MAX];
    pairs_group *g = m->self;
    if (rank == 1) return one_fails(m, rank);
    for (int i = 0; i < 5; i++)
        NRL_TRY(mesh_exchange(m, "tick", &rank, sizeof rank, all));
    for (int i = 0; i < 600 && !g->aborted; i++)
        clock_sleep(0.1);
    if (!g->aborted) return nrl_fail(NRL_ERR_BUG, "nothing ended what the device waits for");
    return mesh_exchange(m, "tick", &rank, sizeof rank, all);
}

static void a_device_that_waits_for_a_lost_rank_is_released(void **state)
{
    (void)state;
    expect_told(1, wait_for_device, "rank 1 failed: row 17 of train.jsonl is empty");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_killed_rank_is_named_by_all),
        cmocka_unit_test(the_rank_that_holds_the_store_may_be_killed_too),
        cmocka_unit_test(stopped_ranks_are_named_by_all),
        cmocka_unit_test(a_rank_that_fails_tells_the_others_why),
        cmocka_unit_test(the_holder_of_the_store_waits_until_its_reason_is_read),
        cmocka_unit_test(a_device_that_waits_for_a_lost_rank_is_released),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
