/*
 * math_unary.h - functions of one value and their derivatives. The formulas avoid cancellation and
 * overflow: gelu_tanh is x sigmoid(2u), softplus max(x, 0) + log1p(exp(-|x|)).
 */
#ifndef CUDA_OPS_MATH_UNARY_H
#define CUDA_OPS_MATH_UNARY_H
#include "kernel.h"

BOTH float math_sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

BOTH float math_softplus(float x)
{
    return (x > 0.0f ? x : x != x ? x : 0.0f) + log1pf(expf(-fabsf(x)));
}

/* x/2 (1 + erf(x / sqrt 2)) */
BOTH float math_gelu(float x)
{
    return 0.5f * x * (1.0f + erff(x * 0.707106781f));
}

/* Phi(x) + x phi(x) */
BOTH float math_gelu_slope(float x)
{
    return 0.5f * (1.0f + erff(x * 0.707106781f)) + x * 0.398942280f * expf(-0.5f * x * x);
}

/* sigmoid(2u), u = sqrt(2 / pi) (x + 0.044715 x^3) */
BOTH float math_gelu_gate(float x)
{
    return math_sigmoid(2.0f * 0.797884561f * (x + 0.044715f * x * x * x));
}

BOTH float math_gelu_tanh(float x)
{
    return x * math_gelu_gate(x);
}

BOTH float math_gelu_tanh_slope(float x)
{
    float s = math_gelu_gate(x);
    float du = 2.0f * 0.797884561f * (1.0f + 3.0f * 0.044715f * x * x);
    float rest = s * (1.0f - s);
    return s + (rest == 0.0f ? 0.0f : x * rest * du);
}

BOTH float math_silu(float x)
{
    return x * math_sigmoid(x);
}

BOTH float math_silu_slope(float x)
{
    float s = math_sigmoid(x);
    return s * (1.0f + x * (1.0f - s));
}

BOTH_CALL float math_pow(float x, double exponent)
{
    return (float)pow((double)x, exponent);
}

BOTH_CALL float math_pow_slope(float x, double exponent)
{
    return exponent == 0 ? 0.0f : (float)(exponent * pow((double)x, exponent - 1));
}

BOTH float math_unary(uint32_t op, float v, double alpha, double beta)
{
    float al = (float)alpha, be = (float)beta;
    /* clang-format off */
    switch (op) {
    case NRL_UNARY_NEG: return -v;
    case NRL_UNARY_EXP: return expf(v);
    case NRL_UNARY_LOG: return logf(v);
    case NRL_UNARY_SQRT: return sqrtf(v);
    case NRL_UNARY_SQUARE: return v * v;
    case NRL_UNARY_RECIPROCAL: return 1.0f / v;
    case NRL_UNARY_ABS: return fabsf(v);
    case NRL_UNARY_RELU: return v < 0.0f ? 0.0f : v;
    case NRL_UNARY_SIGMOID: return math_sigmoid(v);
    case NRL_UNARY_LOG_SIGMOID: return -math_softplus(-v);
    case NRL_UNARY_SOFTPLUS: return math_softplus(v);
    case NRL_UNARY_TANH: return tanhf(v);
    case NRL_UNARY_SILU: return math_silu(v);
    case NRL_UNARY_GELU: return math_gelu(v);
    case NRL_UNARY_GELU_TANH: return math_gelu_tanh(v);
    case NRL_UNARY_EXPM1: return expm1f(v);
    case NRL_UNARY_LOG1P: return log1pf(v);
    case NRL_UNARY_AFFINE: return al * v + be;
    case NRL_UNARY_CLAMP: return v < al ? al : v > be ? be : v;
    case NRL_UNARY_POW: return math_pow(v, alpha);
    default: return v;
    }
    /* clang-format on */
}

/* Functions whose derivative is computed from the result. */
BOTH bool math_unary_reads_result(uint32_t op)
{
    return op == NRL_UNARY_EXP || op == NRL_UNARY_SQRT || op == NRL_UNARY_RECIPROCAL || op == NRL_UNARY_SIGMOID ||
           op == NRL_UNARY_TANH;
}

/* g: the incoming gradient; f = f(v), if math_unary_reads_result. */
BOTH float math_unary_grad(uint32_t op, float v, float f, float g, double alpha, double beta)
{
    float al = (float)alpha, be = (float)beta;
    /* clang-format off */
    switch (op) {
    case NRL_UNARY_NEG: return -g;
    case NRL_UNARY_EXP: return g * f;
    case NRL_UNARY_LOG: return g / v;
    case NRL_UNARY_SQRT: return 0.5f * g / f;
    case NRL_UNARY_SQUARE: return 2.0f * v * g;
    case NRL_UNARY_RECIPROCAL: return -g * f * f;
    case NRL_UNARY_ABS: return v > 0.0f ? g : v < 0.0f ? -g : v * g;
    case NRL_UNARY_RELU: return v <= 0.0f ? 0.0f : g;
    case NRL_UNARY_SIGMOID: return g * f * (1.0f - f);
    case NRL_UNARY_LOG_SIGMOID: return g * math_sigmoid(-v);
    case NRL_UNARY_SOFTPLUS: return g * math_sigmoid(v);
    case NRL_UNARY_TANH: return g * (1.0f - f * f);
    case NRL_UNARY_SILU: return g * math_silu_slope(v);
    case NRL_UNARY_GELU: return g * math_gelu_slope(v);
    case NRL_UNARY_GELU_TANH: return g * math_gelu_tanh_slope(v);
    case NRL_UNARY_EXPM1: return g * expf(v);
    case NRL_UNARY_LOG1P: return g / (1.0f + v);
    case NRL_UNARY_AFFINE: return al * g;
    case NRL_UNARY_CLAMP: return v < al || v > be ? 0.0f : g;
    case NRL_UNARY_POW: return g * math_pow_slope(v, alpha);
    default: return g;
    }
    /* clang-format on */
}

#endif
