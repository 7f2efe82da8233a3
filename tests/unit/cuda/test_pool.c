/*
 * test_pool.c - device memory with a driver that is made of malloc: splitting and joining, reuse,
 * blocks that wait for other streams, and each way to run out of memory.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "fake_driver.h"
#include "pool.h"
#include <stdint.h>
#include <string.h>

#define MIB ((size_t)1 << 20)

static cuda_pool *pool;

static int open_pool(void **state)
{
    (void)state;
    fake_reset();
    return cuda_pool_create(fake_driver(), 0, &pool) != NRL_OK;
}

static int close_pool(void **state)
{
    (void)state;
    fake.fail_call = NULL;
    cuda_pool_destroy(pool);
    assert_int_equal(fake.live_blocks, 0);
    assert_int_equal(fake.live_events, 0);
    return 0;
}

static void *take(size_t bytes)
{
    void *memory = NULL;
    assert_int_equal(cuda_pool_take(pool, bytes, &memory), NRL_OK);
    assert_int_equal((uintptr_t)memory % 512, 0);
    return memory;
}

static cuda_pool_stats stats(void)
{
    cuda_pool_stats f;
    cuda_pool_measure(pool, &f);
    return f;
}

static void small_requests_share_a_segment(void **state)
{
    void *all[100];
    (void)state;
    for (int i = 0; i < 100; i++)
        all[i] = take(1000);
    assert_int_equal(fake.n_allocate, 1);
    assert_int_equal(stats().n_blocks, 100);
    assert_int_equal(stats().used_bytes, 100 * 1024);
    for (int i = 0; i < 100; i++)
        memset(all[i], i, 1000);
    for (int i = 0; i < 100; i++)
        assert_int_equal(((unsigned char *)all[i])[999], i);
    for (int i = 0; i < 100; i += 2)
        cuda_pool_give(pool, all[i]);
    assert_true(stats().fragmentation > 0);
    for (int i = 1; i < 100; i += 2)
        cuda_pool_give(pool, all[i]);
    assert_int_equal(stats().used_bytes, 0);
    assert_int_equal(stats().largest_idle_bytes, 2 * MIB);
    assert_true(stats().fragmentation == 0);
    assert_int_equal(stats().used_peak_bytes, 100 * 1024);
}

static void neighbours_join_in_any_order(void **state)
{
    static const int orders[][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    (void)state;
    for (size_t k = 0; k < sizeof orders / sizeof *orders; k++) {
        void *three[3];
        for (int i = 0; i < 3; i++)
            three[i] = take(5 * MIB);
        for (int i = 0; i < 3; i++)
            cuda_pool_give(pool, three[orders[k][i]]);
        assert_int_equal(stats().largest_idle_bytes, 20 * MIB);
    }
    assert_int_equal(fake.n_allocate, 1);
}

/* Random sizes against what each block should hold. */
static void blocks_never_overlap(void **state)
{
    enum { LIVE = 64, TURNS = 4000 };
    static unsigned char *memory[LIVE];
    static size_t bytes[LIVE];
    uint64_t random = 1;
    (void)state;
    for (int turn = 0; turn < TURNS; turn++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        size_t i = random >> 58, size = (size_t)(random >> 40 & 0xFFF) << (random >> 36 & 7);
        if (memory[i]) {
            assert_int_equal(memory[i][0], i);
            assert_int_equal(memory[i][bytes[i] - 1], i);
            cuda_pool_give(pool, memory[i]);
            memory[i] = NULL;
        } else {
            bytes[i] = size + 1;
            memory[i] = take(bytes[i]);
            memory[i][0] = memory[i][bytes[i] - 1] = (unsigned char)i;
        }
    }
    for (size_t i = 0; i < LIVE; i++)
        cuda_pool_give(pool, memory[i]);
    assert_int_equal(stats().used_bytes, 0);
    assert_int_equal(stats().n_blocks, 0);
    cuda_pool_trim(pool);
    assert_int_equal(stats().held_bytes, 0);
    assert_int_equal(fake.live_bytes, 0);
}

