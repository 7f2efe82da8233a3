/*
 * test_warp.c - shuffles, votes, ldmatrix, mma and partial asynchronous copies, lane by lane.
 */
#include "run_ptx.h"

#define SHUFFLE(mode, by, control)                                                                                     \
    PTX_KERNEL("add.u32 %r1, %tid, 100; shfl.sync." mode ".b32 %r2|%p1, %r1, " by ", " control                         \
               ", 0xffffffff; selp.u32 %r3, 1000, 0, %p1; add.u32 %r2, %r2, %r3; st.global.u32 [%mine], %r2;")

/* c is the clamp lane, and (32 - width) << 8. */
static void shuffles_stay_in_their_segment(void **state)
{
    (void)state;
    must_run(SHUFFLE("up", "3", "0"), 32);
    assert_int_equal(words[2], 102);
    assert_int_equal(words[3], 1100);
    must_run(SHUFFLE("down", "3", "0x181f"), 32); /* width 8 */
    assert_int_equal(words[4], 1107);
    assert_int_equal(words[5], 105);
    assert_int_equal(words[12], 1115);
    must_run(SHUFFLE("idx", "5", "0x181f"), 32);
    assert_int_equal(words[0], 1105);
    assert_int_equal(words[31], 1129);
    must_run(SHUFFLE("bfly", "16", "31"), 32);
    assert_int_equal(words[3], 1119);
    must_run(SHUFFLE("bfly", "8", "0x181f"), 32); /* beyond the segment's last lane: own value */
    assert_int_equal(words[3], 103);
    assert_int_equal(words[11], 1103);
}

static void votes_count_the_lanes_of_the_mask(void **state)
{
    static const char *const text = PTX_KERNEL(
        "setp.lt.u32 %p1, %tid, 5; vote.sync.ballot.b32 %r1, %p1, -1; vote.sync.any.pred %p2, %p1, -1;"
        "vote.sync.all.pred %p3, %p1, -1; vote.sync.ballot.b32 %r2, !%p1, -1; selp.u32 %r3, 1, 0, %p2;"
        "selp.u32 %r4, 2, 0, %p3; or.b32 %r3, %r3, %r4; redux.sync.add.s32 %r5, %tid, -1; setp.eq.u32 %p4, %tid, 0;"
        "@%p4 st.global.v4.u32 [%out], {%r1, %r2, %r3, %r5}; and.b32 %r6, %tid, 3;"
        "match.any.sync.b32 %r7, %r6, -1; st.global.u32 [%mine+64], %r7;");
    (void)state;
    must_run(text, 32);
    assert_int_equal(words[0], 31);
    assert_int_equal(words[1], 0xffffffe0);
    assert_int_equal(words[2], 1);
    assert_int_equal(words[3], 496);
    assert_int_equal(words[16 + 1], 0x22222222);
}

/* Number 100 r + c at row r and column c of an 8 x 32 strip of 16-bit numbers: four matrices side by side. */
#define MATRICES(how)                                                                                                  \
    PTX_KERNEL("mov.u32 %r0, dynamic; shl.b32 %r1, %tid, 4; add.u32 %r2, %r0, %r1; cvt.u64.u32 %d1, %r1;"              \
               "add.u64 %d2, %out, %d1; ld.global.v4.u32 {%r4,%r5,%r6,%r7}, [%d2];"                                    \
               "st.shared.v4.u32 [%r2], {%r4,%r5,%r6,%r7}; bar.sync 0; and.b32 %r8, %tid, 7; shr.u32 %r9, %tid, 3;"    \
               "shl.b32 %r8, %r8, 6; shl.b32 %r9, %r9, 4; add.u32 %r10, %r8, %r9; add.u32 %r10, %r10, %r0;"            \
               "ldmatrix.sync.aligned.m8n8.x4." how "shared.b16 {%r11,%r12,%r13,%r14}, [%r10];"                        \
               "st.global.v4.u32 [%d2+512], {%r11,%r12,%r13,%r14};")

static void run_matrices(const char *text)
{
    uint16_t *numbers = (uint16_t *)words;
    for (int r = 0; r < 8; r++)
        for (int c = 0; c < 32; c++)
            numbers[32 * r + c] = (uint16_t)(100 * r + c);
    must_run(text, 32);
}

static void ldmatrix_gives_rows_and_columns(void **state)
{
    const uint32_t *to = words + 128;
    (void)state;
    run_matrices(MATRICES(""));
    for (uint32_t l = 0; l < 32; l++)
        for (uint32_t i = 0; i < 4; i++) {
            uint32_t first = 100 * (l / 4) + 8 * i + 2 * (l % 4);
            assert_int_equal(to[4 * l + i], (first + 1) << 16 | first);
        }
    run_matrices(MATRICES("trans."));
    for (uint32_t l = 0; l < 32; l++)
        for (uint32_t i = 0; i < 4; i++) {
            uint32_t first = 100 * (2 * (l % 4)) + 8 * i + l / 4;
            assert_int_equal(to[4 * l + i], (first + 100) << 16 | first);
        }
}

/* Small whole numbers: bf16 has 8 bits, f16 11. */
static uint32_t number(int x, bool bf16)
{
    float f = (float)x;
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    if (bf16) return u >> 16;
    return x == 0 ? 0 : (u >> 16 & 0x8000) | ((u >> 13 & 0x3ffff) - (112u << 10));
}

