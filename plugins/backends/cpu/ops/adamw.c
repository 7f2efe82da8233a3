/*
 * adamw.c - the whole update of an element in one pass over memory. Bytes read and written per
 * element: f32 master and gradient 28, plus 2 for a bf16 or f16 copy; split16 master and bf16 gradient
 * 26. The arithmetic is the same loop over f32 spans for every encoding, so masters get the same bits.
 * Formula in nrl/optimizer.h.
 */
#include "split16.h"

typedef struct {
    const nrl_adamw_args *a;
    float decay, grad_scale, beta1, rest1, beta2, rest2, step, root2, eps;
} adamw_task;

static void update_span(const adamw_task *t, const float *grad, float *w, float *m, float *v, int64_t n)
{
    float decay = t->decay, scale = t->grad_scale, beta1 = t->beta1, rest1 = t->rest1;
    float beta2 = t->beta2, rest2 = t->rest2, step = t->step, root2 = t->root2, eps = t->eps;
    SIMD
    for (int64_t i = 0; i < n; i++) {
        float g = grad[i] * scale;
        m[i] = beta1 * m[i] + rest1 * g;
        v[i] = beta2 * v[i] + rest2 * g * g;
        w[i] = decay * w[i] - step * m[i] / (sqrtf(v[i]) * root2 + eps);
    }
}

static void adamw_span(const void *args, int64_t row, int64_t col, int64_t n)
{
    const adamw_task *t = args;
    const nrl_adamw_args *a = t->a;
    bool split = a->work.data && a->low.data;
    float grad_buf[SPAN], w_buf[SPAN];
    const float *grad = span_read(&a->grad, row, col, n, grad_buf);
    float *w = split ? w_buf : mat_at(&a->master, row, col, 4);
    uint16_t *work = a->work.data ? mat_at(&a->work, row, col, 2) : NULL;
    uint16_t *low = split ? mat_at(&a->low, row, col, 2) : NULL;
    if (split) span_join(work, low, w, n);
    update_span(t, grad, w, mat_at(&a->m, row, col, 4), mat_at(&a->v, row, col, 4), n);
    if (split)
        span_split(w, work, low, n);
    else if (a->work.data && a->work.dtype == NRL_DTYPE_BF16)
        span_round(w, work, n);
    else if (a->work.data)
        span_write(&a->work, row, col, n, w);
}

/* The supported encodings: f32 or both halves, and a gradient in f32 or bf16. */
static nrl_status need_encoding(const nrl_adamw_args *a)
{
    bool split = a->low.data != NULL;
    bool master = split ? a->work.dtype == NRL_DTYPE_BF16 : a->master.dtype == NRL_DTYPE_F32;
    if (master && (a->grad.dtype == NRL_DTYPE_F32 || a->grad.dtype == NRL_DTYPE_BF16)) return NRL_OK;
    return nrl_fail(NRL_ERR_PLUGIN, "backend 'cpu' has no op 'adamw' for a master in %s%s and a gradient in %s",
                    nrl_dtype_name(split ? a->work.dtype : a->master.dtype), split ? " with lower halves" : "",
                    nrl_dtype_name(a->grad.dtype));
}

OP(adamw)
{
    nrl_adamw_args k = *a;
    if (a->decision) return nrl_fail(NRL_ERR_PLUGIN, "backend 'cpu' has no op 'adamw' with a decision of the device");
    NRL_TRY(need_encoding(a));
    flatten((nrl_mat *[]){&k.master, &k.grad, &k.m, &k.v, &k.work, &k.low}, 6);
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
    each_span(instance, k.m.rows, k.m.cols, adamw_span, &t);
    return NRL_OK;
}