static void a_repeated_step_asks_the_device_for_nothing(void **state)
{
    static const size_t sizes[] = {100, 3 * MIB, 40 * MIB, 9000, 12 * MIB, 700000};
    enum { N = sizeof sizes / sizeof *sizes };
    int64_t after_first = 0;
    (void)state;
    for (int step = 0; step < 5; step++) {
        void *all[N];
        for (int i = 0; i < N; i++)
            all[i] = take(sizes[i]);
        for (int i = 0; i < N; i++)
            cuda_pool_give(pool, all[i]);
        if (step == 0) after_first = fake.n_allocate;
    }
    assert_int_equal(fake.n_allocate, after_first);
    assert_int_equal(fake.n_release, 0);
}

static void freed_memory_waits_for_other_streams(void **state)
{
    int a, b;
    (void)state;
    assert_int_equal(cuda_pool_stream_add(pool, &a), NRL_OK);
    void *first = take(40 * MIB);
    cuda_pool_give(pool, first); /* one stream: at once */
    assert_ptr_equal(take(40 * MIB), first);
    assert_int_equal(cuda_pool_stream_add(pool, &b), NRL_OK);
    fake.events_stay = true;
    cuda_pool_give(pool, first);
    assert_int_equal(stats().waiting_bytes, 40 * MIB);
    assert_int_equal(fake.live_events, 2);
    fake_end_events();
    assert_ptr_equal(take(40 * MIB), first);
    assert_int_equal(fake.live_events, 0);
    assert_int_equal(stats().waiting_bytes, 0);
    /* not done yet: better to wait than to ask the device */
    fake.events_stay = true;
    cuda_pool_give(pool, first);
    int64_t waits = fake.n_waits, asked = fake.n_allocate;
    assert_ptr_equal(take(40 * MIB), first);
    assert_true(fake.n_waits > waits);
    assert_int_equal(fake.n_allocate, asked);
    cuda_pool_stream_remove(pool, &b);
    cuda_pool_give(pool, first);
    assert_int_equal(stats().waiting_bytes, 0);
}

/* A copy out of a freed block is late, and the next stream writes to the block. */
static void a_new_stream_follows_what_uses_freed_memory(void **state)
{
    const cuda_driver *d = fake_driver();
    (void)state;
    for (int way = 0; way < 3; way++) {
        int a, b;
        char kept[8] = "", other[8] = "other";
        fake.late = true;
        assert_int_equal(cuda_pool_stream_add(pool, &a), NRL_OK);
        char *memory = take(sizeof kept);
        memcpy(memory, "kept", 5);
        assert_int_equal(d->copy(kept, memory, sizeof kept, CUDA_TO_HOST, &a), CUDA_DONE);
        cuda_pool_give(pool, memory);
        fake.fail_call = way == 1 ? "stream_fence" : NULL; /* then the host waits */
        fake.fail_code = 700;
        if (way == 2)
            cuda_pool_stream_own(pool, &b);
        else
            assert_int_equal(cuda_pool_stream_add(pool, &b), NRL_OK);
        fake.fail_call = NULL;
        assert_ptr_equal(take(sizeof kept), memory);
        assert_int_equal(d->copy(memory, other, sizeof other, CUDA_TO_DEVICE, &b), CUDA_DONE);
        assert_int_equal(d->stream_wait(&b), CUDA_DONE);
        assert_int_equal(d->stream_wait(&a), CUDA_DONE);
        assert_string_equal(kept, "kept");
        assert_string_equal(memory, "other");
        cuda_pool_give(pool, memory);
        cuda_pool_stream_remove(pool, &a);
        cuda_pool_stream_remove(pool, &b);
    }
    fake.late = false;
}

static void events_that_fail_make_the_host_wait(void **state)
{
    int a, b;
    static const char *const calls[] = {"event_create", "event_record"};
    (void)state;
    assert_int_equal(cuda_pool_stream_add(pool, &a), NRL_OK);
    assert_int_equal(cuda_pool_stream_add(pool, &b), NRL_OK);
    for (int call = 0; call < 2; call++)
        for (int at = 1; at <= 2; at++) {
            void *memory = take(MIB);
            fake.fail_call = calls[call];
            fake.fail_at = at;
            fake.fail_code = 700;
            int64_t waits = fake.n_waits;
            cuda_pool_give(pool, memory);
            assert_true(fake.n_waits >= waits + 2);
            assert_int_equal(stats().waiting_bytes, 0);
            assert_int_equal(fake.live_events, 0);
        }
}

