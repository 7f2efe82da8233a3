/*
 * test_paths.c - the files that folders and patterns stand for.
 */
#include "base/paths.h"
#include "base/arena.h"
#include "base/buffer.h"
#include "support/folder.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static int setup(void **state)
{
    static const char *const files[] = {"b-10.x", "b-2.x",      ".hidden",   "_SUCCESS", "README.md",
                                        "a/c.x",  "a/deep/d.x", "a/license", "odd[1].x", "empty/.gitkeep"};
    char *folder = mem_strdup("/tmp/nrl-paths-XXXXXX");
    if (!mkdtemp(folder) || chdir(folder) || mkdir("a", 0777) || mkdir("a/deep", 0777) || mkdir("empty", 0777))
        return -1;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        FILE *f = fopen(files[i], "w");
        if (!f || fclose(f)) return -1;
    }
    *state = folder;
    return 0;
}

static int teardown(void **state)
{
    test_folder_remove(*state);
    free(*state);
    return 0;
}

static void expands(const char *path, const char *expected)
{
    paths p;
    buffer out = {0};
    assert_int_equal(paths_expand(path, &p), NRL_OK);
    for (size_t i = 0; i < p.n; i++)
        buffer_print(&out, "%s%s", i ? " " : "", p.items[i]);
    assert_string_equal(out.text, expected);
    paths_free(&p);
    buffer_free(&out);
}

static void fails(const char *path, const char *text)
{
    paths p;
    assert_int_equal(paths_expand(path, &p), NRL_ERR_CONFIG);
    assert_string_equal(nrl_error_text(), text);
    paths_free(&p);
}

static void a_folder_is_its_files_in_order(void **state)
{
    (void)state;
    expands(".", "./a/c.x ./a/deep/d.x ./b-10.x ./b-2.x ./odd[1].x");
    expands("a/", "a/c.x a/deep/d.x");
}

static void a_pattern_is_what_it_matches(void **state)
{
    (void)state;
    expands("b-*", "b-10.x b-2.x");
    expands("b-?.x", "b-2.x");
    expands("[a]*", "a/c.x a/deep/d.x");
    expands("README*", "README.md");
}

static void other_paths_are_themselves(void **state)
{
    (void)state;
    expands("b-2.x", "b-2.x");
    expands("odd[1].x", "odd[1].x");
    expands("none.x", "none.x");
}

static void no_file_is_an_error(void **state)
{
    (void)state;
    fails("none*.x", "no file matches 'none*.x'");
    fails("empty", "'empty': the directory has no files to read");
    fails("empt*", "no file matches 'empt*'");
}

static void a_folder_in_itself_is_an_error(void **state)
{
    (void)state;
    assert_int_equal(symlink(".", "a/loop"), 0);
    paths p;
    assert_int_not_equal(paths_expand("a", &p), NRL_OK);
    paths_free(&p);
    assert_int_equal(unlink("a/loop"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_folder_is_its_files_in_order), cmocka_unit_test(a_pattern_is_what_it_matches),
        cmocka_unit_test(other_paths_are_themselves),     cmocka_unit_test(no_file_is_an_error),
        cmocka_unit_test(a_folder_in_itself_is_an_error),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
