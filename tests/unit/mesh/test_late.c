/*
 * test_late.c - time: suspended runs, ranks that compute for a long time, calls that never end,
 * ranks that finish before others.
 */
#include "forked.h"

static group suspended, computing, slow;

static void expect_content(group *g)
{
    for (int32_t r = 0; r < g->world; r++) {
        rank_report report;
        assert_true(collect(g, r, &report));
        assert_string_equal(report.text, "");
        assert_int_equal(report.status, NRL_OK);
    }
    end_errors(g);
}

/* All end at the same tick, some after the one at which rank 0 has been released. */
static nrl_status until_released(nrl_mesh *m, int32_t rank)
{
    int32_t all[PAIRS_MAX];
    (void)rank;
    for (int left = 10; left; left -= all[0]) {
        const int32_t released = atomic_load(&suspended.state->released);
        NRL_TRY(mesh_exchange(m, "tick", &released, sizeof released, all));
        clock_sleep(0.1);
    }
    return NRL_OK;
}

static void a_run_that_is_suspended_whole_goes_on(void **state)
{
    (void)state;
    expect_content(&suspended);
}

/* ---- a rank that computes ---- */

static nrl_status rank_one_computes(nrl_mesh *m, int32_t rank)
{
    int32_t all[PAIRS_MAX];
    NRL_TRY(mesh_exchange(m, "tick", &rank, sizeof rank, all));
    if (rank == 1) await_release(&computing);
    return go_on(m, rank);
}

static void a_rank_that_computes_hears_of_it_and_says_so(void **state)
{
    (void)state;
    rank_report report;
    char text[4096];
    await_errors(&computing, 1, text, sizeof text, "was not in a call");
    EXPECT_TEXT(text, "warning: rank 2 (");
    EXPECT_TEXT(text, "was not in a call");
    atomic_store(&computing.state->released, true);
    for (int32_t r = 0; r < 2; r++) {
        assert_true(collect(&computing, r, &report));
        EXPECT_TEXT(report.text, "rank 2 (");
    }
    end_errors(&computing);
}

/* ---- calls that do not end ---- */

static nrl_status one_is_slow(nrl_mesh *m, int32_t rank)
{
    int32_t all[PAIRS_MAX];
    if (rank == 1) clock_sleep(7);
    return mesh_exchange(m, "tick", &rank, sizeof rank, all);
}

static void a_slow_rank_that_beats_is_waited_for(void **state)
{
    (void)state;
    expect_content(&slow);
}

/* What takes seconds happens to all three groups at once. */
static int start_groups(void **state)
{
    (void)state;
    prepare(&suspended, 3, until_released);
    start_all(&suspended);
    prepare(&computing, 3, rank_one_computes);
    start_all(&computing);
    prepare(&slow, 3, one_is_slow);
    start_all(&slow);
    await_all(&suspended);
    await_all(&computing);
    clock_sleep(1.3);
    end_rank(&computing, 2);
    for (int r = 0; r < 3; r++)
        kill(suspended.children[r].pid, SIGSTOP);
    clock_sleep(8);
    for (int r = 0; r < 3; r++)
        kill(suspended.children[r].pid, SIGCONT);
    atomic_store(&suspended.state->released, true);
    return 0;
}

static nrl_status one_calls_something_else(nrl_mesh *m, int32_t rank)
{
    int32_t all[PAIRS_MAX];
    mesh_set_step(m, 12);
    NRL_TRY(mesh_barrier(m, "begin"));
    if (rank == 1) return mesh_broadcast(m, "save", 0, all, 8); /* 4 bytes come */
    return mesh_exchange(m, "losses", &rank, sizeof rank, all);
}

static void a_time_out_shows_who_called_what(void **state)
{
    (void)state;
    group g;
    static char text[65536];
    int shown = 0;
    prepare(&g, 3, one_calls_something_else);
    g.setup.timeout_step = 3;
    start_all(&g);
    for (int32_t r = 0; r < 3; r++) {
        rank_report report;
        assert_true(collect(&g, r, &report));
        collect_errors(&g, r, text, sizeof text);
        assert_int_equal(report.status, NRL_ERR_PEER);
        EXPECT_TEXT(report.text, "of axis data (");
        if (!strstr(text, "last calls of rank")) continue;
        shown++;
        EXPECT_TEXT(report.text, "launch.timeout_step");
        EXPECT_TEXT(report.text, "\n  ranks 0 2: all_gather 'losses' of axis data (4 u8, call 2), step 12");
        EXPECT_TEXT(report.text, "\n  rank 1: broadcast 'save' of axis data (8 u8, call 2), step 12");
        EXPECT_TEXT(text, "last calls of rank 0\nbarrier 'begin' of axis data (call 1), step 12, done");
        EXPECT_TEXT(text, "last calls of rank 1");
        EXPECT_TEXT(text, "last calls of rank 2");
    }
    assert_int_equal(shown, 1);
    end_errors(&g);
}

/* ---- the end ---- */

static nrl_status ends_at_its_own_time(nrl_mesh *m, int32_t rank)
{
    NRL_TRY(mesh_barrier(m, "begin"));
    clock_sleep(rank == 0 ? 0 : 1.5 * rank);
    return NRL_OK;
}

static void who_says_goodbye_is_not_missed(void **state)
{
    (void)state;
    group g;
    prepare(&g, 3, ends_at_its_own_time);
    start_all(&g);
    for (int32_t r = 0; r < 3; r++) {
        rank_report report;
        char text[4096];
        assert_true(collect(&g, r, &report));
        assert_string_equal(report.text, "");
        collect_errors(&g, r, text, sizeof text);
        assert_string_equal(text, "");
    }
    end_errors(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_that_is_suspended_whole_goes_on),
        cmocka_unit_test(a_rank_that_computes_hears_of_it_and_says_so),
        cmocka_unit_test(a_slow_rank_that_beats_is_waited_for),
        cmocka_unit_test(a_time_out_shows_who_called_what),
        cmocka_unit_test(who_says_goodbye_is_not_missed),
    };
    return cmocka_run_group_tests(tests, start_groups, NULL);
}
