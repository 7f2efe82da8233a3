/*
 * test_lines.c - lines that must be equal on all ranks: the differences, their messages, and that
 * every rank gets the same result.
 */
#include "base/buffer.h"
#include "forked.h"
#include "base/lines.h"

enum { RANKS = 5 };
static const char *const hosts[RANKS] = {"n1", "n1", "n1", "n2", "n3"};

/* Ranks with these texts; NULL stands for rank 0's. */
static nrl_status result_of(const char *const texts[RANKS], const char *hint)
{
    lines_record records[RANKS];
    for (int r = 0; r < RANKS; r++)
        lines_compare(texts[0], texts[r] ? texts[r] : texts[0], &records[r]);
    return lines_report(records, hosts, RANKS, texts[0], hint);
}

static void equal_texts_pass(void **state)
{
    (void)state;
    assert_int_equal(result_of((const char *const[RANKS]){"a: 1\nb: 2\n"}, NULL), NRL_OK);
    assert_int_equal(result_of((const char *const[RANKS]){""}, NULL), NRL_OK);
}

static void ranks_of_one_value_stand_together(void **state)
{
    (void)state;
    const char *const texts[RANKS] = {"a: 1\nb: 2\n", NULL, "a: 1\nb: 3\n", NULL, "a: 1\nb: 3\n"};
    assert_int_equal(result_of(texts, "copy it"), NRL_ERR_CONFIG);
    assert_string_equal(nrl_error_text(), "cannot start: b differs between ranks\n  ranks 0, 1, 3 (n1, n2): 2\n"
                                          "  ranks 2, 4 (n1, n3): 3\nhint: copy it");
}

static void runs_of_ranks_are_short(void **state)
{
    (void)state;
    const char *const texts[RANKS] = {"a: 1\n", "a: 2\n", "a: 2\n", "a: 2\n", "a: 2\n"};
    assert_int_equal(result_of(texts, NULL), NRL_ERR_CONFIG);
    assert_string_equal(nrl_error_text(), "cannot start: a differs between ranks\n  rank 0 (n1): 1\n"
                                          "  ranks 1-4 (n1, n2, n3): 2");
}

static void each_key_has_its_own_values(void **state)
{
    (void)state;
    const char *const texts[RANKS] = {"a: 1\nb: 2\n", "a: 1\nb: 9\n", "a: 7\nb: 2\n"};
    assert_int_equal(result_of(texts, NULL), NRL_ERR_CONFIG);
    assert_string_equal(nrl_error_text(), "cannot start: a, b differ between ranks\n"
                                          "a:\n  ranks 0, 1, 3, 4 (n1, n2, n3): 1\n  rank 2 (n1): 7\n"
                                          "b:\n  ranks 0, 2-4 (n1, n2, n3): 2\n  rank 1 (n1): 9");
}

static void a_line_that_a_rank_lacks_is_absent_there(void **state)
{
    (void)state;
    const char *const lacks[RANKS] = {"a: 1\nb: 2\n", "b: 2\n"}, *const more[RANKS] = {"b: 2\n", NULL, NULL,
                                                                                       "a: 1\nb: 2\n"};
    assert_int_equal(result_of(lacks, NULL), NRL_ERR_CONFIG);
    assert_string_equal(nrl_error_text(), "cannot start: a differs between ranks\n  ranks 0, 2-4 (n1, n2, n3): 1\n"
                                          "  rank 1 (n1): absent");
    assert_int_equal(result_of(more, NULL), NRL_ERR_CONFIG);
    assert_string_equal(nrl_error_text(), "cannot start: a differs between ranks\n  ranks 0-2, 4 (n1, n3): absent\n"
                                          "  rank 3 (n2): 1");
}

static void a_key_may_begin_as_another_and_hold_a_colon(void **state)
{
    (void)state;
    const char *const texts[RANKS] = {"a b: 1\na: 1\nC:x: 5\n", "a b: 1\na: 2\nC:x: 5\n", "a b: 1\na: 1\nC:x: 6\n"};
    assert_int_equal(result_of(texts, NULL), NRL_ERR_CONFIG);
    assert_non_null(strstr(nrl_error_text(), "cannot start: a, C:x differ between ranks\n"));
}

