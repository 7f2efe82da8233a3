/*
 * math_binary.h - functions of two values and their derivatives. MIN and MAX return NaN if either
 * value is NaN.
 */
#ifndef CUDA_OPS_MATH_BINARY_H
#define CUDA_OPS_MATH_BINARY_H
#include "kernel.h"

BOTH float math_binary(uint32_t op, float u, float v)
{
    /* clang-format off */
    switch (op) {
    case NRL_BINARY_ADD: return u + v;
    case NRL_BINARY_SUB: return u - v;
    case NRL_BINARY_MUL: return u * v;
    case NRL_BINARY_DIV: return u / v;
    case NRL_BINARY_MIN: return u < v || u != u ? u : v;
    case NRL_BINARY_MAX: return u > v || u != u ? u : v;
    default: return u > v ? 1.0f : 0.0f; /* GREATER */
    }
    /* clang-format on */
}

/* The share of g for the smaller (or larger) of two values; equal values get one half each. */
BOTH float math_winner(bool wins, bool equal, float g)
{
    return wins ? g : equal ? 0.5f * g : 0.0f;
}

BOTH void math_binary_grad(uint32_t op, float u, float v, float g, float *da, float *db)
{
    switch (op) {
    case NRL_BINARY_ADD:
        *da = g, *db = g;
        break;
    case NRL_BINARY_SUB:
        *da = g, *db = -g;
        break;
    case NRL_BINARY_MUL:
        *da = g * v, *db = g * u;
        break;
    case NRL_BINARY_DIV:
        *da = g / v, *db = -g * (u / v) / v;
        break;
    case NRL_BINARY_MIN:
        *da = math_winner(u < v, u == v, g), *db = math_winner(u > v, u == v, g);
        break;
    case NRL_BINARY_MAX:
        *da = math_winner(u > v, u == v, g), *db = math_winner(u < v, u == v, g);
        break;
    default:
        *da = *db = 0.0f * g;
        break;
    }
}

#endif
