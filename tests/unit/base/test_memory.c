/*
 * test_memory.c - available memory from fake /proc and /sys files (of the machine and of control
 * groups), and allocations that fail.
 */
#include "base/arena.h"
#include "base/memory.h"
#include <nrl/status.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

static char root[] = "/tmp/nrl-memory-XXXXXX";

static void put(const char *folder, const char *name, const char *text)
{
    char *command = mem_printf("mkdir -p %s%s", root, folder), *path = mem_printf("%s%s/%s", root, folder, name);
    assert_int_equal(system(command), 0);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    free(command);
    free(path);
}

static int empty(void **state)
{
    char *command = mem_printf("rm -rf %s/proc %s/sys", root, root);
    (void)state;
    int st = system(command);
    free(command);
    return st;
}

static void nothing_known_limits_nothing(void **state)
{
    (void)state;
    assert_int_equal(memory_available(root), INT64_MAX);
    assert_true(memory_available("") > 0);
    assert_int_equal(memory_total(root), INT64_MAX);
    assert_true(memory_total("") >= memory_available(""));
}

static void a_machine_without_groups_says_what_it_has(void **state)
{
    (void)state;
    put("/proc", "meminfo", "MemTotal:  9000 kB\nMemFree:  10 kB\nMemAvailable:    4000 kB\n");
    assert_int_equal(memory_available(root), 4000 * 1024);
    assert_int_equal(memory_total(root), 9000 * 1024);
}

static void the_tightest_group_above_counts(void **state)
{
    (void)state;
    put("/proc", "meminfo", "MemAvailable:    4000 kB\n");
    put("/proc/self", "cgroup", "0::/a/b\n");
    put("/sys/fs/cgroup/a/b", "memory.max", "max\n");
    put("/sys/fs/cgroup/a/b", "memory.current", "500\n");
    assert_int_equal(memory_available(root), 4000 * 1024);
    put("/sys/fs/cgroup/a", "memory.max", "10000\n");
    put("/sys/fs/cgroup/a", "memory.current", "9000\n");
    assert_int_equal(memory_available(root), 1000);
    assert_int_equal(memory_total(root), 10000);
    put("/sys/fs/cgroup/a", "memory.stat", "anon 5000\ninactive_file 3000\nactive_file 1000\n");
    assert_int_equal(memory_available(root), 4000);
    put("/sys/fs/cgroup/a", "memory.current", "99999\n"); /* a limit that was lowered */
    assert_int_equal(memory_available(root), 0);
}

static void a_container_sees_its_group_as_the_mount(void **state)
{
    (void)state;
    put("/proc/self", "cgroup", "0::/\n");
    put("/sys/fs/cgroup", "memory.max", "7000\n");
    put("/sys/fs/cgroup", "memory.current", "3000\n");
    assert_int_equal(memory_available(root), 4000);
    assert_int_equal(memory_total(root), 7000);
}

static void groups_of_version_1_count_too(void **state)
{
    (void)state;
    put("/proc/self", "cgroup", "5:cpu,cpuacct:/docker/x\n4:memory:/docker/x\n1:name=systemd:/\n");
    put("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "8000\n"); /* the path of the host is not seen inside */
    put("/sys/fs/cgroup/memory", "memory.usage_in_bytes", "6000\n");
    put("/sys/fs/cgroup/memory", "memory.stat", "inactive_file 1\ntotal_inactive_file 1000\n");
    assert_int_equal(memory_available(root), 3000);
    assert_int_equal(memory_total(root), 8000);
    put("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "9223372036854771712\n");
    assert_true(memory_available(root) > INT64_MAX / 2);
}

static void a_failed_allocation_is_an_error_that_names_its_purpose(void **state)
{
    (void)state;
    mem_try_fail_after(1);
    char *text = mem_try(4, "a test"), *grown;
    assert_non_null(text);
    assert_int_equal(text[3], 0);
    assert_null(mem_try(4, "the second part"));
    assert_string_equal(nrl_error_text(), "out of memory: cannot allocate 4 bytes for the second part");
    assert_null(mem_try_grow(text, 8, "a longer text")); /* `text` stays valid */
    mem_try_fail_after(-1);
    grown = mem_try_grow(text, 8, "a longer text");
    assert_non_null(grown);
    assert_int_equal(grown[3], 0);
    free(grown);
    assert_null(mem_try(SIZE_MAX / 2, "more than any machine has"));
}

int main(void)
{
    if (!mkdtemp(root)) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(nothing_known_limits_nothing, empty),
        cmocka_unit_test_setup(a_machine_without_groups_says_what_it_has, empty),
        cmocka_unit_test_setup(the_tightest_group_above_counts, empty),
        cmocka_unit_test_setup(a_container_sees_its_group_as_the_mount, empty),
        cmocka_unit_test_setup(groups_of_version_1_count_too, empty),
        cmocka_unit_test(a_failed_allocation_is_an_error_that_names_its_purpose),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    empty(NULL);
    rmdir(root);
    return failed;
}
