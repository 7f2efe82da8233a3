/*
 * test_hash.c - identities of bytes, of memory and of files.
 */
#include "base/hash.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

static void the_empty_text_has_the_published_hash(void **state)
{
    char hash[HASH_TEXT];
    (void)state;
    hash_bytes("", 0, hash); /* XXH3_128bits of nothing, as xxhsum -H2 prints it */
    assert_string_equal(hash, "99aa06d3014798d86001c324468d497f");
}

/* Longer than what is read at once, so that pieces are joined. */
static void a_file_has_the_hash_of_its_bytes(void **state)
{
    enum { SIZE = (3 << 20) + 17 };
    char path[] = "/tmp/nrl_hash_XXXXXX", *bytes = malloc(SIZE), of_file[HASH_TEXT], of_bytes[HASH_TEXT];
    (void)state;
    for (size_t i = 0; i < SIZE; i++)
        bytes[i] = (char)(i * 31 + i / 4096);
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, SIZE), SIZE);
    close(fd);
    assert_int_equal(hash_file(path, of_file), NRL_OK);
    hash_bytes(bytes, SIZE, of_bytes);
    assert_string_equal(of_file, of_bytes);
    bytes[SIZE - 1] ^= 1;
    hash_bytes(bytes, SIZE, of_bytes);
    assert_string_not_equal(of_file, of_bytes);
    unlink(path);
    free(bytes);
}

static void a_file_that_cannot_be_read_is_named(void **state)
{
    char hash[HASH_TEXT];
    (void)state;
    assert_int_equal(hash_file("/nowhere/file", hash), NRL_ERR_IO);
    assert_string_equal(nrl_error_text(), "/nowhere/file: No such file or directory");
    assert_int_equal(hash_file("/proc", hash), NRL_ERR_IO); /* a folder */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_empty_text_has_the_published_hash),
        cmocka_unit_test(a_file_has_the_hash_of_its_bytes),
        cmocka_unit_test(a_file_that_cannot_be_read_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
