/*
 * test_checks.c - small kernels that are wrong on purpose: each fault must be detected, and the
 * correct version of each must pass.
 */
#include "run_ptx.h"

/* Every thread writes its number to shared memory and reads its neighbour's. */
#define EXCHANGE(between)                                                                                              \
    PTX_KERNEL("mov.u32 %r0, dynamic; shl.b32 %r1, %tid, 2; add.u32 %r2, %r0, %r1;"                                    \
               "st.shared.u32 [%r2], %tid;" between "xor.b32 %r1, %r1, 4; add.u32 %r2, %r0, %r1;"                      \
               "ld.shared.u32 %r3, [%r2]; st.global.u32 [%mine], %r3;")

static void a_missing_barrier_is_a_race(void **state)
{
    (void)state;
    must_run(EXCHANGE("bar.sync 0;"), 64);
    assert_int_equal(words[0], 1);
    assert_int_equal(words[63], 62);
    must_fail(EXCHANGE(""), 64, PTX_RACE, "without a barrier between");
}

static void a_warp_needs_its_barrier_too(void **state)
{
    (void)state;
    must_run(EXCHANGE("bar.warp.sync 0xffffffff;"), 64);
    must_fail(EXCHANGE("shfl.sync.idx.b32 %r9, %tid, 0, 31, 0xffffffff;"), 32, PTX_RACE, "thread");
}

static void a_write_after_others_read_is_a_race(void **state)
{
    static const char *const reads_then =
        PTX_KERNEL("mov.u32 %r0, dynamic; setp.eq.u32 %p1, %tid, 0; @%p1 st.shared.u32 [%r0], 7; bar.sync 0;"
                   "ld.shared.u32 %r1, [%r0]; setp.eq.u32 %p2, %tid, 32; @%p2 st.shared.u32 [%r0], 8;");
    (void)state;
    must_fail(reads_then, 64, PTX_RACE, "writes shared byte");
}

static void two_threads_that_write_one_byte_are_a_race(void **state)
{
    (void)state;
    must_fail(PTX_KERNEL("mov.u32 %r0, dynamic; st.shared.u32 [%r0], 7;"), 2, PTX_RACE, "wrote");
    must_run(PTX_KERNEL("mov.u32 %r0, dynamic; shl.b32 %r1, %tid, 1; add.u32 %r0, %r0, %r1; mov.b16 %h1, 7;"
                        "st.shared.u16 [%r0], %h1;"),
             2);
}

static void atomics_do_not_race_with_each_other(void **state)
{
    (void)state;
    must_run(PTX_KERNEL("mov.u32 %r0, dynamic; setp.eq.u32 %p1, %tid, 0; @%p1 st.shared.u32 [%r0], 0; bar.sync 0;"
                        "atom.shared.add.u32 %r1, [%r0], 1; bar.sync 0; ld.shared.u32 %r2, [%r0];"
                        "st.global.u32 [%mine], %r2;"),
             64);
    assert_int_equal(words[63], 64);
}

/* No barrier orders the blocks of a launch; within one it orders global memory too. */
static void blocks_do_not_share_bytes(void **state)
{
    static const char *const others = PTX_KERNEL("mov.u32 %r1, %ctaid.x; setp.eq.u32 %p1, %r1, 0;"
                                                 "@%p1 st.global.u32 [%out], 1; @!%p1 ld.global.u32 %r2, [%out];");
    static const char *const all = PTX_KERNEL("st.global.u32 [%mine], 1;");
    static const char *const word = PTX_KERNEL("st.volatile.global.u32 [%out], 1;");
    static const char *const neighbour = PTX_KERNEL("st.global.u32 [%mine], 1; bar.sync 0; xor.b32 %r1, %tid, 32;"
                                                    "mul.wide.u32 %d1, %r1, 4; add.s64 %d1, %d1, %out;"
                                                    "ld.global.u32 %r2, [%d1];");
    (void)state;
    must_run(neighbour, 64);
    n_blocks = 2;
    must_fail(others, 1, PTX_RACE, "another block in the same launch wrote");
    must_fail(all, 1, PTX_RACE, "another block");
    must_run(word, 32);
    n_blocks = 1;
    must_run(others, 1);
    must_run(all, 32);
}