static void idle_segments_go_back_before_memory_runs_out(void **state)
{
    (void)state;
    fake.properties.memory_bytes = 100 * MIB;
    cuda_pool_give(pool, take(60 * MIB));
    void *memory = take(80 * MIB);
    assert_int_equal(stats().held_bytes, 80 * MIB);
    assert_int_equal(fake.n_release, 1);
    cuda_pool_give(pool, memory);
}

static void running_out_says_what_was_wanted_is_free_and_is_held(void **state)
{
    void *memory = NULL;
    (void)state;
    fake.properties.memory_bytes = 1024 * MIB;
    void *held = take(512 * MIB);
    assert_int_equal(cuda_pool_take(pool, 768 * MIB, &memory), NRL_ERR_MEMORY);
    assert_non_null(strstr(nrl_error_text(), "cannot allocate 0.750 GiB, 0.500 of 1.0 GiB free"));
    assert_non_null(strstr(nrl_error_text(), "holds 0.500 GiB"));
    assert_int_equal(cuda_pool_take(pool, SIZE_MAX / 4, &memory), NRL_ERR_MEMORY);
    assert_int_equal(cuda_pool_take(pool, SIZE_MAX, &memory), NRL_ERR_MEMORY);
    assert_int_equal(stats().used_bytes, 512 * MIB);
    cuda_pool_give(pool, held);
    assert_int_equal(cuda_pool_take(pool, 768 * MIB, &memory), NRL_OK);
}

static void the_limit_holds_whatever_the_device_has(void **state)
{
    void *memory = NULL;
    (void)state;
    cuda_pool_destroy(pool);
    assert_int_equal(cuda_pool_create(fake_driver(), 64 * MIB, &pool), NRL_OK);
    void *first = take(40 * MIB);
    int64_t asked = fake.n_allocate;
    assert_int_equal(cuda_pool_take(pool, 30 * MIB, &memory), NRL_ERR_MEMORY);
    assert_non_null(strstr(nrl_error_text(), "(limit 0.062, backend.memory_fraction)"));
    assert_int_equal(fake.n_allocate, asked);
    cuda_pool_give(pool, first);
    take(64 * MIB);
}

/* Whatever allocation fails, nothing is lost and the next try succeeds. */
static void the_nth_allocation_fails_and_nothing_is_lost(void **state)
{
    (void)state;
    for (int at = 1; at <= 3; at++) {
        void *memory[3] = {0};
        fake.fail_call = "allocate";
        fake.fail_at = at;
        fake.fail_code = 719;
        for (int i = 0; i < 3; i++) {
            nrl_status st = cuda_pool_take(pool, (size_t)(20 * (i + 1)) * MIB, &memory[i]);
            assert_int_equal(st, i + 1 == at ? NRL_ERR_DEVICE : NRL_OK);
            if (st) assert_non_null(strstr(nrl_error_text(), "CUDA error 719"));
        }
        for (int i = 0; i < 3; i++)
            cuda_pool_give(pool, memory[i]);
        cuda_pool_trim(pool);
        assert_int_equal(fake.live_bytes, 0);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_pool, close_pool)
    const struct CMUnitTest tests[] = {
        TEST(small_requests_share_a_segment),
        TEST(neighbours_join_in_any_order),
        TEST(blocks_never_overlap),
        TEST(a_repeated_step_asks_the_device_for_nothing),
        TEST(freed_memory_waits_for_other_streams),
        TEST(a_new_stream_follows_what_uses_freed_memory),
        TEST(events_that_fail_make_the_host_wait),
        TEST(idle_segments_go_back_before_memory_runs_out),
        TEST(running_out_says_what_was_wanted_is_free_and_is_held),
        TEST(the_limit_holds_whatever_the_device_has),
        TEST(the_nth_allocation_fails_and_nothing_is_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
