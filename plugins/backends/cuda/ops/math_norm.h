/*
 * math_norm.h - RMS and layer normalisation of one element, with h = (x - mean) rstd:
 * y = h w + b;  dx = rstd (g - mean(g) - h mean(g h)) with g = dy w, mean(g) omitted for rms.
 */
#ifndef CUDA_OPS_MATH_NORM_H
#define CUDA_OPS_MATH_NORM_H
#include "kernel.h"

/* 1 / sqrt(mean of squares + eps), in f32 as PyTorch: every thread of a row computes it, and GPUs for graphics have few
 * f64 units. */
BOTH float math_rstd(float square_sum, int64_t n, double eps)
{
    return 1.0f / sqrtf(square_sum / (float)n + (float)eps);
}

BOTH float math_norm(float x, float mean, float rstd, float w, float b)
{
    return (x - mean) * rstd * w + b;
}

BOTH float math_norm_grad(float x, float mean, float rstd, float g, float mean_g, float mean_gh)
{
    return rstd * (g - mean_g - (x - mean) * rstd * mean_gh);
}

#endif