static void global_memory_has_exact_ends(void **state)
{
    (void)state;
    must_run(PTX_KERNEL("st.global.u32 [%out+4092], 1;"), 1);
    must_fail(PTX_KERNEL("st.global.u32 [%out+4096], 1;"), 1, PTX_BOUNDS, "beyond the end of a block of 4096 bytes");
    must_fail(PTX_KERNEL("ld.global.u32 %r1, [%out+-4];"), 1, PTX_BOUNDS, "read of 4 bytes");
    must_fail(PTX_KERNEL("mov.u64 %d1, 0; ld.global.u32 %r1, [%d1];"), 1, PTX_BOUNDS, "nobody's");
}

static void shared_memory_has_exact_ends(void **state)
{
    (void)state;
    must_run(PTX_KERNEL("mov.u32 %r0, dynamic; st.shared.u32 [%r0+4092], 1;"), 1);
    must_fail(PTX_KERNEL("mov.u32 %r0, dynamic; st.shared.u32 [%r0+4096], 1;"), 1, PTX_BOUNDS, "shared address");
    must_fail(PTX_KERNEL("mov.u32 %r0, 0; st.shared.u32 [%r0], 1;"), 1, PTX_BOUNDS, "shared address");
}

static void local_memory_and_parameters_have_ends(void **state)
{
    (void)state;
    must_fail(PTX_KERNEL(".local .align 8 .b8 mine[16]; mov.u64 %d1, mine; st.local.u32 [%d1+16], 1;"), 1, PTX_BOUNDS,
              "local address");
    must_fail(PTX_KERNEL("ld.param.u64 %d1, [k_param_0+8];"), 1, PTX_BOUNDS, "parameters");
}

static void addresses_are_multiples_of_the_access(void **state)
{
    (void)state;
    must_fail(PTX_KERNEL("st.global.u32 [%out+2], 1;"), 1, PTX_ALIGNMENT, "no multiple of 4");
    must_fail(PTX_KERNEL("ld.global.v4.u32 {%r0,%r1,%r2,%r3}, [%out+8];"), 1, PTX_ALIGNMENT, "no multiple of 16");
    must_fail(PTX_KERNEL("mov.u32 %r0, dynamic; mov.b16 %h1, 7; st.shared.u16 [%r0+1], %h1;"), 1, PTX_ALIGNMENT,
              "shared address");
}

/* Dynamic shared memory is declared .align 16 and lies no better. */
static void shared_memory_is_aligned_as_declared(void **state)
{
    (void)state;
    must_run(PTX_KERNEL("mov.u32 %r0, dynamic; and.b32 %r1, %r0, 31; st.global.u32 [%out], %r1;"), 1);
    assert_int_equal(words[0], 16);
}

static void what_nobody_wrote_is_not_read(void **state)
{
    (void)state;
    must_fail(PTX_KERNEL("mov.u32 %r0, dynamic; ld.shared.u32 %r1, [%r0];"), 1, PTX_UNINITIALISED, "shared byte");
    must_fail(PTX_KERNEL(".local .align 8 .b8 mine[16]; mov.u64 %d1, mine; st.local.u32 [%d1], 1;"
                         "ld.local.u64 %d2, [%d1];"),
              1, PTX_UNINITIALISED, "local byte 4");
    must_fail(PTX_KERNEL("add.u32 %r1, %r2, 1;"), 1, PTX_UNINITIALISED, "a register");
    must_fail(PTX_KERNEL("setp.eq.u32 %p1, %tid, 0; @%p1 mov.u32 %r1, 5; add.u32 %r2, %r1, 1;"), 2, PTX_UNINITIALISED,
              "thread 1");
}

static void moves_carry_what_is_undefined(void **state)
{
    (void)state;
    must_run(PTX_KERNEL("mov.u32 %r1, %r2;"), 1);
    must_fail(PTX_KERNEL("mov.u32 %r1, %r2; add.u32 %r3, %r1, 1;"), 1, PTX_UNINITIALISED, "a register");
}

