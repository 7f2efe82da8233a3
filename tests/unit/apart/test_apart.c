/*
 * test_apart.c - the backend "apart" of these tests only replaces pointers into device memory in
 * the arguments of an operation, at any address of that memory.
 */
#include "support/backend.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
/* cmocka needs those above */
#include <cmocka.h>

/* Of a machine word: `low` in the lower 32 bits and bits in the upper half that make it an address
 * of the device, whose memory spans whole multiples of 2^32. */
static uint64_t word_like_an_address(const void *device_memory, uint32_t low)
{
    return ((uint64_t)(uintptr_t)device_memory & ~(uint64_t)UINT32_MAX) + ((uint64_t)1 << 32) + low;
}

static void padding_that_looks_like_an_address_changes_nothing(void **state)
{
    (void)state;
    device d;
    float host[4];
    void *memory = NULL;
    assert_true(test_device_open(&d));
    assert_int_equal(d.table.alloc(d.self, 1 << 20, &memory), NRL_OK);

    nrl_fill_args args = {.size = sizeof args,
                          .y = {.data = memory, .dtype = NRL_DTYPE_F32, .rows = 1, .cols = 4, .stride = 4},
                          .value = 2.5};
    const uint64_t head = word_like_an_address(memory, sizeof args);
    memcpy(&args, &head, sizeof head); /* `size`, and the padding beside it */
    assert_int_equal(args.size, sizeof args);
    assert_int_equal(d.table.ops->fill(d.self, NULL, &args), NRL_OK);

    assert_int_equal(d.table.copy(d.self, NULL, host, memory, sizeof host, NRL_COPY_TO_HOST), NRL_OK);
    for (int i = 0; i < 4; i++)
        assert_true(host[i] == 2.5f);
    d.table.free(d.self, memory);
    device_close(&d);
}

static void numbers_that_look_like_an_address_change_nothing(void **state)
{
    (void)state;
    device d;
    void *x = NULL, *y = NULL;
    float host[64], ones[64];
    assert_true(test_device_open(&d));
    assert_int_equal(d.table.alloc(d.self, sizeof ones, &x), NRL_OK);
    assert_int_equal(d.table.alloc(d.self, sizeof host, &y), NRL_OK);
    for (int i = 0; i < 64; i++)
        ones[i] = 1;
    assert_int_equal(d.table.copy(d.self, NULL, x, ones, sizeof ones, NRL_COPY_TO_DEVICE), NRL_OK);

    /* the key of a dropout is any 64 bits: the values kept must be those of the cpu backend */
    nrl_dropout_args args = {.size = sizeof args,
                             .x = {.data = x, .dtype = NRL_DTYPE_F32, .rows = 1, .cols = 64, .stride = 64},
                             .y = {.data = y, .dtype = NRL_DTYPE_F32, .rows = 1, .cols = 64, .stride = 64},
                             .p = 0.5};
    args.key = word_like_an_address(x, 12345);
    assert_int_equal(d.table.ops->dropout(d.self, NULL, &args), NRL_OK);
    assert_int_equal(d.table.copy(d.self, NULL, host, y, sizeof host, NRL_COPY_TO_HOST), NRL_OK);
    d.table.free(d.self, x);
    d.table.free(d.self, y);
    device_close(&d);

    const uint64_t key = args.key;
    float expected[64];
    unsetenv("NRL_TEST_BACKEND");
    assert_true(test_device_open(&d));
    args = (nrl_dropout_args){.size = sizeof args,
                              .x = {.data = ones, .dtype = NRL_DTYPE_F32, .rows = 1, .cols = 64, .stride = 64},
                              .y = {.data = expected, .dtype = NRL_DTYPE_F32, .rows = 1, .cols = 64, .stride = 64},
                              .p = 0.5,
                              .key = key};
    assert_int_equal(d.table.ops->dropout(d.self, NULL, &args), NRL_OK);
    assert_memory_equal(host, expected, sizeof host);
    device_close(&d);
}

static int use_apart(void **state)
{
    char path[4096];
    (void)state;
    snprintf(path, sizeof path, "%s/tests/apart/backends/apart.so", getenv("NRL_TEST_BUILD"));
    return setenv("NRL_TEST_BACKEND", path, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(padding_that_looks_like_an_address_changes_nothing, use_apart),
        cmocka_unit_test_setup(numbers_that_look_like_an_address_change_nothing, use_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
