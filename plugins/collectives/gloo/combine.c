/*
 * combine.c - see combine.h. f16 and bf16 are widened, combined in f32 and rounded to nearest even at
 * every hop, as Gloo and PyTorch do. max = a < b ? b : a, min = b < a ? b : a with a the local
 * operand, which fixes the results for NaN and -0. Integers wrap.
 */
#include "combine.h"
#include <nrl/nrl.h>
#include <string.h>

#define PASTE(name, suffix) name##_##suffix
#define EXPAND(name, suffix) PASTE(name, suffix)
#define SIMD _Pragma("omp simd")
#define INLINE static inline __attribute__((always_inline))

typedef uint16_t half_bits;
typedef uint16_t brain_bits;

INLINE float from_bits(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

INLINE uint32_t to_bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

INLINE float widen_brain(brain_bits b)
{
    return from_bits((uint32_t)b << 16);
}

INLINE brain_bits narrow_brain(float f)
{
    uint32_t u = to_bits(f);
    uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    return (brain_bits)((u & 0x7fffffffu) > 0x7f800000u ? 0x7fc0u : rounded);
}

/* Normal numbers: change the exponent's bias from 15 to 127. Denormal numbers: read them as the fraction
 * of 2^-14 (1 + m) and subtract 2^-14. */
INLINE float widen_half(half_bits h)
{
    uint32_t magnitude = (uint32_t)(h & 0x7fffu) << 13;
    uint32_t normal = magnitude + (112u << 23);
    uint32_t special = magnitude + (224u << 23);
    float denormal = from_bits(magnitude + (113u << 23)) - from_bits(113u << 23);
    uint32_t u = magnitude < (1u << 23) ? to_bits(denormal) : normal;
    u = magnitude >= (31u << 23) ? special : u;
    return from_bits(u | (uint32_t)(h & 0x8000u) << 16);
}

/* Denormal results: adding 1/2 (whose unit in the last place is 2^-24) rounds to nearest even. */
INLINE half_bits narrow_half(float f)
{
    uint32_t u = to_bits(f), sign = (u >> 16) & 0x8000u;
    u &= 0x7fffffffu;
    uint32_t denormal = to_bits(from_bits(u) + 0.5f) - to_bits(0.5f);
    uint32_t normal = (u - (112u << 23) + 0xfffu + ((u >> 13) & 1u)) >> 13;
    uint32_t h = u < (113u << 23) ? denormal : normal;
    h = u >= (143u << 23) ? 0x7c00u : h;
    h = u > 0x7f800000u ? 0x7e00u : h;
    return (half_bits)(h | sign);
}

#define SAME(x) (x)
#define DO_SUM(a, b) ((a) + (b))
#define DO_MAX(a, b) ((a) < (b) ? (b) : (a))
#define DO_MIN(a, b) ((b) < (a) ? (b) : (a))
#define DO_PRODUCT(a, b) ((a) * (b))

/* stored: the type in memory; worked: the type of the computation. NOLINTBEGIN(bugprone-macro-parentheses): types */
#define KERNEL(type, op, stored, worked, widen, narrow)                                                                \
    static void type##_##op(void *out, const void *local, const void *received, size_t n)                              \
    {                                                                                                                  \
        stored *o = out;                                                                                               \
        const stored *x = local, *y = received;                                                                        \
        SIMD                                                                                                           \
        for (size_t i = 0; i < n; i++) {                                                                               \
            worked a = widen(x[i]), b = widen(y[i]);                                                                   \
            o[i] = (stored)narrow(DO_##op(a, b));                                                                      \
        }                                                                                                              \
    }
#define KERNELS(type, stored, worked, widen, narrow)                                                                   \
    KERNEL(type, SUM, stored, worked, widen, narrow)                                                                   \
    KERNEL(type, MAX, stored, worked, widen, narrow)                                                                   \
    KERNEL(type, MIN, stored, worked, widen, narrow)                                                                   \
    KERNEL(type, PRODUCT, stored, worked, widen, narrow)
/* Integer sums and products use unsigned types, where overflow is defined and gives the same bits. */
#define KERNELS_INT(type, plain, wrapping)                                                                             \
    KERNEL(type, SUM, wrapping, wrapping, SAME, SAME)                                                                  \
    KERNEL(type, MAX, plain, plain, SAME, SAME)                                                                        \
    KERNEL(type, MIN, plain, plain, SAME, SAME)                                                                        \
    KERNEL(type, PRODUCT, wrapping, wrapping, SAME, SAME)
#define DIVIDE(type, stored, worked, widen, narrow)                                                                    \
    static void type##_divide(void *data, size_t n, double by)                                                         \
    {                                                                                                                  \
        stored *x = data;                                                                                              \
        worked d = (worked)by;                                                                                         \
        SIMD                                                                                                           \
        for (size_t i = 0; i < n; i++)                                                                                 \
            x[i] = (stored)narrow(widen(x[i]) / d);                                                                    \
    }
/* NOLINTEND(bugprone-macro-parentheses) */

KERNELS(f32, float, float, SAME, SAME)
KERNELS(f64, double, double, SAME, SAME)
KERNELS(f16, half_bits, float, widen_half, narrow_half)
KERNELS(bf16, brain_bits, float, widen_brain, narrow_brain)
KERNELS_INT(i32, int32_t, uint32_t)
KERNELS_INT(i64, int64_t, uint64_t)
KERNELS_INT(u8, uint8_t, uint8_t)
DIVIDE(f32, float, float, SAME, SAME)
DIVIDE(f64, double, double, SAME, SAME)
DIVIDE(f16, half_bits, float, widen_half, narrow_half)
DIVIDE(bf16, brain_bits, float, widen_brain, narrow_brain)

#define ROW(type)                                                                                                      \
    [NRL_REDUCE_OP_SUM] = type##_SUM, [NRL_REDUCE_OP_MAX] = type##_MAX, [NRL_REDUCE_OP_MIN] = type##_MIN,              \
    [NRL_REDUCE_OP_PRODUCT] = type##_PRODUCT

const combine_table EXPAND(combine_table, COMBINE_SUFFIX) = {
    .combine =
        {
            [NRL_DTYPE_F32] = {ROW(f32), [NRL_REDUCE_OP_AVERAGE] = f32_SUM},
            [NRL_DTYPE_F64] = {ROW(f64), [NRL_REDUCE_OP_AVERAGE] = f64_SUM},
            [NRL_DTYPE_F16] = {ROW(f16), [NRL_REDUCE_OP_AVERAGE] = f16_SUM},
            [NRL_DTYPE_BF16] = {ROW(bf16), [NRL_REDUCE_OP_AVERAGE] = bf16_SUM},
            [NRL_DTYPE_I32] = {ROW(i32)},
            [NRL_DTYPE_I64] = {ROW(i64)},
            [NRL_DTYPE_U8] = {ROW(u8)},
        },
    .divide = {[NRL_DTYPE_F32] = f32_divide,
               [NRL_DTYPE_F64] = f64_divide,
               [NRL_DTYPE_F16] = f16_divide,
               [NRL_DTYPE_BF16] = bf16_divide},
};
