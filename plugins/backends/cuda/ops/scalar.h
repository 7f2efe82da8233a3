/*
 * scalar.h - one value of any dtype, to and from f32 or double.
 */
#ifndef CUDA_OPS_SCALAR_H
#define CUDA_OPS_SCALAR_H
#include "kernel.h"
#include <string.h>

BOTH float float_of_bits(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

BOTH uint32_t bits_of_float(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

BOTH float bf16_widen(uint16_t x)
{
    return float_of_bits((uint32_t)x << 16);
}

/* Rounds to nearest, ties to even. */
BOTH uint16_t bf16_round(float x)
{
#ifdef __CUDA_ARCH__
    uint16_t y;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y) : "f"(x));
    return y;
#else
    uint32_t u = bits_of_float(x);
    uint32_t rounded = (u + 0x7FFFu + (u >> 16 & 1)) >> 16;
    return (uint16_t)(x != x ? (u >> 16 | 0x40) : rounded);
#endif
}

/* split16 in nrl/param.h: the upper half is rounded to nearest, ties away from zero; the lower half undoes
 * the rounding. A NaN becomes the quiet NaN of its sign, which rounding cannot turn into another value. */
BOTH uint32_t split16_bits(float x)
{
    uint32_t u = bits_of_float(x);
    return (u & 0x7FFFFFFFu) > 0x7F800000u ? (u & 0x80000000u) | 0x7FC00000u : u;
}

BOTH uint16_t split16_high(uint32_t bits)
{
    return (uint16_t)((bits + 0x8000u) >> 16);
}

BOTH float split16_join(uint16_t high, uint16_t low)
{
    return float_of_bits(((uint32_t)high << 16) + (uint32_t)(int32_t)(int16_t)low);
}

BOTH float f16_widen(uint16_t x)
{
#ifdef __CUDA_ARCH__
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x));
    return y;
#else
    uint32_t sign = (uint32_t)(x & 0x8000) << 16, rest = x & 0x7FFF;
    if (rest >= 0x7C00) return float_of_bits(sign | 0x7F800000u | (rest & 0x3FF) << 13);
    float magnitude = rest >= 0x400 ? float_of_bits((rest << 13) + (112u << 23))
                                    : (float)rest * 5.9604644775390625e-8f; /* denormal: 2^-24 */
    return sign ? -magnitude : magnitude;
#endif
}

BOTH uint16_t f16_round(float x)
{
#ifdef __CUDA_ARCH__
    uint16_t y;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(x));
    return y;
#else
    uint32_t u = bits_of_float(x), sign = u >> 16 & 0x8000, rest = u & 0x7FFFFFFFu;
    if (rest > 0x7F800000u) return (uint16_t)(sign | 0x7E00);
    if (rest >= 0x477FF000u) return (uint16_t)(sign | 0x7C00); /* rounds to more than 65504 */
    if (rest < 0x38800000u) { /* denormal: adding 1/2 leaves x / 2^-24, rounded, in the lowest bits */
        uint32_t shifted = bits_of_float(float_of_bits(rest) + 0.5f);
        return (uint16_t)(sign | (shifted - 0x3F000000u));
    }
    uint32_t rounded = rest + 0xFFFu + (rest >> 13 & 1);
    return (uint16_t)(sign | (rounded - (112u << 23)) >> 13);
#endif
}

/* ---- element i of an array; kernels compute on f32, bf16 and f16 ---- */

BOTH bool is_compute_dtype(uint32_t dtype)
{
    return dtype == NRL_DTYPE_F32 || dtype == NRL_DTYPE_BF16 || dtype == NRL_DTYPE_F16;
}

BOTH float scalar_load(const void *data, uint32_t dtype, int64_t i)
{
    if (dtype == NRL_DTYPE_F32) return ((const float *)data)[i];
    uint16_t half = ((const uint16_t *)data)[i];
    return dtype == NRL_DTYPE_BF16 ? bf16_widen(half) : f16_widen(half);
}

BOTH void scalar_store(void *data, uint32_t dtype, int64_t i, float value)
{
    if (dtype == NRL_DTYPE_F32)
        ((float *)data)[i] = value;
    else
        ((uint16_t *)data)[i] = dtype == NRL_DTYPE_BF16 ? bf16_round(value) : f16_round(value);
}

/* Any dtype, through double: only for dtypes that kernels do not compute on. */
BOTH double scalar_load_any(const void *data, uint32_t dtype, int64_t i)
{
    switch (dtype) {
    case NRL_DTYPE_F64:
        return ((const double *)data)[i];
    case NRL_DTYPE_I32:
        return ((const int32_t *)data)[i];
    case NRL_DTYPE_I64:
        return (double)((const int64_t *)data)[i];
    case NRL_DTYPE_U8:
        return ((const uint8_t *)data)[i];
    default:
        return scalar_load(data, dtype, i);
    }
}

BOTH void scalar_store_any(void *data, uint32_t dtype, int64_t i, double value)
{
    switch (dtype) {
    case NRL_DTYPE_F64:
        ((double *)data)[i] = value;
        break;
    case NRL_DTYPE_I32:
        ((int32_t *)data)[i] = (int32_t)value;
        break;
    case NRL_DTYPE_I64:
        ((int64_t *)data)[i] = (int64_t)value;
        break;
    case NRL_DTYPE_U8:
        ((uint8_t *)data)[i] = (uint8_t)value;
        break;
    default:
        scalar_store(data, dtype, i, (float)value);
        break;
    }
}

#endif
