/*
 * test_axes.c - ranks as threads of one process: exchanges, axes, and a mesh of one rank.
 */
#include "mesh/mesh.h"
#include "support/local_ranks.h"
#include <nrl/parallel.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define WANT(x)                                                                                                        \
    do {                                                                                                               \
        if (!(x)) return nrl_fail(NRL_ERR_BUG, "line %d: %s", __LINE__, #x);                                           \
    } while (0)

static nrl_status exchanges(nrl_mesh *m, int32_t rank, void *user)
{
    (void)user;
    int32_t world = nrl_mesh_world(m), all[8];
    char text[16] = "";
    mesh_set_step(m, 7);
    NRL_TRY(mesh_exchange(m, "ranks", &rank, sizeof rank, all));
    for (int32_t r = 0; r < world; r++)
        WANT(all[r] == r);
    if (rank == 2) snprintf(text, sizeof text, "from two");
    NRL_TRY(mesh_broadcast(m, "text", 2, text, sizeof text));
    WANT(!strcmp(text, "from two"));
    NRL_TRY(mesh_barrier(m, "here"));
    WANT(mesh_traffic(m).size);
    WANT(mesh_wait_seconds(m) >= 0);
    WANT(strstr(mesh_text(m), "4 ranks on 1 node (test)"));
    return NRL_OK;
}

static void ranks_exchange_what_they_have(void **state)
{
    (void)state;
    nrl_status st = local_ranks_run(4, exchanges, NULL);
    if (st) print_message("%s\n", nrl_error_text());
    assert_int_equal(st, NRL_OK);
}

static nrl_status splits(nrl_mesh *m, int32_t rank, void *user)
{
    (void)user;
    WANT(nrl_mesh_size(m, "data") == 6 && nrl_mesh_coord(m, "data") == rank);
    WANT(nrl_mesh_size(m, "tensor") == 1 && nrl_mesh_coord(m, "tensor") == 0);
    WANT(nrl_mesh_split(m, "data", 4, "shard", "replica") == NRL_ERR_CONFIG);
    WANT(nrl_mesh_split(m, "tensor", 1, "a", "b") == NRL_ERR_CONFIG);
    NRL_TRY(nrl_mesh_split(m, "data", 3, "shard", "replica"));
    NRL_TRY(nrl_mesh_split(m, "data", 3, "shard", "replica"));
    WANT(nrl_mesh_split(m, "data", 2, "shard", "replica") == NRL_ERR_CONFIG);
    WANT(nrl_mesh_size(m, "shard") == 3 && nrl_mesh_coord(m, "shard") == rank % 3);
    WANT(nrl_mesh_size(m, "replica") == 2 && nrl_mesh_coord(m, "replica") == rank / 3);
    for (int32_t r = 0; r < 6; r++)
        WANT(mesh_coord_of(m, r, "shard") == r % 3 && mesh_coord_of(m, r, "replica") == r / 3);
    NRL_TRY(nrl_comm_barrier(nrl_mesh_comm(m, "shard"), "a run"));
    NRL_TRY(nrl_comm_barrier(nrl_mesh_comm(m, "replica"), "across"));
    return nrl_comm_barrier(nrl_mesh_comm(m, "nothing"), "alone");
}

static void an_axis_divides_into_runs_and_places(void **state)
{
    (void)state;
    nrl_status st = local_ranks_run(6, splits, NULL);
    if (st) print_message("%s\n", nrl_error_text());
    assert_int_equal(st, NRL_OK);
}

static nrl_status composes(nrl_mesh *m, int32_t rank, void *user)
{
    (void)user;
    int32_t all[12];
    WANT(nrl_mesh_size(m, "pipeline") == 2 && nrl_mesh_coord(m, "pipeline") == rank / 6);
    WANT(nrl_mesh_size(m, "data") == 3 && nrl_mesh_coord(m, "data") == rank / 2 % 3);
    WANT(nrl_mesh_size(m, "tensor") == 2 && nrl_mesh_coord(m, "tensor") == rank % 2);
    WANT(mesh_counts(m) == (rank < 6 && rank % 2 == 0));
    for (int32_t r = 0; r < 12; r++)
        WANT(mesh_coord_of(m, r, "data") == r / 2 % 3);
    NRL_TRY(mesh_exchange(m, "ranks", &rank, sizeof rank, all));
    for (int32_t r = 0; r < 12; r++)
        WANT(all[r] == r);
    NRL_TRY(nrl_mesh_split(m, "data", 3, "shard", "replica"));
    static const char *const axes[] = {"pipeline", "data", "tensor", "shard"};
    for (size_t i = 0; i < 4; i++)
        NRL_TRY(nrl_comm_barrier(nrl_mesh_comm(m, axes[i]), axes[i]));
    return NRL_OK;
}

static void axes_compose_with_the_last_as_neighbours(void **state)
{
    (void)state;
    const mesh_axis axes[] = {
        {"pipeline", 2, NRL_DIVIDES_DEPTH}, {"data", 3, NRL_DIVIDES_BATCH}, {"tensor", 2, NRL_DIVIDES_WIDTH}};
    nrl_status st = local_ranks_run_axes(axes, 3, composes, NULL);
    if (st) print_message("%s\n", nrl_error_text());
    assert_int_equal(st, NRL_OK);
}

static nrl_status one_fails(nrl_mesh *m, int32_t rank, void *user)
{
    char *texts = user;
    int32_t all[4];
    NRL_TRY(mesh_barrier(m, "begin"));
    if (rank == 1) return nrl_fail(NRL_ERR_DATA, "row 17 is empty");
    nrl_status st = mesh_exchange(m, "counts", &rank, sizeof rank, all);
    snprintf(texts + 256 * rank, 256, "%s", nrl_error_text());
    WANT(st == NRL_ERR_PEER);
    return NRL_OK;
}

static void who_fails_is_named_by_the_others_also_in_a_folder(void **state)
{
    (void)state;
    char texts[4][256] = {""};
    assert_int_equal(local_ranks_run(4, one_fails, texts), NRL_ERR_DATA);
    assert_string_equal(nrl_error_text(), "rank 1: row 17 is empty");
    for (int r = 0; r < 4; r++)
        if (r != 1) assert_string_equal(texts[r], "rank 1 failed: row 17 is empty");
}

static void one_rank_needs_nobody(void **state)
{
    (void)state;
    mesh_setup setup = {.axes = {{"data", 1, NRL_DIVIDES_BATCH}}, .n_axes = 1};
    nrl_mesh *m;
    int32_t mine = 5, all = 0;
    assert_int_equal(mesh_open(&setup, &m), NRL_OK);
    assert_int_equal(mesh_exchange(m, "x", &mine, sizeof mine, &all), NRL_OK);
    assert_int_equal(all, 5);
    assert_int_equal(mesh_broadcast(m, "x", 0, &mine, sizeof mine), NRL_OK);
    assert_int_equal(mesh_barrier(m, "x"), NRL_OK);
    assert_int_equal(nrl_comm_barrier(nrl_mesh_comm(m, "data"), "x"), NRL_OK);
    assert_int_equal(nrl_mesh_split(m, "data", 1, "shard", "replica"), NRL_OK);
    assert_int_equal(nrl_mesh_world(m), 1);
    assert_int_equal(nrl_mesh_local_world(m), 1);
    mesh_report_failure(m, NRL_ERR_DATA, "nobody listens");
    mesh_close(m);
}

static void setups_that_cannot_be_are_told(void **state)
{
    (void)state;
    nrl_mesh *m;
    mesh_setup setup = {.place = {.world = 2, .rank = 2}, .timeout_init = 1, .timeout_step = 1};
    assert_int_equal(mesh_open(&setup, &m), NRL_ERR_CONFIG);
    assert_non_null(strstr(nrl_error_text(), "rank 2 of 2"));
    setup.place.rank = 0;
    assert_int_equal(mesh_open(&setup, &m), NRL_ERR_BUG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_exchange_what_they_have),
        cmocka_unit_test(an_axis_divides_into_runs_and_places),
        cmocka_unit_test(axes_compose_with_the_last_as_neighbours),
        cmocka_unit_test(who_fails_is_named_by_the_others_also_in_a_folder),
        cmocka_unit_test(one_rank_needs_nobody),
        cmocka_unit_test(setups_that_cannot_be_are_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