static void fresh_device_memory_is_undefined(void **state)
{
    static const char *const text = PTX_KERNEL("ld.global.u64 %d1, [%out]; st.global.u32 [%d1], 1;"
                                               "ld.global.u32 %r1, [%d1]; ld.global.u32 %r1, [%d1+4];");
    static uint32_t overwrite[4];
    uint64_t at = (uint64_t)(uintptr_t)overwrite;
    (void)state;
    memcpy(words, &at, sizeof at);
    ptx_memory_add(overwrite, sizeof overwrite, true);
    must_fail(text, 1, PTX_UNINITIALISED, "global byte 4");
    ptx_memory_add(overwrite, sizeof overwrite, true);
    ptx_memory_wrote(&overwrite[1], 4);
    must_run(text, 1);
    ptx_memory_remove(overwrite);
    must_fail(text, 1, PTX_BOUNDS, "global address");
}

static void a_barrier_wants_every_thread(void **state)
{
    static const char *const some = PTX_KERNEL("setp.lt.u32 %p1, %tid, 40; @!%p1 bra end; bar.sync 0; end:");
    static const char *const two = PTX_KERNEL("setp.lt.u32 %p1, %tid, 16; @%p1 bra a; bar.sync 0; bra end;"
                                              "a: bar.sync 0; end:");
    (void)state;
    must_fail(some, 64, PTX_SYNC, "barrier");
    must_fail(two, 32, PTX_SYNC, "at another one");
    must_run(two, 8);
}

static void a_shuffle_waits_for_its_lanes(void **state)
{
    static const char *const apart = PTX_KERNEL("mov.u32 %r1, %tid; setp.lt.u32 %p1, %tid, 16; @%p1 bra on;"
                                                "add.u32 %r1, %r1, 100; on: shfl.sync.bfly.b32 %r2, %r1, 16, 31, -1;"
                                                "st.global.u32 [%mine], %r2;");
    static const char *const without = PTX_KERNEL("setp.lt.u32 %p1, %tid, 16;"
                                                  "@%p1 shfl.sync.bfly.b32 %r2, %tid, 1, 31, -1;");
    static const char *const half = PTX_KERNEL("setp.lt.u32 %p1, %tid, 16;"
                                               "@%p1 shfl.sync.bfly.b32 %r2, %tid, 1, 31, 0xffff;");
    static const char *const outside = PTX_KERNEL("setp.lt.u32 %p1, %tid, 16;"
                                                  "@%p1 shfl.sync.bfly.b32 %r2, %tid, 16, 31, 0xffff;");
    (void)state;
    must_run(apart, 32);
    assert_int_equal(words[0], 116);
    assert_int_equal(words[31], 15);
    must_run(half, 32);
    must_fail(without, 32, PTX_SYNC, "wait for others");
    must_fail(outside, 32, PTX_SYNC, "takes no part");
    must_fail(PTX_KERNEL("shfl.sync.bfly.b32 %r2, %tid, 1, 31, 1;"), 32, PTX_SYNC, "has the mask");
}

static void tensor_instructions_want_the_whole_warp(void **state)
{
    static const char *const part = PTX_KERNEL("setp.lt.u32 %p1, %tid, 16; mov.u32 %r0, dynamic; @!%p1 bra end;"
                                               "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r1}, [%r0]; end:");
    (void)state;
    must_fail(part, 32, PTX_SYNC, "lanes");
    must_fail(PTX_KERNEL("mov.u32 %r0, dynamic; ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r1}, [%r0];"), 16, PTX_SYNC,
              "whole warp");
}

#define COPY(wait)                                                                                                     \
    PTX_KERNEL("mov.u32 %r0, dynamic; shl.b32 %r1, %tid, 4; add.u32 %r2, %r0, %r1;"                                    \
               "cvt.u64.u32 %d1, %r1; add.u64 %d2, %out, %d1; add.u64 %d3, %d2, 2048;"                                 \
               "cp.async.cg.shared.global [%r2], [%d2], 16;" wait                                                      \
               "ld.shared.v4.u32 {%r4,%r5,%r6,%r7}, [%r2]; st.global.v4.u32 [%d3], {%r4,%r5,%r6,%r7};")

