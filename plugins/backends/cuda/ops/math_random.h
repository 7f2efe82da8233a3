/*
 * math_random.h - counter-based random numbers, the same bits as in every other backend of nrl: the generator
 * splitmix64, of which 24 bits are used.
 */
#ifndef CUDA_OPS_MATH_RANDOM_H
#define CUDA_OPS_MATH_RANDOM_H
#include "kernel.h"

#define SPLITMIX_STEP 0x9E3779B97F4A7C15u

/* The output of the generator after a state of z. */
BOTH uint64_t math_splitmix(uint64_t z)
{
    z += SPLITMIX_STEP;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

/* The upper 24 bits as a number in [0, 1). */
BOTH float math_unit(uint64_t z)
{
    return (float)(int32_t)(z >> 40) * 5.9604644775390625e-8f; /* 2^-24 */
}

/* In [0, 1). */
BOTH float math_uniform(uint64_t key, uint64_t index)
{
    return math_unit(math_splitmix(key + index * SPLITMIX_STEP));
}

BOTH float math_dropout(float x, float p, float scale, uint64_t key, uint64_t index)
{
    return math_uniform(key, index) < p ? 0.0f : x * scale;
}

#endif
