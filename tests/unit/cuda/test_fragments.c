/*
 * test_fragments.c - the emulator's ldmatrix and mma.m16n8k16 compared with NVIDIA's own
 * description of the values of each lane: the layouts of CUTLASS,
 * include/cute/atom/mma_traits_sm80.hpp (SM80_16x8x16) and copy_traits_sm75.hpp (SM75_U32x4_LDSM_N,
 * SM75_U16x8_LDSM_T), copied as numbers.
 *
 * A layout maps (lane % 4, lane / 4, bits of the value's number) to a position by one stride each.
 */
#include "fragments.h"
#include <nrl/tensor.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

typedef struct {
    int lane_low, lane_high, value[3];
} layout;

/* To row + 16 column of the 16 x 16 left operand, row + 8 k of the right one (its n first), row + 16
 * column of the 16 x 8 result. */
static const layout left = {32, 1, {16, 8, 128}};
static const layout right = {16, 1, {8, 64, 0}};
static const layout result = {32, 1, {16, 8, 0}};

static int place(const layout *l, int lane, int value)
{
    int at = lane % 4 * l->lane_low + lane / 4 * l->lane_high;
    for (int bit = 0; bit < 3; bit++)
        at += (value >> bit & 1) * l->value[bit];
    return at;
}

/* 16 bits of small whole numbers, exact in both dtypes. */
static uint16_t encode(uint32_t dtype, int x)
{
    float f = (float)x;
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    if (dtype == NRL_DTYPE_BF16) return (uint16_t)(u >> 16);
    return (uint16_t)((u >> 16 & 0x8000) | (x ? ((u & 0x7fffffff) - (112u << 23)) >> 13 : 0));
}

static uint32_t state_of_random = 5;
static int small(void)
{
    state_of_random = state_of_random * 1664525u + 1013904223u;
    return (int)(state_of_random >> 24) % 9 - 4;
}

static void check_product(uint32_t dtype)
{
    int a[256], b[128];
    _Alignas(16) uint32_t a_registers[32][4] = {{0}}, b_registers[32][2] = {{0}};
    float c[32][4];
    for (int i = 0; i < 256; i++)
        a[i] = small();
    for (int i = 0; i < 128; i++)
        b[i] = small();
    for (int lane = 0; lane < 32; lane++) {
        for (int v = 0; v < 8; v++)
            a_registers[lane][v / 2] |= (uint32_t)encode(dtype, a[place(&left, lane, v)]) << (v % 2 * 16);
        for (int v = 0; v < 4; v++)
            b_registers[lane][v / 2] |= (uint32_t)encode(dtype, b[place(&right, lane, v)]) << (v % 2 * 16);
        for (int v = 0; v < 4; v++)
            c[lane][v] = (float)(100 * v + lane);
    }
    fragment_multiply(dtype, c, a_registers, b_registers);
    for (int lane = 0; lane < 32; lane++)
        for (int v = 0; v < 4; v++) {
            int at = place(&result, lane, v), row = at % 16, column = at / 16, want = 100 * v + lane;
            for (int k = 0; k < 16; k++)
                want += a[row + 16 * k] * b[column + 8 * k];
            assert_int_equal((int)c[lane][v], want);
        }
}

static void products_lie_as_cutlass_has_them(void **state)
{
    (void)state;
    check_product(NRL_DTYPE_BF16);
    check_product(NRL_DTYPE_F16);
}

/* Places in 16-bit numbers of all 32 rows, one after another; a register holds two numbers. */
static void check_load(bool transposed)
{
    _Alignas(16) uint16_t rows[32][8];
    uint32_t to[32][4];
    for (int i = 0; i < 256; i++)
        rows[i / 8][i % 8] = (uint16_t)(1000 + i);
    fragment_load(to, rows, transposed);
    for (int lane = 0; lane < 32; lane++)
        for (int r = 0; r < 4; r++)
            for (int e = 0; e < 2; e++) {
                int bit =
                    transposed ? lane % 4 * 256 + lane / 4 * 16 + e * 128 + r * 1024 : lane * 32 + e * 16 + r * 1024;
                assert_int_equal(to[lane][r] >> (16 * e) & 0xffff, 1000 + bit / 16);
            }
}

static void loads_lie_as_cutlass_has_them(void **state)
{
    (void)state;
    check_load(false);
    check_load(true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_lie_as_cutlass_has_them),
        cmocka_unit_test(loads_lie_as_cutlass_has_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