/* Words of lane l from 16 l: a 4, b 2, c 4, then d 4. */
#define MULTIPLY(name)                                                                                                 \
    PTX_KERNEL("mul.wide.u32 %d1, %tid, 64; add.u64 %d1, %d1, %out; ld.global.v4.u32 {%r0,%r1,%r2,%r3}, [%d1];"        \
               "ld.global.v2.u32 {%r4,%r5}, [%d1+16]; ld.global.v2.f32 {%f0,%f1}, [%d1+24];"                           \
               "ld.global.v2.f32 {%f2,%f3}, [%d1+32]; mma.sync.aligned.m16n8k16.row.col.f32." name "." name ".f32 "    \
               "{%f4,%f5,%f6,%f7}, {%r0,%r1,%r2,%r3}, {%r4,%r5}, {%f0,%f1,%f2,%f3};"                                   \
               "st.global.v2.f32 [%d1+40], {%f4,%f5}; st.global.v2.f32 [%d1+48], {%f6,%f7};")

static void multiply(bool bf16)
{
    int a[16][16], b[16][8], c[16][8];
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 16; j++) {
            a[i][j] = (7 * i + 3 * j) % 11 - 5;
            b[i][j % 8] = (5 * i + 9 * (j % 8)) % 13 - 6;
            c[i][j % 8] = 10 * i - j % 8;
        }
    for (int l = 0; l < 32; l++) {
        uint32_t *w = words + 16 * l;
        int g = l / 4, t = 2 * (l % 4);
        for (int i = 0; i < 4; i++) { /* register i: rows + 8 when i is odd, columns + 8 from 2 */
            int r = g + 8 * (i & 1), k = t + 8 * (i >> 1);
            w[i] = number(a[r][k], bf16) | number(a[r][k + 1], bf16) << 16;
        }
        for (int i = 0; i < 2; i++)
            w[4 + i] = number(b[t + 8 * i][g], bf16) | number(b[t + 8 * i + 1][g], bf16) << 16;
        for (int i = 0; i < 4; i++) {
            float f = (float)c[g + 8 * (i >> 1)][t + (i & 1)];
            memcpy(&w[6 + i], &f, sizeof f);
        }
    }
    must_run(bf16 ? MULTIPLY("bf16") : MULTIPLY("f16"), 32);
    for (int l = 0; l < 32; l++)
        for (int i = 0; i < 4; i++) {
            int r = l / 4 + 8 * (i >> 1), n = 2 * (l % 4) + (i & 1), sum = c[r][n];
            for (int k = 0; k < 16; k++)
                sum += a[r][k] * b[k][n];
            float f;
            memcpy(&f, &words[16 * l + 10 + i], sizeof f);
            assert_true(f == (float)sum);
        }
}

static void mma_multiplies_matrices(void **state)
{
    (void)state;
    multiply(true);
    multiply(false);
}

static void a_copy_of_fewer_bytes_fills_with_zeros(void **state)
{
    static const char *const text = PTX_KERNEL(
        "mov.u32 %r0, dynamic; mov.u32 %r1, 6; cp.async.ca.shared.global [%r0], [%out], 8, %r1; cp.async.wait_all;"
        "ld.shared.v2.u32 {%r2, %r3}, [%r0]; st.global.v2.u32 [%out+64], {%r2, %r3};");
    static const char *const none = PTX_KERNEL(
        "mov.u32 %r0, dynamic; mov.u32 %r1, 0; mov.u64 %d1, 0; cp.async.cg.shared.global [%r0], [%d1], 16, %r1;"
        "cp.async.wait_all; ld.shared.u32 %r2, [%r0+12]; st.global.u32 [%out], %r2;");
    (void)state;
    words[0] = words[1] = 0x12345678;
    must_run(text, 1);
    assert_int_equal(words[16], 0x12345678);
    assert_int_equal(words[17], 0x5678);
    must_run(none, 1);
    assert_int_equal(words[0], 0);
}

/* wait_group N leaves the newest N groups under way: here the second of three must have come, not the third. */
static void groups_arrive_in_order(void **state)
{
#define GROUPS(at)                                                                                                     \
    PTX_KERNEL("mov.u32 %r0, dynamic; cp.async.ca.shared.global [%r0], [%out], 4; cp.async.commit_group;"              \
               "cp.async.ca.shared.global [%r0+4], [%out+4], 4; cp.async.commit_group;"                                \
               "cp.async.ca.shared.global [%r0+8], [%out+8], 4; cp.async.commit_group; cp.async.wait_group 1;"         \
               "ld.shared.u32 %r1, [%r0+" at "]; st.global.u32 [%out+64], %r1;")
    (void)state;
    words[1] = 17;
    must_run(GROUPS("4"), 1);
    assert_int_equal(words[16], 17);
    must_fail(GROUPS("8"), 1, PTX_ASYNC, "was not waited for");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shuffles_stay_in_their_segment),         cmocka_unit_test(votes_count_the_lanes_of_the_mask),
        cmocka_unit_test(ldmatrix_gives_rows_and_columns),        cmocka_unit_test(mma_multiplies_matrices),
        cmocka_unit_test(a_copy_of_fewer_bytes_fills_with_zeros), cmocka_unit_test(groups_arrive_in_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
