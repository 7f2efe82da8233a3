/*
 * exact_sum.c - the long accumulator of exact_sum.h.
 */
#include "base/exact_sum.h"
#include <math.h>
#include <string.h>

enum { LOWEST = -352, LANES = 4, CARRY_EVERY = 1 << 20 };

/* The square of a float is exact in double, so a fused multiply-add changes nothing. */
static double chunk_sum(const float *x, int64_t n)
{
    double lanes[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++)
            lanes[k] += (double)x[i + k] * (double)x[i + k];
    for (; i < n; i++)
        lanes[i % LANES] += (double)x[i] * (double)x[i];
    return (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
}

/* Moves what exceeds 32 bits to the next limb. */
static void carry(exact_sum *s)
{
    for (int i = 0; i + 1 < EXACT_LIMBS; i++) {
        s->limbs[i + 1] += s->limbs[i] >> 32;
        s->limbs[i] &= 0xffffffff;
    }
}

/* Squares of floats, and their sums, are zero or from 2^-298 to 2^261: normal doubles. */
static void add(exact_sum *s, double x)
{
    uint64_t bits;
    if (!(x > 0) || x > 0x1p300) {
        if (!(x <= 0x1p300)) s->special += x;
        return;
    }
    memcpy(&bits, &x, sizeof bits);
    uint64_t mantissa = (bits & ((UINT64_C(1) << 52) - 1)) | UINT64_C(1) << 52;
    int at = (int)(bits >> 52) - 1075 - LOWEST;
    unsigned __int128 shifted = (unsigned __int128)mantissa << (at & 31);
    int64_t *limb = s->limbs + (at >> 5);
    limb[0] += (int64_t)((uint64_t)shifted & 0xffffffff);
    limb[1] += (int64_t)((uint64_t)(shifted >> 32) & 0xffffffff);
    limb[2] += (int64_t)(shifted >> 64);
}

void exact_add_squares(exact_sum *s, const float *x, int64_t n)
{
    for (int64_t i = 0, chunk = 1; i < n; i += EXACT_CHUNK, chunk++) {
        add(s, chunk_sum(x + i, n - i < EXACT_CHUNK ? n - i : EXACT_CHUNK));
        if (chunk % CARRY_EVERY == 0) carry(s);
    }
    carry(s);
}

void exact_merge(exact_sum *s, const exact_sum *other)
{
    for (int i = 0; i < EXACT_LIMBS; i++)
        s->limbs[i] += other->limbs[i];
    s->special += other->special;
    carry(s);
}

double exact_value(const exact_sum *s)
{
    double sum = s->special;
    for (int i = 0; i < EXACT_LIMBS; i++)
        sum += ldexp((double)s->limbs[i], 32 * i + LOWEST);
    return sum;
}
