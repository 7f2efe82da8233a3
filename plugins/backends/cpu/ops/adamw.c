/*
 * adamw.c - the whole update of an element in one pass over memory: 28 bytes read and written for
 * an f32 master, 2 more for a bf16 or f16 copy. Formula in nrl/optimizer.h.
 */
#include "span.h"

typedef struct {
    const nrl_adamw_args *a;
    float decay, grad_scale, beta1, rest1, beta2, rest2, step, root2, eps;
} adamw_task;

static void adamw_span(const void *args, int64_t row, int64_t col, int64_t n)
{
    const adamw_task *t = args;
    const nrl_adamw_args *a = t->a;
    float *w = mat_at(&a->master, row, col, 4), *m = mat_at(&a->m, row, col, 4);
    float *v = mat_at(&a->v, row, col, 4);
    const float *grad = mat_at(&a->grad, row, col, 4);
    float decay = t->decay, scale = t->grad_scale, beta1 = t->beta1, rest1 = t->rest1;
    float beta2 = t->beta2, rest2 = t->rest2, step = t->step, root2 = t->root2, eps = t->eps;
    SIMD
    for (int64_t i = 0; i < n; i++) {
        float g = grad[i] * scale;
        m[i] = beta1 * m[i] + rest1 * g;
        v[i] = beta2 * v[i] + rest2 * g * g;
        w[i] = decay * w[i] - step * m[i] / (sqrtf(v[i]) * root2 + eps);
    }
    if (a->work.data) span_write(&a->work, row, col, n, w);
}

OP(adamw)
{
    nrl_adamw_args k = *a;
    if (k.master.dtype != NRL_DTYPE_F32 || k.grad.dtype != NRL_DTYPE_F32)
        return nrl_fail(NRL_ERR_PLUGIN, "backend 'cpu' has no op 'adamw' for a master in %s",
                        nrl_dtype_name(k.master.dtype));
    flatten((nrl_mat *[]){&k.master, &k.grad, &k.m, &k.v, &k.work}, 5);
    adamw_task t = {.a = &k,
                    .decay = (float)(1 - k.lr * k.weight_decay),
                    .grad_scale = (float)k.grad_scale,
                    .beta1 = (float)k.beta1,
                    .rest1 = (float)(1 - k.beta1),
                    .beta2 = (float)k.beta2,
                    .rest2 = (float)(1 - k.beta2),
                    .step = (float)(k.lr / k.correction1),
                    .root2 = (float)(1 / sqrt(k.correction2)),
                    .eps = (float)k.eps};
    each_span(instance, k.master.rows, k.master.cols, adamw_span, &t);
    return NRL_OK;
}
