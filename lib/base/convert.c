/*
 * convert.c - scalar loops that compilers vectorize where the format allows it.
 */
#include "base/convert.h"
#include <string.h>

bool convert_known(nrl_dtype dtype)
{
    return dtype == NRL_DTYPE_F32 || dtype == NRL_DTYPE_BF16 || dtype == NRL_DTYPE_F16 || dtype == NRL_DTYPE_F64;
}

static float from_bits(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static uint32_t to_bits(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

/* A subnormal half is m * 2^-24: exact in f32. */
static float from_f16(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31, m = h & 1023;
    if (exponent == 31) return from_bits(sign | 0x7F800000u | m << 13);
    if (exponent) return from_bits(sign | (exponent + 112) << 23 | m << 13);
    float f = (float)m * 0x1p-24f;
    return sign ? -f : f;
}

static uint16_t to_bf16(float f)
{
    uint32_t b = to_bits(f);
    if ((b & 0x7FFFFFFFu) > 0x7F800000u) return (uint16_t)(b >> 16 | 0x40); /* stays a NaN */
    return (uint16_t)((b + 0x7FFFu + (b >> 16 & 1)) >> 16);
}

/* Overflow gives infinity, as in IEEE 754. */
static uint16_t to_f16(float f)
{
    uint32_t b = to_bits(f), sign = b >> 16 & 0x8000u, a = b & 0x7FFFFFFFu;
    if (a > 0x7F800000u) return (uint16_t)(sign | 0x7E00u);
    if (a >= 0x477FF000u) return (uint16_t)(sign | 0x7C00u); /* 65520 and above */
    if (a < 0x38800000u) {                   /* below 2^-14 the spacing is 2^-24, the same as near 0.5 */
        float shifted = from_bits(a) + 0.5f; /* the addition rounds */
        return (uint16_t)(sign | (to_bits(shifted) - 0x3F000000u));
    }
    a += 0xFFFu + (a >> 13 & 1);
    return (uint16_t)(sign | (a - 0x38000000u) >> 13);
}

void convert_to_f32(nrl_dtype dtype, const void *from, int64_t n, float *to)
{
    const unsigned char *in = from;
    if (dtype == NRL_DTYPE_F32) {
        memcpy(to, in, (size_t)n * sizeof(float));
    } else if (dtype == NRL_DTYPE_F64) {
        for (int64_t i = 0; i < n; i++) {
            double d;
            memcpy(&d, in + 8 * i, sizeof d);
            to[i] = (float)d;
        }
    } else {
        for (int64_t i = 0; i < n; i++) {
            uint16_t h;
            memcpy(&h, in + 2 * i, sizeof h);
            to[i] = dtype == NRL_DTYPE_BF16 ? from_bits((uint32_t)h << 16) : from_f16(h);
        }
    }
}

void convert_from_f32(nrl_dtype dtype, const float *from, int64_t n, void *to)
{
    uint16_t *half = to;
    if (dtype == NRL_DTYPE_F32) {
        memcpy(to, from, (size_t)n * sizeof(float));
    } else if (dtype == NRL_DTYPE_BF16) {
        for (int64_t i = 0; i < n; i++)
            half[i] = to_bf16(from[i]);
    } else {
        for (int64_t i = 0; i < n; i++)
            half[i] = to_f16(from[i]);
    }
}
