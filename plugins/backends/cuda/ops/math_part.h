/*
 * math_part.h - partial results of a reduction that can be joined: of a sum, a maximum, a log-sum-exp,
 * a sum of squares. Eight values are added in f32, the rest in double.
 */
#ifndef CUDA_OPS_MATH_PART_H
#define CUDA_OPS_MATH_PART_H
#include "pack.h"

enum { PART_SQUARE_SUM = 100 }; /* in addition to nrl_reduction */

typedef struct {
    double sum; /* of values, or of exp(x - max) */
    float max;
} part;

BOTH part part_start()
{
    part p = {0, -INFINITY};
    return p;
}

BOTH bool part_adds(uint32_t op)
{
    return op == NRL_REDUCTION_SUM || op == PART_SQUARE_SUM;
}

/* max that keeps NaN */
BOTH float max_nan(float a, float b)
{
    return a > b || a != a ? a : b;
}

/* Sums of exp(x - max) are kept only with a finite maximum. */
BOTH bool is_infinite(float x)
{
    return x == INFINITY || x == -INFINITY;
}

BOTH part part_join(uint32_t op, part a, part b)
{
    part p = {0, -INFINITY};
    if (part_adds(op)) {
        p.sum = a.sum + b.sum;
        return p;
    }
    p.max = max_nan(a.max, b.max);
    if (op != NRL_REDUCTION_LOG_SUM_EXP || is_infinite(p.max)) return p;
    p.sum =
        (a.max == p.max ? a.sum : a.sum * expf(a.max - p.max)) + (b.max == p.max ? b.sum : b.sum * expf(b.max - p.max));
    return p;
}

/* The part of one value, with which a reduction over rows starts. */
BOTH part part_of(uint32_t op, float x)
{
    part p = {0, -INFINITY};
    if (op == NRL_REDUCTION_SUM)
        p.sum = x;
    else if (op == PART_SQUARE_SUM)
        p.sum = (double)x * x;
    else {
        p.max = x;
        p.sum = is_infinite(x) ? 0 : 1;
    }
    return p;
}

/* Loops cover whole packs, so that packs stay in registers. */
BOTH part part_of_pack(uint32_t op, const pack &v, int n)
{
    part p = {0, -INFINITY};
    float sum = 0;
    if (op == NRL_REDUCTION_SUM) {
        for (int k = 0; k < PACK; k++)
            sum += k < n ? v.v[k] : 0;
        p.sum = sum;
        return p;
    }
    if (op == PART_SQUARE_SUM) {
        for (int k = 0; k < PACK; k++)
            p.sum += k < n ? (double)v.v[k] * v.v[k] : 0;
        return p;
    }
    for (int k = 0; k < PACK; k++)
        p.max = k < n ? max_nan(v.v[k], p.max) : p.max;
    if (op != NRL_REDUCTION_LOG_SUM_EXP || is_infinite(p.max)) return p;
    for (int k = 0; k < PACK; k++)
        sum += k < n ? expf(v.v[k] - p.max) : 0;
    p.sum = sum;
    return p;
}

BOTH double part_value(uint32_t op, part p)
{
    if (part_adds(op)) return p.sum;
    if (op == NRL_REDUCTION_MAX || is_infinite(p.max)) return p.max;
    return p.max + log(p.sum);
}

/* Adds the previous value if the result is not overwritten. */
BOTH double part_add_to(uint32_t op, double old, double value)
{
    if (part_adds(op)) return old + value;
    double high = old > value || old != old ? old : value;
    if (op == NRL_REDUCTION_MAX || high == INFINITY || high == -INFINITY) return high;
    double low = old > value ? value : old;
    return high + log1p(exp(low - high));
}

#endif
