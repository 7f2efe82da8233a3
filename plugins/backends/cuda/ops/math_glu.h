/*
 * math_glu.h - gated units y = act(gate) up: silu (Shazeer 2020) and gelu_tanh.
 */
#ifndef CUDA_OPS_MATH_GLU_H
#define CUDA_OPS_MATH_GLU_H
#include "math_unary.h"

BOTH float math_glu(uint32_t act, float gate, float up)
{
    return (act == NRL_UNARY_SILU ? math_silu(gate) : math_gelu_tanh(gate)) * up;
}

BOTH void math_glu_grad(uint32_t act, float gate, float up, float dy, float *dgate, float *dup)
{
    if (act == NRL_UNARY_SILU) {
        float s = math_sigmoid(gate);
        *dup = dy * gate * s;
        *dgate = dy * up * s * (1.0f + gate * (1.0f - s));
    } else {
        *dup = dy * math_gelu_tanh(gate);
        *dgate = dy * up * math_gelu_tanh_slope(gate);
    }
}

#endif
