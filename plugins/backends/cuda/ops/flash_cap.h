/*
 * flash_cap.h - capped scores: c = cap tanh(s / cap), and their slope dc/ds = 1 - (c / cap)^2.
 */
#ifndef CUDA_OPS_FLASH_CAP_H
#define CUDA_OPS_FLASH_CAP_H
#include "flash.h"
#include "warp.h"

/* A scaled score, capped if there is a cap. */
__device__ __forceinline__ float flash_capped(float s, const flash_params &p)
{
    return p.soft_cap > 0 ? p.soft_cap * tanhf(s / p.soft_cap) : s;
}

/* The slope at a capped score. */
__device__ __forceinline__ float flash_cap_slope(float c, const flash_params &p)
{
    float t = c / p.soft_cap;
    return p.soft_cap > 0 ? 1 - t * t : 1;
}

#endif
