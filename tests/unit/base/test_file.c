/*
 * test_file.c - names of files that are still incomplete.
 */
#include "base/file.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void a_temporary_name_lies_beside_its_path(void **state)
{
    char *name = file_temporary_name("out/cache", ".tmp");
    (void)state;
    assert_memory_equal(name, "out/cache.", 10);
    assert_int_equal(strlen(name), 10 + 16 + 4);
    assert_int_equal(strspn(name + 10, "0123456789abcdef"), 16);
    assert_string_equal(name + 26, ".tmp");
    free(name);
}

/* In one process, so nothing that a process is told apart by helps. */
static void two_calls_never_give_one_name(void **state)
{
    (void)state;
    for (int i = 0; i < 1000; i++) {
        char *a = file_temporary_name("x", ""), *b = file_temporary_name("x", "");
        assert_string_not_equal(a, b);
        free(a);
        free(b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_temporary_name_lies_beside_its_path),
        cmocka_unit_test(two_calls_never_give_one_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
