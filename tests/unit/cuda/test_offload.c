/*
 * test_offload.c - the extension "offload" of the cuda backend over a driver whose copies are executed late: what comes
 * back is what left, whatever wrote the device's memory meanwhile; the host's side of states; failing calls, after
 * which nothing is left behind.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "cuda_backend.h"
#include "fake_driver.h"
#include "fake_queue.h"
#include <string.h>

enum { BYTES = 10000 };
static const cuda_options usual = {.memory_fraction = 0.5, .device = -1};

static int overwrite(void **state)
{
    (void)state;
    fake_reset();
    return 0;
}

static cuda *open_usual(const nrl_offload **table)
{
    cuda *c = NULL;
    assert_int_equal(cuda_open_driver(fake_driver(), &usual, 0, &c), NRL_OK);
    *table = cuda_extension(c, "offload");
    assert_non_null(*table);
    return c;
}

static void close_clean(cuda *c)
{
    fake.fail_call = NULL;
    cuda_close(c);
    assert_int_equal(fake.live_host_blocks, 0);
    assert_int_equal(fake.live_events, 0);
    assert_int_equal(fake.live_streams, 0);
}

/* Operation of a stream that writes memory: it executes what the stream has to wait for. */
static void write_in_stream(const cuda *c, void *memory, int value)
{
    fake_queue_reach(c->stream);
    memset(memory, value, BYTES);
}

static void a_copy_returns_what_the_stream_had_written(void **state)
{
    const nrl_offload *table;
    cuda *c = open_usual(&table);
    nrl_offload_copy *copy, *other;
    unsigned char *memory = NULL, *second = NULL;
    (void)state;
    fake.late = true;
    assert_int_equal(cuda_pool_take(c->pool, BYTES, (void **)&memory), NRL_OK);
    assert_int_equal(cuda_pool_take(c->pool, BYTES, (void **)&second), NRL_OK);
    for (int round = 1; round < 4; round++) { /* later rounds have the memory of earlier copies */
        assert_int_equal(table->copy_create(table->self, NULL, 2 * BYTES, &copy), NRL_OK);
        write_in_stream(c, memory, round);
        assert_int_equal(table->copy_out(table->self, NULL, copy, BYTES, memory, BYTES), NRL_OK);
        write_in_stream(c, second, 16 + round);
        assert_int_equal(table->copy_out(table->self, NULL, copy, 0, second, BYTES), NRL_OK);
        assert_int_equal(table->copy_wait(table->self, NULL, copy), NRL_OK);
        write_in_stream(c, memory, 0xee);
        write_in_stream(c, second, 0xee);
        assert_int_equal(table->copy_back(table->self, NULL, copy, BYTES, memory, BYTES), NRL_OK);
        assert_int_equal(table->copy_back(table->self, NULL, copy, 0, second, BYTES), NRL_OK);
        assert_int_equal(table->copy_wait(table->self, NULL, copy), NRL_OK);
        table->copy_free(table->self, copy);
        fake_queue_reach(c->stream);
        for (int i = 0; i < BYTES; i++) {
            assert_int_equal(memory[i], round);
            assert_int_equal(second[i], 16 + round);
        }
    }
    assert_int_equal(table->copy_create(table->self, NULL, 2 * BYTES, &other), NRL_OK);
    assert_ptr_equal(other, copy);
    table->copy_free(table->self, other);
    close_clean(c);
}

static void states_are_copied_after_the_work_that_is_queued(void **state)
{
    const nrl_offload *table;
    cuda *c = open_usual(&table);
    unsigned char *states, *memory = NULL, host[64];
    (void)state;
    fake.late = true;
    assert_int_equal(table->alloc(table->self, NULL, BYTES, (void **)&states), NRL_OK);
    assert_true(states[0] == 0 && states[BYTES - 1] == 0);
    assert_true(cuda_offload_holds(c->offload, states + BYTES - 1) && !cuda_offload_holds(c->offload, states + BYTES));
    assert_int_equal(cuda_pool_take(c->pool, BYTES, (void **)&memory), NRL_OK);
    memset(host, 7, sizeof host);
    assert_int_equal(cuda_copy_bytes(c, NULL, states, host, sizeof host, NRL_COPY_TO_DEVICE), NRL_OK);
    assert_int_equal(cuda_copy_bytes(c, NULL, memory, states, sizeof host, NRL_COPY_ON_DEVICE), NRL_OK);
    assert_int_equal(cuda_copy_bytes(c, NULL, states + 100, memory, sizeof host, NRL_COPY_ON_DEVICE), NRL_OK);
    memset(host, 0, sizeof host);
    assert_int_equal(cuda_copy_bytes(c, NULL, host, states + 100, sizeof host, NRL_COPY_TO_HOST), NRL_OK);
    assert_true(host[0] == 7 && host[sizeof host - 1] == 7);
    close_clean(c);
}

static void a_file_is_no_place_for_it(void **state)
{
    const nrl_offload *table;
    cuda *c = open_usual(&table);
    nrl_offload_copy *copy;
    void *memory;
    (void)state;
    assert_int_equal(table->alloc(table->self, "/tmp", BYTES, &memory), NRL_ERR_CONFIG);
    assert_int_equal(table->copy_create(table->self, "/tmp", BYTES, &copy), NRL_ERR_CONFIG);
    assert_non_null(strstr(nrl_error_text(), "expected host"));
    close_clean(c);
}

static void a_call_that_fails_is_an_error(void **state)
{
    static const char *const calls[] = {"use",          "allocate_host", "stream_create", "event_create",
                                        "event_record", "stream_fence",  "copy"};
    (void)state;
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        for (int at = 1; at < 4; at++) {
            const nrl_offload *table;
            fake_reset();
            cuda *c = open_usual(&table);
            nrl_offload_copy *copy = NULL;
            void *memory = NULL, *states = NULL;
            assert_int_equal(cuda_pool_take(c->pool, BYTES, &memory), NRL_OK);
            fake.fail_call = calls[i];
            fake.fail_at = at;
            fake.fail_code = !strcmp(calls[i], "allocate_host") ? CUDA_NO_MEMORY : 700;
            nrl_status st = table->alloc(table->self, NULL, BYTES, &states);
            if (st == NRL_OK) st = table->copy_create(table->self, NULL, BYTES, &copy);
            if (st == NRL_OK) st = table->copy_out(table->self, NULL, copy, 0, memory, BYTES);
            if (st == NRL_OK) st = table->copy_back(table->self, NULL, copy, 0, memory, BYTES);
            if (st == NRL_OK) st = table->copy_wait(table->self, NULL, copy);
            if (copy) table->copy_free(table->self, copy);
            assert_true(st == NRL_OK ? fake.fail_call != NULL /* it was not called so often */
                                     : st == (fake.fail_code == CUDA_NO_MEMORY ? NRL_ERR_MEMORY : NRL_ERR_DEVICE));
            close_clean(c);
        }
}

#define TEST(name) cmocka_unit_test_setup(name, overwrite)
int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_copy_returns_what_the_stream_had_written),
        TEST(states_are_copied_after_the_work_that_is_queued),
        TEST(a_file_is_no_place_for_it),
        TEST(a_call_that_fails_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
