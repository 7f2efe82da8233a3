/*
 * exact_sum.h - sums of squares that do not depend on the order of the terms, nor on how they are divided among ranks.
 *
 * The squares of CHUNK consecutive floats are added in double, in one fixed order; the sums of the chunks are added as
 * integers of 704 bits, without rounding (a long accumulator: Kulisch 1986). So any division of the floats at multiples
 * of CHUNK gives the same sum, bit for bit. Zero-initialise.
 */
#ifndef BASE_EXACT_SUM_H
#define BASE_EXACT_SUM_H
#include <stdint.h>

enum { EXACT_CHUNK = 32, EXACT_LIMBS = 22 };

typedef struct {
    int64_t limbs[EXACT_LIMBS]; /* limb i counts 2^(32 i - 352); below 2^32 except the last */
    double special;             /* sum of the chunks that are not finite, else 0 */
} exact_sum;

/* Adds the squares of n floats. */
void exact_add_squares(exact_sum *s, const float *x, int64_t n);
void exact_merge(exact_sum *s, const exact_sum *other);
double exact_value(const exact_sum *s);

#endif
