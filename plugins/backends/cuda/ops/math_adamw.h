/*
 * math_adamw.h - AdamW of one element (Loshchilov and Hutter 2019), as in nrl/optimizer.h:
 *   m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2
 *   w = (1 - lr wd) w - lr / c1 m / (sqrt(v / c2) + eps)    with c = 1 - b^t
 */
#ifndef CUDA_OPS_MATH_ADAMW_H
#define CUDA_OPS_MATH_ADAMW_H
#include "kernel.h"

typedef struct {
    float decay, grad_scale, beta1, rest1, beta2, rest2, step, root2, eps;
} adamw_step;

static inline adamw_step math_adamw_step(const nrl_adamw_args *a)
{
    adamw_step s;
    s.decay = (float)(1 - a->lr * a->weight_decay);
    s.grad_scale = (float)a->grad_scale;
    s.beta1 = (float)a->beta1;
    s.rest1 = (float)(1 - a->beta1);
    s.beta2 = (float)a->beta2;
    s.rest2 = (float)(1 - a->beta2);
    s.step = (float)(a->lr / a->correction1);
    s.root2 = (float)(1 / sqrt(a->correction2));
    s.eps = (float)a->eps;
    return s;
}

/* Where to round is written out, because compilers choose differently in each kernel. */
BOTH void math_adamw(const adamw_step &s, float grad, float *w, float *m, float *v)
{
    float g = grad * s.grad_scale;
    *m = fmaf(s.beta1, *m, s.rest1 * g);
    *v = fmaf(s.beta2, *v, s.rest2 * g * g);
    *w = fmaf(s.decay, *w, -(s.step * *m / fmaf(sqrtf(*v), s.root2, s.eps)));
}

#endif