static char *many_lines(int first_of_other, const char *value)
{
    buffer b = {0};
    for (int i = 0; i < 20000; i++)
        buffer_print(&b, "line %d: %s\n", i, i < first_of_other ? "1" : value);
    return buffer_take(&b);
}

/* Records hold the first differences; what is shown is right although they are cut. */
static void of_many_lines_the_first_are_shown(void **state)
{
    (void)state;
    char *same = many_lines(20000, ""), *late = many_lines(5000, "2"), *early = many_lines(3, "3");
    const char *const texts[RANKS] = {same, late, early};
    assert_int_equal(result_of(texts, NULL), NRL_ERR_CONFIG);
    assert_string_equal(nrl_error_text(), "cannot start: line 3, line 4, line 5 and more differ between ranks\n"
                                          "line 3:\n  ranks 0, 1, 3, 4 (n1, n2, n3): 1\n  rank 2 (n1): 3\n"
                                          "line 4:\n  ranks 0, 1, 3, 4 (n1, n2, n3): 1\n  rank 2 (n1): 3\n"
                                          "line 5:\n  ranks 0, 1, 3, 4 (n1, n2, n3): 1\n  rank 2 (n1): 3");
    free(same);
    free(late);
    free(early);
}

static void a_long_value_is_cut(void **state)
{
    (void)state;
    char text[2000];
    snprintf(text, sizeof text, "a: %01990d", 1);
    const char *const texts[RANKS] = {"a: 1", text};
    assert_int_equal(result_of(texts, NULL), NRL_ERR_CONFIG);
    assert_in_range(strlen(nrl_error_text()), LINE_ROOM, 2 * LINE_ROOM);
}

/* ---- over a mesh ---- */

static nrl_status compare_equal(nrl_mesh *m, int32_t rank)
{
    (void)rank;
    NRL_TRY(mesh_compare(m, "files", "a: 1\nb: 2\n", NULL));
    return mesh_compare(m, "files", "", NULL);
}

static nrl_status compare_different(nrl_mesh *m, int32_t rank)
{
    NRL_TRY(mesh_compare(m, "files", "a: 1\n", NULL));
    return mesh_compare(m, "files", rank == 1 ? "a: 1\nb: a much longer value\n" : "a: 1\nb: 2\n", "look");
}

static void all_ranks_go_on_with_equal_lines(void **state)
{
    (void)state;
    group g;
    prepare(&g, 3, compare_equal);
    start_all(&g);
    for (int32_t r = 0; r < 3; r++) {
        rank_report report;
        assert_true(collect(&g, r, &report));
        assert_int_equal(report.status, NRL_OK);
        close(g.children[r].errors);
    }
}

static void all_ranks_get_the_same_error(void **state)
{
    (void)state;
    group g;
    prepare(&g, 3, compare_different);
    start_all(&g);
    for (int32_t r = 0; r < 3; r++) {
        rank_report report;
        assert_true(collect(&g, r, &report));
        assert_int_equal(report.status, NRL_ERR_CONFIG);
        assert_non_null(strstr(report.text, "cannot start: b differs between ranks\n  ranks 0, 2 ("));
        assert_non_null(strstr(report.text, "): 2\n  rank 1 ("));
        assert_non_null(strstr(report.text, "): a much longer value\nhint: look"));
        close(g.children[r].errors);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_texts_pass),
        cmocka_unit_test(ranks_of_one_value_stand_together),
        cmocka_unit_test(runs_of_ranks_are_short),
        cmocka_unit_test(each_key_has_its_own_values),
        cmocka_unit_test(a_line_that_a_rank_lacks_is_absent_there),
        cmocka_unit_test(a_key_may_begin_as_another_and_hold_a_colon),
        cmocka_unit_test(of_many_lines_the_first_are_shown),
        cmocka_unit_test(a_long_value_is_cut),
        cmocka_unit_test(all_ranks_go_on_with_equal_lines),
        cmocka_unit_test(all_ranks_get_the_same_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
