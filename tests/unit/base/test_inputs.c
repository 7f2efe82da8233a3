/*
 * test_inputs.c - input files are identified by device and inode, through each path to them and
 * through parent directories.
 */
#include "base/arena.h"
#include "base/inputs.h"
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[] = "/tmp/nrl-inputs-XXXXXX";
static arena a;

static const char *in(const char *name)
{
    return arena_printf(&a, "%s/%s", folder, name);
}

static void make(const char *name)
{
    int fd = open(in(name), O_WRONLY | O_CREAT, 0666);
    assert_true(fd >= 0);
    close(fd);
}

static int set_up(void **state)
{
    (void)state;
    assert_non_null(mkdtemp(folder));
    mkdir(in("model"), 0777);
    mkdir(in("model/deep"), 0777);
    make("model/weights");
    make("model/deep/file");
    mkdir(in("other"), 0777);
    make("other/file");
    assert_int_equal(symlink("model", in("link")), 0);
    assert_int_equal(link(in("model/weights"), in("other/second-name")), 0);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    int code = system(arena_printf(&a, "rm -r %s", folder));
    arena_free(&a);
    return code;
}

static void a_folder_is_known_by_each_path_to_it_and_with_the_files_in_it(void **state)
{
    (void)state;
    inputs read = {0};
    inputs_add(&read, "model.path", in("link/../model/."));
    assert_int_equal(inputs_check_folder(&read, in("model")), NRL_ERR_CONFIG);
    assert_non_null(strstr(nrl_error_text(), "read as model.path"));
    assert_int_equal(inputs_check_folder(&read, in("link")), NRL_ERR_CONFIG);
    assert_int_equal(inputs_check_file(&read, in("model/weights")), NRL_ERR_CONFIG);
    assert_int_equal(inputs_check_file(&read, in("other/second-name")), NRL_ERR_CONFIG);
    assert_int_equal(inputs_check_folder(&read, in("other")), NRL_ERR_CONFIG); /* holds that name */
    assert_int_equal(inputs_check_file(&read, in("other/file")), NRL_OK);
    assert_int_equal(inputs_check_file(&read, in("model/deep/file")), NRL_OK);
    assert_int_equal(inputs_check_folder(&read, in("model/deep")), NRL_OK);
    assert_int_equal(inputs_check_folder(&read, in("nothing")), NRL_OK);
    inputs_free(&read);
}

static void what_is_above_an_input_may_not_go_but_files_beside_it_may(void **state)
{
    (void)state;
    inputs read = {0};
    inputs_add(&read, "data.train", in("link/deep/file"));
    assert_int_equal(inputs_check_folder(&read, folder), NRL_ERR_CONFIG);
    assert_non_null(strstr(nrl_error_text(), "in it is read as data.train"));
    assert_int_equal(inputs_check_folder(&read, in("model")), NRL_ERR_CONFIG);
    assert_int_equal(inputs_check_folder(&read, in("model/deep")), NRL_ERR_CONFIG);
    assert_int_equal(inputs_check_file(&read, in("model/weights")), NRL_OK);
    assert_int_equal(inputs_check_folder(&read, in("other")), NRL_OK);
    inputs_free(&read);
}

static void what_does_not_exist_is_no_input(void **state)
{
    (void)state;
    inputs read = {0};
    inputs_add(&read, "model.path", in("nothing"));
    assert_int_equal(read.n, 0);
    assert_int_equal(inputs_check_folder(&read, folder), NRL_OK);
    assert_int_equal(inputs_check_folder(NULL, folder), NRL_OK);
    inputs_free(&read);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_folder_is_known_by_each_path_to_it_and_with_the_files_in_it),
        cmocka_unit_test(what_is_above_an_input_may_not_go_but_files_beside_it_may),
        cmocka_unit_test(what_does_not_exist_is_no_input),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
