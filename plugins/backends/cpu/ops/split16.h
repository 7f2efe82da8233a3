/*
 * split16.h - spans of f32 values as two halves (split16 in nrl/param.h), or rounded to the first half
 * only.
 */
#ifndef CPU_OPS_SPLIT16_H
#define CPU_OPS_SPLIT16_H
#include "span.h"

/* Rounds to nearest, ties away from zero, as nrl/param.h defines; the lower half undoes the rounding. */
ALWAYS_INLINE uint16_t split16_high(uint32_t u)
{
    return (uint16_t)((u + 0x8000u) >> 16);
}

/* The bits of x; a NaN becomes the quiet NaN of its sign, which rounding of the upper half cannot turn
 * into another value. */
ALWAYS_INLINE uint32_t split16_bits(float x)
{
    uint32_t u = to_bits(x);
    return (u & 0x7FFFFFFFu) > 0x7F800000u ? (u & 0x80000000u) | 0x7FC00000u : u;
}

ALWAYS_INLINE float split16_join(uint16_t high, uint16_t low)
{
    return from_bits(((uint32_t)high << 16) + (uint32_t)(int32_t)(int16_t)low);
}

ALWAYS_INLINE void span_split(const float *wide, uint16_t *high, uint16_t *low, int64_t n)
{
    SIMD
    for (int64_t i = 0; i < n; i++) {
        uint32_t u = split16_bits(wide[i]);
        high[i] = split16_high(u);
        low[i] = (uint16_t)u;
    }
}

ALWAYS_INLINE void span_join(const uint16_t *high, const uint16_t *low, float *wide, int64_t n)
{
    SIMD
    for (int64_t i = 0; i < n; i++)
        wide[i] = split16_join(high[i], low[i]);
}

ALWAYS_INLINE void span_round(const float *wide, uint16_t *high, int64_t n)
{
    SIMD
    for (int64_t i = 0; i < n; i++)
        high[i] = split16_high(split16_bits(wide[i]));
}

#endif
