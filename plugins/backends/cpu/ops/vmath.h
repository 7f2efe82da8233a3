/*
 * vmath.h - exp, log, erf and related functions without branches or calls, so that loops over them
 * vectorise. Errors are about 1 ulp of f32 unless stated otherwise; NaN gives NaN, infinities give
 * their limits. Polynomials are minimax fits (weighted least squares, reweighted to level the error)
 * of the functions named in the comments.
 */
#ifndef CPU_OPS_VMATH_H
#define CPU_OPS_VMATH_H
#include "isa.h"

ALWAYS_INLINE float from_bits(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

ALWAYS_INLINE uint32_t to_bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

#define LOG2_E 1.44269504f
#define LN2_HIGH 0.693359375f /* few bits: n * LN2_HIGH is exact */
#define LN2_LOW -2.12194440e-4f
#define ROUND_MAGIC 12582912.0f /* 1.5 * 2^23: adding it rounds to an integer */

/* x = n ln 2 + r, |r| <= ln 2 / 2; n also as an integer. */
ALWAYS_INLINE float exp_split(float x, float *n, int32_t *n_int)
{
    float shifted = x * LOG2_E + ROUND_MAGIC;
    *n_int = (int32_t)(to_bits(shifted) - 0x4B400000u);
    *n = shifted - ROUND_MAGIC;
    return (x - *n * LN2_HIGH) - *n * LN2_LOW;
}

/* (exp(r) - 1 - r) / r^2 */
ALWAYS_INLINE float exp_tail(float r)
{
    float p = 1.38131e-3f;
    p = p * r + 8.36942e-3f;
    p = p * r + 4.166846e-2f;
    p = p * r + 0.16666515f;
    return p * r + 0.49999993f;
}

ALWAYS_INLINE float exp2_int(int32_t n)
{
    return from_bits((uint32_t)(n + 127) << 23);
}

ALWAYS_INLINE float v_exp(float x)
{
    float n;
    int32_t i;
    x = x < -104.0f ? -104.0f : x;
    x = x > 89.0f ? 89.0f : x;
    float r = exp_split(x, &n, &i);
    float p = 1.0f + (r + r * r * exp_tail(r));
    int32_t half = i >> 1; /* in two steps, so that results may be denormal or infinite */
    return p * exp2_int(half) * exp2_int(i - half);
}

/* For x <= 88; denormal results are flushed to 0. */
ALWAYS_INLINE float v_exp_flush(float x)
{
    float n;
    int32_t i;
    float r = exp_split(x < -88.0f ? -88.0f : x, &n, &i);
    float p = (1.0f + (r + r * r * exp_tail(r))) * exp2_int(i);
    return x < -87.0f ? 0.0f : p;
}

ALWAYS_INLINE float v_expm1(float x)
{
    float n;
    int32_t i;
    float c = x < -20.0f ? -20.0f : x;
    c = c > 89.0f ? 89.0f : c;
    float r = exp_split(c, &n, &i);
    float p = 1.99150311e-4f;
    p = p * r + 1.39420599e-3f;
    p = p * r + 8.33327172e-3f;
    p = p * r + 4.16663419e-2f;
    p = p * r + 0.166666668f;
    p = p * r + 0.5f;
    p = r + r * r * p;
    /* 2^n p + (2^n - 1), with the power in two factors because it may be 2^128 */
    int32_t half = i >> 1;
    float s = exp2_int(half), t = exp2_int(i - half);
    float scale = s * t;
    float y = i > 120 ? (p + 1.0f) * s * t : p * scale + (scale - 1.0f);
    return i == 0 ? p : y;
}

/* log(1 + f) = f - f^2/2 + f^3 P(f), sqrt(1/2) - 1 <= f <= sqrt 2 - 1 */
ALWAYS_INLINE float log_poly(float f)
{
    float p = 6.91536798e-2f;
    p = p * f - 0.117898077f;
    p = p * f + 0.118729703f;
    p = p * f - 0.123843485f;
    p = p * f + 0.142186581f;
    p = p * f - 0.166692508f;
    p = p * f + 0.200022266f;
    p = p * f - 0.249999866f;
    return p * f + 0.333333104f;
}

ALWAYS_INLINE float v_log(float x)
{
    bool denormal = x < 1.17549435e-38f;
    float y = denormal ? x * 8388608.0f : x;
    /* exponent so that the fraction lies in [sqrt(1/2), sqrt 2) */
    int32_t e = (int32_t)((to_bits(y) - 0x3F3504F3u)) >> 23;
    float f = from_bits(to_bits(y) - ((uint32_t)e << 23)) - 1.0f;
    float n = (float)e - (denormal ? 23.0f : 0.0f);
    float f2 = f * f;
    float small = f * f2 * log_poly(f) + n * LN2_LOW - 0.5f * f2;
    float result = (small + f) + n * LN2_HIGH;
    result = x == 0.0f ? -INFINITY : result;
    result = x < 0.0f ? NAN : result;
    return x > 3.40282347e+38f || x != x ? x : result;
}

/* log(1 + x): the factor x / ((1 + x) - 1) corrects the rounding of 1 + x. */
ALWAYS_INLINE float v_log1p(float x)
{
    float u = 1.0f + x;
    float d = u - 1.0f;
    float scaled = v_log(u) * (x / d);
    float y = d == 0.0f ? x : scaled;
    return u > 3.40282347e+38f ? u : u == 0.0f ? -INFINITY : y;
}

ALWAYS_INLINE float v_sigmoid(float x)
{
    return 1.0f / (1.0f + v_exp(-x));
}

ALWAYS_INLINE float v_tanh(float x)
{
    float t = x > 10.0f ? 10.0f : x;
    t = t < -10.0f ? -10.0f : t;
    float e = v_expm1(2.0f * t);
    return e / (e + 2.0f);
}

ALWAYS_INLINE float v_softplus(float x)
{
    return (x > 0.0f ? x : 0.0f) + v_log1p(v_exp(x > 0.0f ? -x : x));
}

/* |x| < 1: x P(x^2); beyond: 1 - exp(-t P(t)), t = |x|. */
ALWAYS_INLINE float v_erf(float x)
{
    float s = x * x;
    float p = 7.88911952e-5f;
    p = p * s - 8.02084128e-4f;
    p = p * s + 5.18953534e-3f;
    p = p * s - 2.68544446e-2f;
    p = p * s + 0.112836002f;
    p = p * s - 0.376126271f;
    p = p * s + 1.12837917f;
    float t = x < 0.0f ? -x : x;
    t = t > 4.0f ? 4.0f : t;
    float q = 3.70236733e-6f;
    q = q * t - 3.02735898e-5f;
    q = q * t - 1.29000464e-4f;
    q = q * t + 3.15389803e-3f;
    q = q * t - 2.30439993e-2f;
    q = q * t + 0.105621613f;
    q = q * t + 0.63543585f;
    q = q * t + 1.12859372f;
    float large = 1.0f - v_exp_flush(-t * q);
    return t < 1.0f ? x * p : x < 0.0f ? -large : x > 0.0f ? large : x;
}

/* x/2 (1 + erf(x / sqrt 2)) */
ALWAYS_INLINE float v_gelu(float x)
{
    return 0.5f * x * (1.0f + v_erf(x * 0.707106781f));
}

/* Phi(x) + x phi(x) */
ALWAYS_INLINE float v_gelu_slope(float x)
{
    return 0.5f * (1.0f + v_erf(x * 0.707106781f)) + x * 0.398942280f * v_exp(-0.5f * x * x);
}

#define GELU_A 0.797884561f /* sqrt(2 / pi) */
#define GELU_B 0.044715f

/* x/2 (1 + tanh u) = x sigmoid(2u), which does not cancel for negative x. */
ALWAYS_INLINE float v_gelu_tanh(float x)
{
    return x * v_sigmoid(2.0f * GELU_A * (x + GELU_B * x * x * x));
}

ALWAYS_INLINE float v_gelu_tanh_slope(float x)
{
    float s = v_sigmoid(2.0f * GELU_A * (x + GELU_B * x * x * x));
    return s + x * s * (1.0f - s) * 2.0f * GELU_A * (1.0f + 3.0f * GELU_B * x * x);
}

ALWAYS_INLINE float v_silu_slope(float x)
{
    float s = v_sigmoid(x);
    return s * (1.0f + x * (1.0f - s));
}

#endif
