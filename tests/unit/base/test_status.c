/*
 * test_status.c - the error record: texts of any length that contain the previous text, context in
 * front, and the mark of a truncated text.
 */
#include <nrl/status.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { WHOLE = 32768 }; /* bytes that a record holds, with its end */

static char *letters(size_t n)
{
    char *text = malloc(n + 1);
    assert_non_null(text);
    for (size_t i = 0; i < n; i++)
        text[i] = (char)('a' + i % 26);
    text[n] = 0;
    return text;
}

/* Around the sizes at which texts were once formatted in place. */
static const size_t sizes[] = {0, 1, 1020, 1021, 1022, 1023, 1024, 1025, 2048, 20000, WHOLE - 6, WHOLE - 4};
enum { N_SIZES = sizeof sizes / sizeof *sizes };

static void an_error_may_hold_the_one_before(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_SIZES; i++) {
        char *text = letters(sizes[i]);
        nrl_fail(NRL_ERR_DATA, "%s", text);
        assert_string_equal(nrl_error_text(), text);
        assert_int_equal(nrl_fail(NRL_ERR_IO, "x: %s", nrl_error_text()), NRL_ERR_IO);
        assert_memory_equal(nrl_error_text(), "x: ", 3);
        assert_string_equal(nrl_error_text() + 3, text);
        free(text);
    }
}

static void a_note_may_hold_it_too(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_SIZES && 2 * sizes[i] + 3 < WHOLE; i++) {
        char *text = letters(sizes[i]);
        nrl_fail(NRL_ERR_DATA, "%s", text);
        nrl_add_context("<%s>", nrl_error_text());
        const char *found = nrl_error_text();
        assert_int_equal(strlen(found), 2 * sizes[i] + 4);
        assert_memory_equal(found + 1, text, sizes[i]);
        assert_memory_equal(found + 1 + sizes[i], ">: ", 3);
        assert_string_equal(found + sizes[i] + 4, text);
        free(text);
    }
}

static void a_long_note_is_whole(void **state)
{
    char *text = letters(5000);
    (void)state;
    nrl_fail(NRL_ERR_DATA, "short");
    nrl_add_context("%s", text);
    assert_int_equal(strlen(nrl_error_text()), 5000 + strlen(": short"));
    assert_string_equal(nrl_error_text() + 5000, ": short");
    free(text);
}

static void what_is_cut_says_so(void **state)
{
    char *text = letters(WHOLE + 10);
    (void)state;
    for (int how = 0; how < 3; how++) {
        if (how == 0)
            nrl_fail(NRL_ERR_DATA, "%s", text);
        else
            nrl_fail(NRL_ERR_DATA, "%.*s", WHOLE - 1, text);
        if (how == 1) nrl_add_context("front");
        if (how == 2) nrl_add_context("%s", text);
        assert_int_equal(strlen(nrl_error_text()), WHOLE - 1);
        assert_string_equal(nrl_error_text() + WHOLE - 5, " ...");
    }
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_error_may_hold_the_one_before),
        cmocka_unit_test(a_note_may_hold_it_too),
        cmocka_unit_test(a_long_note_is_whole),
        cmocka_unit_test(what_is_cut_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