static void asynchronous_copies_are_waited_for(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < WORDS; i++)
        words[i] = i;
    must_run(COPY("cp.async.commit_group; cp.async.wait_group 0;"), 32);
    assert_int_equal(words[512 + 77], 77);
    must_run(COPY("cp.async.wait_all;"), 32);
    must_fail(COPY(""), 32, PTX_ASYNC, "was not waited for");
    must_fail(COPY("cp.async.commit_group;"), 32, PTX_ASYNC, "was not waited for");
    must_fail(COPY("cp.async.commit_group; cp.async.wait_group 1;"), 32, PTX_ASYNC, "was not waited for");
    must_fail(COPY("cp.async.wait_group 0;"), 32, PTX_ASYNC, "was not waited for"); /* never committed */
}

/* A wait is for the thread's own copies: others see them after a barrier. */
static void others_see_a_copy_after_a_barrier(void **state)
{
#define OTHERS(barrier) COPY("cp.async.wait_all;" barrier "xor.b32 %r1, %r1, 16; add.u32 %r2, %r0, %r1;")
    (void)state;
    must_run(OTHERS("bar.sync 0;"), 32);
    must_fail(OTHERS(""), 32, PTX_RACE, "without a barrier");
}

static void launches_keep_within_limits(void **state)
{
    static const char *const promised =
        PTX_HEAD ".visible .entry k(.param .u64 k_param_0)\n.maxntid 64, 1, 1\n{\nret;\n}\n";
    (void)state;
    must_run(promised, 64);
    must_fail(promised, 65, PTX_LAUNCH, "at most 64");
    must_fail(PTX_KERNEL(""), 1025, PTX_LAUNCH, "1025");
    assert_int_equal(run_text(PTX_KERNEL(""), 32, 48 << 10), PTX_FINE);
    assert_int_equal(run_text(PTX_KERNEL(""), 32, (48 << 10) + 1), PTX_LAUNCH);
}

static void what_is_not_modelled_is_named(void **state)
{
    (void)state;
    must_fail(PTX_KERNEL("fns.b32 %r1, %r2, %r3, %r4;"), 1, PTX_OPCODE, "'fns.b32'");
    must_fail(PTX_KERNEL("add.sat.s32 %r1, %r2, %r3;"), 1, PTX_OPCODE, "'add.sat.s32'");
    must_fail(PTX_KERNEL("bra nowhere;"), 1, PTX_SYNTAX, "nowhere");
    must_fail(PTX_HEAD, 1, PTX_SYNTAX, "no function");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_missing_barrier_is_a_race),
        cmocka_unit_test(a_warp_needs_its_barrier_too),
        cmocka_unit_test(a_write_after_others_read_is_a_race),
        cmocka_unit_test(two_threads_that_write_one_byte_are_a_race),
        cmocka_unit_test(atomics_do_not_race_with_each_other),
        cmocka_unit_test(blocks_do_not_share_bytes),
        cmocka_unit_test(global_memory_has_exact_ends),
        cmocka_unit_test(shared_memory_has_exact_ends),
        cmocka_unit_test(local_memory_and_parameters_have_ends),
        cmocka_unit_test(addresses_are_multiples_of_the_access),
        cmocka_unit_test(shared_memory_is_aligned_as_declared),
        cmocka_unit_test(what_nobody_wrote_is_not_read),
        cmocka_unit_test(moves_carry_what_is_undefined),
        cmocka_unit_test(fresh_device_memory_is_undefined),
        cmocka_unit_test(a_barrier_wants_every_thread),
        cmocka_unit_test(a_shuffle_waits_for_its_lanes),
        cmocka_unit_test(tensor_instructions_want_the_whole_warp),
        cmocka_unit_test(asynchronous_copies_are_waited_for),
        cmocka_unit_test(others_see_a_copy_after_a_barrier),
        cmocka_unit_test(launches_keep_within_limits),
        cmocka_unit_test(what_is_not_modelled_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
