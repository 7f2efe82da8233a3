/*
 * test_join.c - how ranks join: late ranks, missing ranks, ranks that do not match.
 */
#include "forked.h"
#include "mesh/internal.h"

static nrl_status one_barrier(nrl_mesh *m, int32_t rank)
{
    (void)rank;
    return mesh_barrier(m, "here");
}

static void expect_ends(group *g, int32_t rank, nrl_status status, const char *want)
{
    rank_report report;
    assert_true(collect(g, rank, &report));
    EXPECT_TEXT(report.text, want);
    assert_int_equal(report.status, status);
}

static void ranks_may_come_in_any_order(void **state)
{
    (void)state;
    group g;
    prepare(&g, 3, one_barrier);
    set_options(&g);
    start_rank(&g, 2);
    clock_sleep(0.3);
    start_rank(&g, 1);
    clock_sleep(0.3);
    start_rank(&g, 0); /* it holds the store */
    pairs_keep(&g.wires, -1);
    for (int32_t r = 0; r < 3; r++)
        expect_ends(&g, r, NRL_OK, "");
    end_errors(&g);
}

static void who_joined_and_who_is_missing_is_listed_everywhere(void **state)
{
    (void)state;
    group g;
    prepare(&g, 4, one_barrier);
    g.setup.timeout_init = 3.5;
    g.n_together = 2;
    set_options(&g);
    start_rank(&g, 0);
    start_rank(&g, 2);
    for (int32_t r = 0; r < 4; r += 2) {
        rank_report report;
        assert_true(collect(&g, r, &report));
        assert_int_equal(report.status, NRL_ERR_PEER);
        EXPECT_TEXT(report.text, "2 of 4 ranks joined within 3.5 s (launch.timeout_init)");
        EXPECT_TEXT(report.text, "joined: 0 (");
        EXPECT_TEXT(report.text, "missing: 1, 3");
        close(g.children[r].errors);
    }
    pairs_keep(&g.wires, -1);
}

static void without_rank_0_the_address_is_told(void **state)
{
    (void)state;
    group g;
    char where[64];
    prepare(&g, 2, one_barrier);
    g.setup.timeout_init = 1;
    set_options(&g);
    start_rank(&g, 1);
    snprintf(where, sizeof where, "127.0.0.1 port %d: Connection refused", (int)g.port);
    expect_ends(&g, 1, NRL_ERR_PEER, where);
    close(g.children[1].errors);
    pairs_keep(&g.wires, -1);
}

static void rank_1_believes_in_three(mesh_setup *s, int32_t rank)
{
    if (rank == 1) s->place.world = 3;
}

static void different_numbers_of_ranks_are_told(void **state)
{
    (void)state;
    group g;
    prepare(&g, 2, one_barrier);
    g.change = rank_1_believes_in_three;
    start_all(&g);
    expect_ends(&g, 0, NRL_ERR_CONFIG, "belongs to 2 ranks, rank 1 (");
    expect_ends(&g, 1, NRL_ERR_CONFIG, "belongs to 2 ranks, rank 1 (");
    end_errors(&g);
}

static void rank_2_has_another_seed(mesh_setup *s, int32_t rank)
{
    if (rank == 2) s->fingerprint = "model: tiny\nseed: 2\n";
}

static void the_line_that_differs_is_told_with_both_values(void **state)
{
    (void)state;
    group g;
    prepare(&g, 3, one_barrier);
    g.change = rank_2_has_another_seed;
    start_all(&g);
    for (int32_t r = 0; r < 3; r++) {
        rank_report report;
        assert_true(collect(&g, r, &report));
        assert_int_equal(report.status, NRL_ERR_CONFIG);
        EXPECT_TEXT(report.text, "cannot start: seed differs between ranks\n  ranks 0, 1 (");
        EXPECT_TEXT(report.text, "): 1\n  rank 2 (");
        EXPECT_TEXT(report.text, "): 2");
    }
    end_errors(&g);
}

static void rank_1_lacks_a_line(mesh_setup *s, int32_t rank)
{
    if (rank == 1) s->fingerprint = "model: tiny\n";
}

static void a_line_that_one_rank_lacks_is_told(void **state)
{
    (void)state;
    group g;
    prepare(&g, 2, one_barrier);
    g.change = rank_1_lacks_a_line;
    start_all(&g);
    for (int32_t r = 0; r < 2; r++) {
        rank_report report;
        assert_true(collect(&g, r, &report));
        EXPECT_TEXT(report.text, "): absent");
    }
    end_errors(&g);
}

static void rank_2_calls_itself_1(mesh_setup *s, int32_t rank)
{
    if (rank == 2) s->place.rank = 1;
}

static void a_number_that_two_processes_have_is_told(void **state)
{
    (void)state;
    group g;
    int taken = 0;
    prepare(&g, 3, one_barrier);
    g.change = rank_2_calls_itself_1;
    g.setup.timeout_init = 3;
    start_all(&g);
    for (int32_t r = 0; r < 3; r++) {
        rank_report report;
        assert_true(collect(&g, r, &report));
        taken += report.status == NRL_ERR_CONFIG && strstr(report.text, "rank 1 already exists: process");
        assert_true(report.status == NRL_ERR_CONFIG || report.status == NRL_ERR_PEER);
    }
    assert_int_equal(taken, 1);
    end_errors(&g);
}

