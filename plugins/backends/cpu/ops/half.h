/*
 * half.h - bf16 and f16 to f32 and back, rounded to nearest with ties to even; values too large for
 * f16 (65520 and more) become infinite. Uses F16C instructions if compiled in, else f32 arithmetic
 * that gives the same bits and vectorises.
 */
#ifndef CPU_OPS_HALF_H
#define CPU_OPS_HALF_H
#include "vmath.h"
#ifdef __F16C__
#include <immintrin.h>
#endif

ALWAYS_INLINE bool half_is(uint32_t dtype)
{
    return dtype == NRL_DTYPE_BF16 || dtype == NRL_DTYPE_F16;
}

/* ---- bf16: the upper half of an f32 ---- */

ALWAYS_INLINE uint16_t bf16_round(float x)
{
    uint32_t u = to_bits(x);
    uint32_t rounded = (u + 0x7FFFu + (u >> 16 & 1)) >> 16; /* to nearest, ties to even */
    return (uint16_t)(x != x ? (u >> 16 | 0x40) : rounded);
}

ALWAYS_INLINE float bf16_widen(uint16_t x)
{
    return from_bits((uint32_t)x << 16);
}

/* ---- f16: 1 sign, 5 exponent (bias 15), 10 fraction ---- */

/* A product with 2^112 changes the exponent's bias from 15 to 127, also for subnormals. */
ALWAYS_INLINE float f16_widen(uint16_t x)
{
    uint32_t sign = (uint32_t)(x & 0x8000u) << 16, rest = (uint32_t)(x & 0x7FFFu) << 13;
    uint32_t finite = to_bits(from_bits(rest) * 0x1p112f);
    return from_bits(sign | ((x & 0x7C00u) == 0x7C00u ? rest | 0x7F800000u : finite));
}

/* Below 2^-14, adding 0.5 rounds to multiples of 2^-24, the unit of f16's subnormals. */
ALWAYS_INLINE uint16_t f16_round(float x)
{
    uint32_t u = to_bits(x), sign = u >> 16 & 0x8000u;
    u &= 0x7FFFFFFFu;
    uint32_t small = to_bits(from_bits(u) + 0.5f) - 0x3F000000u;
    uint32_t normal = (u - (112u << 23) + 0xFFFu + (u >> 13 & 1)) >> 13;
    uint32_t special = u > 0x7F800000u ? 0x7E00u | (u >> 13 & 0x3FFu) : 0x7C00u;
    uint32_t y = u < 0x38800000u ? small : u < 0x477FF000u ? normal : special;
    return (uint16_t)(sign | y);
}

/* ---- either ---- */

ALWAYS_INLINE float half_widen(uint32_t dtype, uint16_t x)
{
    return dtype == NRL_DTYPE_F16 ? f16_widen(x) : bf16_widen(x);
}

ALWAYS_INLINE uint16_t half_round(uint32_t dtype, float x)
{
    return dtype == NRL_DTYPE_F16 ? f16_round(x) : bf16_round(x);
}

/* Converts elements eight at a time; returns how many. The caller converts the rest. */
static inline int64_t f16_to_f32_eights(const uint16_t *from, float *to, int64_t n)
{
    int64_t i = 0;
#ifdef __F16C__
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128((const void *)(from + i))));
#else
    (void)from, (void)to, (void)n;
#endif
    return i;
}

static inline int64_t f32_to_f16_eights(const float *from, uint16_t *to, int64_t n)
{
    int64_t i = 0;
#ifdef __F16C__
    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128((void *)(to + i), _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
#else
    (void)from, (void)to, (void)n;
#endif
    return i;
}

static inline void half_to_f32(uint32_t dtype, const uint16_t *from, float *to, int64_t n)
{
    if (dtype != NRL_DTYPE_F16) {
        SIMD
        for (int64_t i = 0; i < n; i++)
            to[i] = bf16_widen(from[i]);
        return;
    }
    int64_t done = f16_to_f32_eights(from, to, n);
    SIMD
    for (int64_t i = done; i < n; i++)
        to[i] = f16_widen(from[i]);
}

static inline void f32_to_half(uint32_t dtype, const float *from, uint16_t *to, int64_t n)
{
    if (dtype != NRL_DTYPE_F16) {
        SIMD
        for (int64_t i = 0; i < n; i++)
            to[i] = bf16_round(from[i]);
        return;
    }
    int64_t done = f32_to_f16_eights(from, to, n);
    SIMD
    for (int64_t i = done; i < n; i++)
        to[i] = f16_round(from[i]);
}

#endif
