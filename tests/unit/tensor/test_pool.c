/*
 * test_pool.c - blocks that are split from segments, on a fake device that counts allocations.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tensor/memory/pool.h"
#include <stdlib.h>
#include <string.h>

enum { KIB = 1 << 10, MIB = 1 << 20, SEGMENT = 2 * MIB };

static struct {
    size_t room; /* the largest size that it gives */
    int n_segments;
} machine;
static device the_device;
static pool p;

static nrl_status machine_alloc(void *self, size_t bytes, void **out)
{
    (void)self;
    if (bytes > machine.room) return nrl_fail(NRL_ERR_MEMORY, "the machine is full");
    *out = aligned_alloc(64, bytes);
    machine.n_segments++;
    return NRL_OK;
}

static void machine_free(void *self, void *memory)
{
    (void)self;
    machine.n_segments--;
    machine.room = SIZE_MAX;
    free(memory);
}

static int open_pool(void **state)
{
    (void)state;
    machine.room = SIZE_MAX;
    the_device = (device){.table = {.alloc = machine_alloc, .free = machine_free}, .info = {.host_memory = true}};
    pool_init(&p, &the_device);
    return 0;
}

static int close_pool(void **state)
{
    (void)state;
    assert_int_equal(p.live_bytes, 0);
    pool_destroy(&p);
    assert_int_equal(machine.n_segments, 0);
    return 0;
}

static pool_block *take(size_t bytes)
{
    pool_block *b;
    assert_int_equal(pool_take(&p, bytes, &b), NRL_OK);
    assert_int_equal((uintptr_t)b->data % 64, 0);
    assert_true(b->size >= bytes);
    memset(b->data, 1, bytes);
    return b;
}

static void neighbours_join_in_any_order(void **state)
{
    (void)state;
    static const int orders[][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {2, 1, 0}, {1, 2, 0}, {2, 0, 1}};
    for (size_t i = 0; i < sizeof orders / sizeof *orders; i++) {
        pool_block *b[3];
        for (int k = 0; k < 3; k++)
            b[k] = take(500 * KIB);
        for (int k = 0; k < 3; k++)
            pool_release(&p, b[orders[i][k]]);
        pool_release(&p, take(SEGMENT - 128)); /* nearly the whole segment, in one piece */
        assert_int_equal(p.n_device_allocations, 1);
    }
}

static void a_counted_block_stays(void **state)
{
    (void)state;
    pool_block *b = take(300 * KIB);
    b->count++;
    pool_release(&p, b);
    pool_block *other = take(300 * KIB);
    assert_ptr_not_equal(other->data, b->data);
    pool_release(&p, other);
    pool_release(&p, b);
}

static void small_blocks_do_not_split_large_segments(void **state)
{
    (void)state;
    pool_release(&p, take(SEGMENT - 128));
    pool_block *small = take(100);
    pool_release(&p, take(SEGMENT - 128));
    assert_int_equal(p.n_device_allocations, 2);
    pool_release(&p, small);
}

/* Micro-batches of random lengths: layers' activations, released in reverse. */
static size_t micro_batch(size_t tokens)
{
    enum { N = 24 };
    pool_block *b[N];
    for (size_t i = 0; i < N; i++)
        b[i] = take(tokens * (64 + i % 5 * 300));
    size_t live = p.live_bytes;
    for (size_t i = N; i-- > 0;)
        pool_release(&p, b[i]);
    pool_period(&p);
    return live;
}

static void wandering_lengths_settle(void **state)
{
    (void)state;
    size_t most = 0;
    unsigned seed = 1;
    int64_t early = 0;
    for (int i = 0; i < 400; i++) {
        seed = seed * 1103515245u + 12345u;
        size_t live = micro_batch(200 + (seed >> 16) % 1800);
        if (live > most) most = live;
        assert_true(p.idle_bytes <= most + most / 4 + 2 * SEGMENT);
        if (i == 200) early = p.n_device_allocations;
    }
    /* segments of the longest ones come and go now and then, not with every block */
    assert_true(p.n_device_allocations - early < 200);
}

static void what_recent_steps_did_not_need_goes_back(void **state)
{
    (void)state;
    micro_batch(4000);
    size_t large = p.idle_bytes;
    for (int i = 0; i < POOL_PERIODS + 1; i++)
        micro_batch(100);
    assert_true(p.idle_bytes < large / 2);
    pool_trim(&p);
    assert_int_equal(p.idle_bytes, 0);
}

static void idle_segments_go_before_the_machine_is_full(void **state)
{
    (void)state;
    pool_block *b;
    pool_release(&p, take(4 * MIB));
    machine.room = MIB; /* until something comes back */
    assert_int_equal(pool_take(&p, 5 * MIB, &b), NRL_OK);
    pool_release(&p, b);
    machine.room = MIB;
    pool_block *held = take(4 * MIB);
    assert_int_equal(pool_take(&p, 5 * MIB, &b), NRL_ERR_MEMORY);
    pool_release(&p, held);
}

static void impossible_sizes_are_refused(void **state)
{
    (void)state;
    pool_block *b;
    assert_int_equal(pool_take(&p, SIZE_MAX, &b), NRL_ERR_MEMORY);
    assert_int_equal(pool_take_exact(&p, SIZE_MAX - 1, &b), NRL_ERR_MEMORY);
    pool_release(&p, take(0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(neighbours_join_in_any_order, open_pool, close_pool),
        cmocka_unit_test_setup_teardown(a_counted_block_stays, open_pool, close_pool),
        cmocka_unit_test_setup_teardown(small_blocks_do_not_split_large_segments, open_pool, close_pool),
        cmocka_unit_test_setup_teardown(wandering_lengths_settle, open_pool, close_pool),
        cmocka_unit_test_setup_teardown(what_recent_steps_did_not_need_goes_back, open_pool, close_pool),
        cmocka_unit_test_setup_teardown(idle_segments_go_before_the_machine_is_full, open_pool, close_pool),
        cmocka_unit_test_setup_teardown(impossible_sizes_are_refused, open_pool, close_pool),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
