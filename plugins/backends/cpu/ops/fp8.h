/*
 * fp8.h - numbers rounded to 8 bits, as nrl_gemm_fp8 of nrl/backend.h defines it. Rounded numbers stay f32.
 */
#ifndef CPU_OPS_FP8_H
#define CPU_OPS_FP8_H
#include "vmath.h"

typedef struct {
    float largest, least_normal;
    float to_units;     /* adding it rounds a number below least_normal to multiples of the smallest one */
    uint32_t half_unit; /* of the last fraction bit that stays, less 1, among the bits of an f32 */
    int unit_bit;
    int exponent; /* of `largest`, which is 1.75 times a power of two */
} fp8_format;

static const fp8_format fp8_formats[] = {
    [NRL_FP8_E4M3] = {448, 0x1p-6f, 0x1p14f, (1 << 19) - 1, 20, 8},
    [NRL_FP8_E5M2] = {57344, 0x1p-14f, 0x1p7f, (1 << 20) - 1, 21, 15},
};

/* The bits of |x|; those of NaN are larger than those of infinity, and these than all others. */
ALWAYS_INLINE uint32_t fp8_magnitude(float x)
{
    return to_bits(x) & 0x7FFFFFFFu;
}

/* q / scale; scale and inverse are powers of two, and their product is 1. */
ALWAYS_INLINE float fp8_round(const fp8_format *f, float x, float scale, float inverse)
{
    const float scaled = from_bits(fp8_magnitude(x)) * scale;
    const float y = scaled < f->largest ? scaled : f->largest;
    const uint32_t u = to_bits(y);
    const float normal = from_bits((u + f->half_unit + (u >> f->unit_bit & 1)) >> f->unit_bit << f->unit_bit);
    const float small = (y + f->to_units) - f->to_units;
    const uint32_t q = to_bits((y < f->least_normal ? small : normal) * inverse) | (to_bits(x) & 0x80000000u);
    return fp8_magnitude(x) >= 0x7F800000u ? NAN : from_bits(q);
}

/* The largest power of two from 2^-62 to 2^62 for which no x scale is beyond the largest number; magnitude: the largest
 * of |x|. A fraction above 1.75 carries into the exponent. */
ALWAYS_INLINE float fp8_scale(const fp8_format *f, uint32_t magnitude)
{
    const int exponent = f->exponent + 127 - (int)((magnitude + 0x1FFFFFu) >> 23);
    return ldexpf(1, exponent < -62 ? -62 : exponent > 62 ? 62 : exponent);
}

#endif
