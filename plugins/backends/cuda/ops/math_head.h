/*
 * math_head.h - the arithmetic of the head, one logit at a time: sums over a row in a single pass,
 * with a maximum that may grow, joined in a tree; and the gradient of a logit.
 *
 * With z after soft cap and temperature and e = exp(z - max): sum = sum e, weighted = sum e (z - max),
 * square = sum e^2. Entropy = log sum - weighted / sum, log sum p^2 = log square - 2 log sum.
 */
#ifndef CUDA_OPS_MATH_HEAD_H
#define CUDA_OPS_MATH_HEAD_H
#include "kernel.h"

struct head_sums {
    float max, sum, weighted, square;
    int32_t argmax; /* the smallest index on ties; that of the first NaN if there is one */
};

/* The sums of no logits. */
BOTH head_sums head_nothing()
{
    head_sums s = {-INFINITY, 0, 0, 0, 0x7fffffff};
    return s;
}

BOTH float head_transform(float z, float cap, float scale)
{
    return cap != 0 ? scale * cap * tanhf(z / cap) : scale * z;
}

/* Rescales the sums to a larger maximum; exp(-inf - -inf) of an empty sum would be NaN. */
BOTH void head_raise(head_sums *s, float max)
{
    if (s->sum != 0 || s->sum != s->sum) {
        float d = s->max - max, e = expf(d);
        s->weighted = e > 0 ? e * (s->weighted + d * s->sum) : e;
        s->sum *= e;
        s->square *= e * e;
    }
    s->max = max;
}

/* Columns must come in ascending order. */
BOTH void head_add(head_sums *s, float z, int32_t column)
{
    if (z > s->max || (z != z && s->max == s->max)) {
        head_raise(s, z);
        s->argmax = column;
    } else if (s->argmax == 0x7fffffff) {
        s->argmax = column; /* -inf first */
    }
    if (z == -INFINITY) return; /* contributes nothing, whatever the maximum */
    float d = z - s->max, e = expf(d);
    s->sum += e;
    s->weighted += e > 0 ? e * d : e;
    s->square += e * e;
}

/* Joins the sums of two sets of columns of a row, in any order. */
BOTH head_sums head_join(head_sums a, head_sums b)
{
    bool a_bad = a.max != a.max, b_bad = b.max != b.max;
    bool b_wins = a_bad || b_bad ? (a_bad && b_bad ? b.argmax < a.argmax : b_bad)
                                 : b.max > a.max || (b.max == a.max && b.argmax < a.argmax);
    head_sums top = b_wins ? b : a, rest = b_wins ? a : b;
    head_raise(&rest, top.max);
    top.sum += rest.sum;
    top.weighted += rest.weighted;
    top.square += rest.square;
    return top;
}

/* The few results of a row are in double, because logp is a difference of large numbers. */
BOTH double head_log_sum(const head_sums *s)
{
    return log((double)s->sum);
}

/* dz = -p (dlogp + dentropy (z - lse + entropy)), through the slopes of temperature and soft cap. */
BOTH float head_slope(float z, float lse, float dlogp, float dentropy, float entropy, float cap, float scale)
{
    float u = z - lse, p = expf(u), t = cap != 0 ? z / (cap * scale) : 0;
    float h = p > 0 ? p * (u + entropy) : p;
    float weighted = dentropy != 0 ? dentropy * h : 0;
    return -(dlogp * p + weighted) * scale * (1 - t * t);
}

/* The additional gradient of the target's logit. */
BOTH float head_target_slope(float z, float dlogp, float cap, float scale)
{
    float t = cap != 0 ? z / (cap * scale) : 0;
    return dlogp * scale * (1 - t * t);
}

#endif
