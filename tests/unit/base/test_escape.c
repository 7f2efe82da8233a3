/*
 * test_escape.c - control characters are shown, other text is unchanged.
 */
#include "base/escape.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void shows(const char *text, size_t size, const char *expected)
{
    buffer b = {0};
    escape_add(&b, text, size);
    char *got = buffer_take(&b), *printed;
    size_t n;
    assert_string_equal(got, expected);
    FILE *f = open_memstream(&printed, &n);
    escape_print(f, text, size);
    fclose(f);
    assert_string_equal(printed, expected);
    free(printed);
    free(got);
}

#define SHOWS(text, expected) shows(text, sizeof(text) - 1, expected)

static void text_stays_as_it_is(void **state)
{
    (void)state;
    SHOWS("", "");
    SHOWS("a b\n\tc \\x1b", "a b\n\tc \\x1b");
    static const char text[] = "\xC3\xA9 \xC2\xA0 \xE2\x80\x94 \xE2\x9F\xA6 \xF0\x9F\xA5\xB6 \xE1\x88\x80";
    SHOWS(text, text);
}

static void control_characters_are_shown(void **state)
{
    (void)state;
    SHOWS("a\033[31mb\007", "a\\x1b[31mb\\x07");
    SHOWS("\rx\177\0y", "\\x0dx\\x7f\\x00y");
    SHOWS("\xC2\x9B"
          "31m \xC2\x80",
          "\\xc2\\x9b31m \\xc2\\x80");
    SHOWS("\xE2\x80\xAEx\xE2\x81\xA6y\xD8\x9C", "\\xe2\\x80\\xaex\\xe2\\x81\\xa6y\\xd8\\x9c");
}

static void bytes_that_are_no_text_are_shown(void **state)
{
    (void)state;
    SHOWS("\x9b"
          "31m",
          "\\x9b31m");
    SHOWS("a\xff\xC3", "a\\xff\\xc3");
    SHOWS("\xE2\x80", "\\xe2\\x80");
    SHOWS("\xC0\x9B", "\\xc0\\x9b");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_stays_as_it_is),
        cmocka_unit_test(control_characters_are_shown),
        cmocka_unit_test(bytes_that_are_no_text_are_shown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