static void a_port_that_is_taken_ends_rank_0_at_once(void **state)
{
    (void)state;
    group g;
    int fd;
    prepare(&g, 2, one_barrier);
    g.port = test_taken_port(&fd);
    set_options(&g);
    start_rank(&g, 0);
    expect_ends(&g, 0, NRL_ERR_CONFIG, "is in use on this machine");
    close(g.children[0].errors);
    close(fd);
    pairs_keep(&g.wires, -1);
}

/* ---- in the middle of joining ---- */

static nrl_status open_or_die(const void *options, nrl_store *store, int32_t rank, int32_t world, double timeout_s,
                              void **self)
{
    if (rank == 2) raise(SIGKILL);
    return pairs_open(options, store, rank, world, timeout_s, self);
}

static void a_rank_that_dies_while_connections_are_made_is_named(void **state)
{
    (void)state;
    group g;
    rank_report report;
    nrl_collective dying = pairs_collective;
    dying.open = open_or_die;
    prepare(&g, 3, one_barrier);
    g.setup.collective = &dying;
    double since = clock_seconds();
    start_all(&g);
    for (int32_t r = 0; r < 2; r++) {
        assert_true(collect(&g, r, &report));
        assert_int_equal(report.status, NRL_ERR_PEER);
        EXPECT_TEXT(report.text, "rank 2 (");
        assert_true(report.at - since < 12); /* ten, and the joining */
    }
    assert_false(collect(&g, 2, &report));
    end_errors(&g);
}

/* ---- a launcher ---- */

/* A process that does nothing but hold the store; killed by its parent. */
static pid_t start_launcher(int32_t port)
{
    store_server *server;
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid) return pid;
    if (test_store_serve(port, NULL, &server)) _exit(1);
    for (;;)
        pause();
}

static void end_launcher(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

static void a_launcher_may_hold_the_store_and_restart_the_job(void **state)
{
    (void)state;
    int32_t port = free_port();
    pid_t launcher = start_launcher(port);
    for (int restart = 0; restart < 2; restart++) {
        group g;
        prepare(&g, 2, one_barrier);
        g.port = port;
        g.setup.place.store_elsewhere = true;
        g.setup.place.run_id = restart ? "job-1" : "job-0";
        start_all(&g);
        for (int32_t r = 0; r < 2; r++)
            expect_ends(&g, r, NRL_OK, "");
        end_errors(&g);
    }
    end_launcher(launcher);
}

/* torchrun's agent, whose store asks for no secret: rank 0 opens one that does. */
static void behind_a_foreign_store_ranks_have_their_own(void **state)
{
    (void)state;
    secret_key ours;
    group g;
    nrl_store *foreign;
    unsigned char forged[36] = {1, 2, 3};
    nrl_job_secret_derive("correct horse battery", 21, "job", &ours);
    for (int i = 0; i < 2; i++) {
        prepare(&g, 2, one_barrier);
        pid_t launcher = start_launcher(g.port);
        g.setup.place.store_elsewhere = g.setup.place.store_foreign = true;
        g.setup.place.run_id = "job";
        g.setup.place.secret = &ours;
        if (!i) start_all(&g);
        for (int32_t r = 0; r < 2 && !i; r++)
            expect_ends(&g, r, NRL_OK, "");
        if (i) { /* somebody else says where the store is */
            assert_int_equal(test_store_connect(g.port, 20, &foreign), NRL_OK);
            assert_int_equal(nrl_store_set(foreign, "nrl/job/behind", forged, sizeof forged), NRL_OK);
            store_close(foreign);
            set_options(&g);
            start_rank(&g, 1);
            expect_ends(&g, 1, NRL_ERR_CONFIG, "is not proved by the job's secret");
            close(g.children[1].errors);
            pairs_keep(&g.wires, -1);
        } else {
            end_errors(&g);
        }
        end_launcher(launcher);
    }
}

static nrl_status long_barrier(nrl_mesh *m, int32_t rank)
{
    (void)rank;
    NRL_TRY(mesh_barrier(m, "begin"));
    for (int i = 0; i < 6000 && !control_failed(m->control); i++)
        clock_sleep(0.01);
    return mesh_barrier(m, "end");
}

static void a_launcher_that_dies_with_its_store_is_told(void **state)
{
    (void)state;
    group g;
    prepare(&g, 2, long_barrier);
    pid_t launcher = start_launcher(g.port);
    g.setup.place.store_elsewhere = true;
    start_all(&g);
    await_all(&g);
    clock_sleep(1.5);
    end_launcher(launcher);
    for (int32_t r = 0; r < 2; r++)
        expect_ends(&g, r, NRL_ERR_PEER, "the ranks' store at 127.0.0.1:");
    end_errors(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_may_come_in_any_order),
        cmocka_unit_test(who_joined_and_who_is_missing_is_listed_everywhere),
        cmocka_unit_test(without_rank_0_the_address_is_told),
        cmocka_unit_test(different_numbers_of_ranks_are_told),
        cmocka_unit_test(the_line_that_differs_is_told_with_both_values),
        cmocka_unit_test(a_line_that_one_rank_lacks_is_told),
        cmocka_unit_test(a_number_that_two_processes_have_is_told),
        cmocka_unit_test(a_port_that_is_taken_ends_rank_0_at_once),
        cmocka_unit_test(a_rank_that_dies_while_connections_are_made_is_named),
        cmocka_unit_test(a_launcher_may_hold_the_store_and_restart_the_job),
        cmocka_unit_test(behind_a_foreign_store_ranks_have_their_own),
        cmocka_unit_test(a_launcher_that_dies_with_its_store_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
