/*
 * test_opcodes.c - results of single instructions, with expected values from the PTX manual.
 */
#include "run_ptx.h"
#include <math.h>

/* One thread: words[0] and [1] are read as %r0 and %r1 (%f0, %f1), %r9 (%f9 by mov) is written to [0]. */
static uint32_t of_bits(const char *text, uint32_t a, uint32_t b)
{
    words[0] = a;
    words[1] = b;
    must_run(text, 1);
    return words[0];
}

static uint32_t bits_of(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

#define INTEGERS(body)                                                                                                 \
    PTX_KERNEL("ld.global.u32 %r0, [%out]; ld.global.u32 %r1, [%out+4];" body "st.global.u32 [%out], %r9;")
#define FLOATS(body)                                                                                                   \
    PTX_KERNEL("ld.global.f32 %f0, [%out]; ld.global.f32 %f1, [%out+4];" body "st.global.u32 [%out], %r9;")
#define FLOAT_TO_FLOAT(body) FLOATS(body " mov.b32 %r9, %f7;")
#define TO_HALF(op) FLOATS(op " %h1, %f0; cvt.u32.u16 %r9, %h1;")
#define TO_BYTES(op) FLOATS(op " %h1, %f0, %f1; cvt.u32.u16 %r9, %h1;")

static void integers_wrap_shift_and_divide(void **state)
{
    (void)state;
    assert_int_equal(of_bits(INTEGERS("mul.hi.s32 %r9, %r0, %r1;"), (uint32_t)-3, 2), 0xffffffff);
    assert_int_equal(of_bits(INTEGERS("mul.hi.u32 %r9, %r0, %r1;"), (uint32_t)-3, 2), 1);
    assert_int_equal(of_bits(INTEGERS("mad.lo.s32 %r9, %r0, %r1, -1;"), 7, 6), 41);
    assert_int_equal(of_bits(INTEGERS("div.s32 %r9, %r0, %r1;"), (uint32_t)-7, 2), (uint32_t)-3);
    assert_int_equal(of_bits(INTEGERS("rem.s32 %r9, %r0, %r1;"), (uint32_t)-7, 2), (uint32_t)-1);
    assert_int_equal(of_bits(INTEGERS("shl.b32 %r9, %r0, %r1;"), 1, 32), 0);
    assert_int_equal(of_bits(INTEGERS("shr.s32 %r9, %r0, %r1;"), 0x80000000, 99), 0xffffffff);
    assert_int_equal(of_bits(INTEGERS("shr.u32 %r9, %r0, %r1;"), 0x80000000, 31), 1);
    assert_int_equal(
        of_bits(INTEGERS("mul.wide.s32 %d1, %r0, %r1; shr.s64 %d1, %d1, 32; cvt.u32.u64 %r9, %d1;"), (uint32_t)-2, 3),
        0xffffffff);
}

static void bits_are_picked(void **state)
{
    (void)state;
    assert_int_equal(of_bits(INTEGERS("prmt.b32 %r9, %r0, %r1, 0x7531;"), 0x33221100, 0x77665544), 0x77553311);
    assert_int_equal(of_bits(INTEGERS("prmt.b32 %r9, %r0, %r1, 0x00B8;"), 0x80221100, 0), 0x0000ff00);
    assert_int_equal(of_bits(INTEGERS("bfe.u32 %r9, %r0, 4, 8;"), 0xabcdef12, 0), 0xf1);
    assert_int_equal(of_bits(INTEGERS("bfe.s32 %r9, %r0, 4, 8;"), 0xabcdef12, 0), 0xfffffff1);
    assert_int_equal(of_bits(INTEGERS("bfe.s32 %r9, %r0, 28, 8;"), 0x90000000, 0), 0xfffffff9);
    assert_int_equal(of_bits(INTEGERS("bfi.b32 %r9, %r0, %r1, 8, 4;"), 0x5, 0xffffffff), 0xfffff5ff);
    assert_int_equal(of_bits(INTEGERS("bfi.b32 %r9, %r0, %r1, 0, 32;"), 0x5, 0xffffffff), 5);
    assert_int_equal(of_bits(INTEGERS("lop3.b32 %r9, %r0, %r1, 0xff00, 0x96;"), 0xf0f0, 0xcccc),
                     0xf0f0 ^ 0xcccc ^ 0xff00);
    assert_int_equal(of_bits(INTEGERS("lop3.b32 %r9, %r0, %r1, 0, 0xc0;"), 0xf0f0, 0xcccc), 0xf0f0 & 0xcccc);
    assert_int_equal(of_bits(INTEGERS("popc.b32 %r9, %r0;"), 0xf0f1, 0), 9);
    assert_int_equal(of_bits(INTEGERS("clz.b32 %r9, %r0;"), 0x00f0, 0), 24);
    assert_int_equal(of_bits(INTEGERS("brev.b32 %r9, %r0;"), 0x1, 0), 0x80000000);
    assert_int_equal(of_bits(INTEGERS("shf.l.wrap.b32 %r9, %r0, %r1, 8;"), 0xaabbccdd, 0x11223344), 0x223344aa);
    assert_int_equal(of_bits(INTEGERS("shf.r.wrap.b32 %r9, %r0, %r1, 8;"), 0xaabbccdd, 0x11223344), 0x44aabbcc);
}

static void vectors_are_packed_lowest_first(void **state)
{
    (void)state;
    assert_int_equal(of_bits(INTEGERS("mov.b64 %d1, {%r0, %r1}; shr.u64 %d1, %d1, 16; mov.b64 {%r9, _}, %d1;"),
                             0x11112222, 0x33334444),
                     0x44441111);
    assert_int_equal(of_bits(INTEGERS("mov.b32 {%h0, %h1}, %r0; mov.b32 %r9, {%h1, %h0};"), 0x11112222, 0), 0x22221111);
}

static void predicates_are_set_and_joined(void **state)
{
    static const char *const ordered = FLOATS("setp.lt.f32 %p1, %f0, %f1; selp.u32 %r9, 1, 0, %p1;");
    static const char *const unordered = FLOATS("setp.geu.f32 %p1, %f0, %f1; selp.u32 %r9, 1, 0, %p1;");
    static const char *const differ = FLOATS("setp.ne.f32 %p1, %f0, %f1; selp.u32 %r9, 1, 0, %p1;");
    static const char *const two = INTEGERS("setp.eq.u32 %p3, %r1, 1; setp.lt.and.s32 %p1|%p2, %r0, 5, %p3;"
                                            "selp.u32 %r2, 1, 0, %p1; selp.u32 %r3, 2, 0, %p2; or.b32 %r9, %r2, %r3;");
    uint32_t nan = 0x7fffffff, one = bits_of(1), three = bits_of(3);
    (void)state;
    assert_int_equal(of_bits(ordered, one, three), 1);
    assert_int_equal(of_bits(ordered, nan, three), 0);
    assert_int_equal(of_bits(unordered, one, three), 0);
    assert_int_equal(of_bits(unordered, nan, three), 1);
    assert_int_equal(of_bits(differ, nan, three), 0);
    assert_int_equal(of_bits(two, 4, 1), 1);
    assert_int_equal(of_bits(two, 6, 1), 2);
    assert_int_equal(of_bits(two, 4, 0), 0);
}

static void floats_round_as_asked(void **state)
{
    uint32_t one = bits_of(1), tiny = bits_of(0x1p-30f);
    (void)state;
    assert_int_equal(of_bits(FLOAT_TO_FLOAT("add.f32 %f7, %f0, %f1;"), one, tiny), one);
    assert_int_equal(of_bits(FLOAT_TO_FLOAT("add.rp.f32 %f7, %f0, %f1;"), one, tiny), one + 1);
    assert_int_equal(of_bits(FLOAT_TO_FLOAT("sub.rz.f32 %f7, %f0, %f1;"), one, tiny), one - 1);
    assert_int_equal(of_bits(FLOAT_TO_FLOAT("fma.rm.f32 %f7, %f0, %f0, %f1;"), one, bits_of(-0x1p-30f)), one - 1);
    assert_int_equal(of_bits(FLOAT_TO_FLOAT("fma.rn.f32 %f7, %f0, %f0, 0fBF800004;"), one + 2, 0), bits_of(0x1p-44f));
    assert_int_equal(of_bits(FLOAT_TO_FLOAT("max.f32 %f7, %f0, %f1;"), 0x7fc00000, one), one);
    assert_int_equal(of_bits(FLOAT_TO_FLOAT("min.f32 %f7, %f0, %f1;"), 0, 0x80000000), 0x80000000);
    assert_int_equal(of_bits(FLOAT_TO_FLOAT("copysign.f32 %f7, %f0, %f1;"), bits_of(-2), bits_of(3)), bits_of(-3));
    assert_int_equal(of_bits(FLOAT_TO_FLOAT("mul.ftz.f32 %f7, %f0, %f1;"), bits_of(-0x1p-100f), bits_of(0x1p-40f)),
                     0x80000000);
    assert_int_equal(of_bits(FLOAT_TO_FLOAT("mul.f32 %f7, %f0, %f1;"), bits_of(0x1p-100f), bits_of(0x1p-40f)), 1 << 9);
    assert_int_equal(of_bits(FLOAT_TO_FLOAT("ex2.approx.f32 %f7, %f0;"), bits_of(-3), 0), bits_of(0.125f));
    assert_int_equal(of_bits(FLOAT_TO_FLOAT("ex2.approx.ftz.f32 %f7, %f0;"), bits_of(-130), 0), 0);
    assert_int_equal(of_bits(FLOAT_TO_FLOAT("rcp.approx.ftz.f32 %f7, %f0;"), bits_of(8), 0), bits_of(0.125f));
    assert_int_equal(
        of_bits(FLOATS("cvt.f64.f32 %g1, %f0; rcp.approx.ftz.f64 %g2, %g1; mov.b64 {%r9, _}, %g2;"), bits_of(3), 0), 0);
}

/* Ties of the last bit go to the even neighbour, with rz downwards in size. */
static void halves_round_ties_to_even(void **state)
{
    (void)state;
    assert_int_equal(of_bits(TO_HALF("cvt.rn.bf16.f32"), 0x3f808000, 0), 0x3f80);
    assert_int_equal(of_bits(TO_HALF("cvt.rn.bf16.f32"), 0x3f818000, 0), 0x3f82);
    assert_int_equal(of_bits(TO_HALF("cvt.rn.bf16.f32"), 0x3f808001, 0), 0x3f81);
    assert_int_equal(of_bits(TO_HALF("cvt.rz.bf16.f32"), 0x3f80ffff, 0), 0x3f80);
    assert_int_equal(of_bits(TO_HALF("cvt.rn.bf16.f32"), 0x7f7fffff, 0), 0x7f80);
    assert_int_equal(of_bits(TO_HALF("cvt.rn.bf16.f32"), 0xffc00001, 0), 0x7fff);
    assert_int_equal(of_bits(TO_HALF("cvt.rn.bf16.f32"), 0x80000001, 0), 0x8000);
    assert_int_equal(of_bits(TO_HALF("cvt.rn.f16.f32"), bits_of(1 + 0x1p-11f), 0), 0x3c00);
    assert_int_equal(of_bits(TO_HALF("cvt.rn.f16.f32"), bits_of(1 + 3 * 0x1p-11f), 0), 0x3c02);
    assert_int_equal(of_bits(TO_HALF("cvt.rn.f16.f32"), bits_of(65519), 0), 0x7bff);
    assert_int_equal(of_bits(TO_HALF("cvt.rn.f16.f32"), bits_of(65520), 0), 0x7c00);
    assert_int_equal(of_bits(TO_HALF("cvt.rz.f16.f32"), bits_of(1e9f), 0), 0x7bff);
    assert_int_equal(of_bits(TO_HALF("cvt.rn.satfinite.f16.f32"), bits_of(-1e9f), 0), 0xfbff);
    assert_int_equal(of_bits(TO_HALF("cvt.rn.f16.f32"), bits_of(3 * 0x1p-25f), 0), 2);
    assert_int_equal(of_bits(TO_HALF("cvt.rn.f16.f32"), bits_of(0x1p-25f), 0), 0);
    assert_int_equal(of_bits(FLOATS("cvt.rn.bf16x2.f32 %r9, %f0, %f1;"), bits_of(1), bits_of(-2)), 0x3f80c000);
    assert_int_equal(of_bits(TO_BYTES("cvt.rn.satfinite.e4m3x2.f32"), bits_of(1), bits_of(-2)), 0x38c0);
    assert_int_equal(of_bits(TO_BYTES("cvt.rn.satfinite.e4m3x2.f32"), bits_of(464), bits_of(-INFINITY)), 0x7efe);
    assert_int_equal(of_bits(TO_BYTES("cvt.rn.satfinite.e4m3x2.f32"), bits_of(3 * 0x1p-10f), 0x7fc00000), 0x027f);
    assert_int_equal(of_bits(TO_BYTES("cvt.rn.satfinite.e4m3x2.f32"), bits_of(1.0625f), bits_of(1.1875f)), 0x383a);
    assert_int_equal(of_bits(TO_BYTES("cvt.rn.satfinite.e5m2x2.f32"), bits_of(1), bits_of(-2)), 0x3cc0);
    assert_int_equal(of_bits(TO_BYTES("cvt.rn.satfinite.e5m2x2.f32"), bits_of(1e9f), bits_of(-61440)), 0x7bfb);
    assert_int_equal(of_bits(TO_BYTES("cvt.rn.satfinite.e5m2x2.f32"), bits_of(3 * 0x1p-17f), bits_of(0x1p-18f)),
                     0x0200);
    assert_int_equal(of_bits(FLOATS("cvt.rn.f16x2.f32 %r9, %f0, %f1;"), bits_of(1), bits_of(-2)), 0x3c00c000);
    assert_int_equal(of_bits(INTEGERS("cvt.u16.u32 %h1, %r0; cvt.f32.f16 %f1, %h1; mov.b32 %r9, %f1;"), 0x8001, 0),
                     bits_of(-0x1p-24f));
}

static void conversions_clamp(void **state)
{
    (void)state;
    assert_int_equal(of_bits(FLOATS("cvt.rzi.s32.f32 %r9, %f0;"), bits_of(-2.9f), 0), (uint32_t)-2);
    assert_int_equal(of_bits(FLOATS("cvt.rni.s32.f32 %r9, %f0;"), bits_of(2.5f), 0), 2);
    assert_int_equal(of_bits(FLOATS("cvt.rmi.s32.f32 %r9, %f0;"), bits_of(-2.1f), 0), (uint32_t)-3);
    assert_int_equal(of_bits(FLOATS("cvt.rpi.u32.f32 %r9, %f0;"), bits_of(2.1f), 0), 3);
    assert_int_equal(of_bits(FLOATS("cvt.rzi.s32.f32 %r9, %f0;"), bits_of(1e20f), 0), 0x7fffffff);
    assert_int_equal(of_bits(FLOATS("cvt.rzi.u32.f32 %r9, %f0;"), bits_of(-5), 0), 0);
    assert_int_equal(of_bits(FLOATS("cvt.rzi.s32.f32 %r9, %f0;"), 0x7fc00000, 0), 0);
    assert_int_equal(of_bits(FLOATS("cvt.f64.f32 %g1, %f0; cvt.rzi.s32.f64 %r9, %g1;"), 0x7fc00000, 0), 0x80000000);
    assert_int_equal(of_bits(FLOAT_TO_FLOAT("cvt.sat.f32.f32 %f7, %f0;"), bits_of(7), 0), bits_of(1));
    assert_int_equal(of_bits(FLOAT_TO_FLOAT("cvt.sat.f32.f32 %f7, %f0;"), 0x7fc00000, 0), 0);
    assert_int_equal(of_bits(FLOAT_TO_FLOAT("cvt.rni.f32.f32 %f7, %f0;"), bits_of(3.5f), 0), bits_of(4));
    assert_int_equal(of_bits(INTEGERS("cvt.s32.s8 %r9, %r0;"), 0x1ff, 0), 0xffffffff);
    assert_int_equal(of_bits(INTEGERS("cvt.sat.s8.s32 %r9, %r0;"), (uint32_t)-1000, 0), (uint32_t)-128);
    assert_int_equal(of_bits(INTEGERS("cvt.rn.f32.u32 %f7, %r0; mov.b32 %r9, %f7;"), 0xffffff7f, 0),
                     bits_of(4294967040.0f));
    assert_int_equal(of_bits(INTEGERS("cvt.rz.f32.u32 %f7, %r0; mov.b32 %r9, %f7;"), 0xffffffff, 0),
                     bits_of(4294967040.0f));
}

static void functions_are_called_with_parameters(void **state)
{
    static const char *const text =
        PTX_HEAD ".func (.param .b32 ret) twice(.param .b32 x)\n{\n.reg .b32 %r<3>;\nld.param.u32 %r1, [x];\n"
                 "add.u32 %r2, %r1, %r1;\nst.param.b32 [ret+0], %r2;\nret;\n}\n" PTX_ENTRY
                 "setp.lt.u32 %p1, %tid, 3; @%p1 bra on; add.u32 %tid, %tid, 100;"
                 "{ .param .b32 a; st.param.b32 [a+0], %tid; .param .b32 y; call.uni (y), twice, (a); ld.param.b32 "
                 "%tid, [y+0]; }"
                 "on: st.global.u32 [%mine], %tid;\nret;\n}\n";
    (void)state;
    must_run(text, 6);
    assert_int_equal(words[2], 2);
    assert_int_equal(words[3], 206);
    assert_int_equal(words[5], 210);
}

static void lanes_that_parted_come_together(void **state)
{
    static const char *const text = PTX_KERNEL("mov.u32 %r1, 0; mov.u32 %r2, 0;"
                                               "again: add.u32 %r1, %r1, 2; setp.lt.u32 %p1, %r1, %tid; @%p1 bra again;"
                                               "activemask.b32 %r3; popc.b32 %r3, %r3; st.global.u32 [%mine], %r3;"
                                               "st.global.u32 [%mine+256], %r1;");
    (void)state;
    must_run(text, 20);
    assert_int_equal(words[0], 20);
    assert_int_equal(words[64 + 19], 20);
    assert_int_equal(words[64 + 18], 18);
}

static void generic_addresses_find_their_space(void **state)
{
    static const char *const text =
        PTX_KERNEL("mov.u64 %d1, dynamic; cvta.shared.u64 %d2, %d1; st.u32 [%d2], 11; ld.shared.u32 %r1, [%d1]; st.u32 "
                   "[%out], %r1;"
                   ".local .align 4 .b8 own[4]; mov.u64 %d3, own; cvta.local.u64 %d4, %d3; st.u32 [%d4], 12;"
                   "cvta.to.local.u64 %d5, %d4; ld.local.u32 %r2, [%d5]; st.global.u32 [%out+4], %r2;");
    (void)state;
    must_run(text, 1);
    assert_int_equal(words[0], 11);
    assert_int_equal(words[1], 12);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(integers_wrap_shift_and_divide),
        cmocka_unit_test(bits_are_picked),
        cmocka_unit_test(vectors_are_packed_lowest_first),
        cmocka_unit_test(predicates_are_set_and_joined),
        cmocka_unit_test(floats_round_as_asked),
        cmocka_unit_test(halves_round_ties_to_even),
        cmocka_unit_test(conversions_clamp),
        cmocka_unit_test(functions_are_called_with_parameters),
        cmocka_unit_test(lanes_that_parted_come_together),
        cmocka_unit_test(generic_addresses_find_their_space),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
