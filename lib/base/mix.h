/*
 * mix.h - the finaliser of splitmix64 (Steele, Lea, Flood 2014): unrelated numbers from consecutive ones. The order of
 * data, initial weights and dropout masks are defined by it, so it never changes.
 */
#ifndef BASE_MIX_H
#define BASE_MIX_H
#include <stdint.h>

#define MIX_GOLDEN 0x9E3779B97F4A7C15u /* 2^64 / the golden ratio: the step of splitmix64 */

static inline __attribute__((always_inline)) uint64_t mix64(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

#endif
