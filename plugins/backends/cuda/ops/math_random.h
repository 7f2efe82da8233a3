/*
 * math_random.h - counter-based random numbers, the same bits as in every other backend of nrl: the
 * finaliser of splitmix64 on the key and the index of the element, of which 24 bits are used.
 */
#ifndef CUDA_OPS_MATH_RANDOM_H
#define CUDA_OPS_MATH_RANDOM_H
#include "kernel.h"

/* In [0, 1). */
BOTH float math_uniform(uint64_t key, uint64_t index)
{
    uint64_t z = key + (index + 1) * 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    z ^= z >> 31;
    return (float)(int32_t)(z >> 40) * 5.9604644775390625e-8f; /* 2^-24 */
}

BOTH float math_dropout(float x, float p, float scale, uint64_t key, uint64_t index)
{
    return math_uniform(key, index) < p ? 0.0f : x * scale;
}

#endif
