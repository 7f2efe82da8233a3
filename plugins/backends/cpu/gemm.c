/*
 * gemm.c - c = alpha op(a) op(b) (+ c) + bias for any mixture of f32 and bf16.
 *
 * bf16 products run as such only where the CPU multiplies bf16; elsewhere, and for operands of two
 * dtypes, bf16 operands are widened to f32 first. A widened weight could be kept by its key; it is
 * not, since the pass over it costs one row of the product's many.
 */
#include "gemm_dnnl.h"
#include <string.h>

static bool is_compute(uint32_t dtype)
{
    return dtype == NRL_DTYPE_F32 || dtype == NRL_DTYPE_BF16;
}

static nrl_status check(const nrl_gemm_args *a)
{
    int64_t m = a->transpose_a ? a->a.cols : a->a.rows, k = a->transpose_a ? a->a.rows : a->a.cols;
    int64_t n = a->transpose_b ? a->b.rows : a->b.cols, l = a->transpose_b ? a->b.cols : a->b.rows;
    if (m != a->c.rows || n != a->c.cols || k != l || (a->bias.data && a->bias.cols != n))
        return nrl_fail(NRL_ERR_BUG, "gemm of %lldx%lld and %lldx%lld to %lldx%lld", (long long)m,
                        (long long)k, (long long)l, (long long)n, (long long)a->c.rows,
                        (long long)a->c.cols);
    if (!is_compute(a->a.dtype) || !is_compute(a->b.dtype) || !is_compute(a->c.dtype))
        return nrl_fail(NRL_ERR_PLUGIN, "backend 'cpu' has no op 'gemm' for %s and %s to %s",
                        nrl_dtype_name(a->a.dtype), nrl_dtype_name(a->b.dtype),
                        nrl_dtype_name(a->c.dtype));
    return NRL_OK;
}

/* ---- temporary f32 copies ---- */

enum { MAX_COPIES = 4 };

typedef struct {
    cpu *self;
    void *memory[MAX_COPIES];
    int n;
} copies;

static nrl_status new_f32(copies *t, nrl_mat *m)
{
    void *memory;
    NRL_TRY(cpu_alloc((size_t)m->rows * (size_t)m->cols * sizeof(float), &memory));
    t->memory[t->n++] = memory;
    m->data = memory;
    m->dtype = NRL_DTYPE_F32;
    m->stride = m->cols;
    return NRL_OK;
}

static nrl_status widen(copies *t, nrl_mat *m)
{
    if (!m->data || m->dtype == NRL_DTYPE_F32) return NRL_OK;
    nrl_copy_args k = {.size = sizeof k, .x = *m, .alpha = 1};
    NRL_TRY(new_f32(t, m));
    k.y = *m;
    return t->self->ops->copy(t->self, NULL, &k);
}

/* ---- the product ---- */

static gemm_product product_of(const cpu *self, const nrl_gemm_args *a)
{
    gemm_product p;
    memset(&p, 0, sizeof p);
    p.m = a->c.rows;
    p.n = a->c.cols;
    p.k = a->transpose_a ? a->a.rows : a->a.cols;
    p.lda = a->a.stride;
    p.ldb = a->b.stride;
    p.ldc = a->c.stride;
    p.transpose_a = a->transpose_a;
    p.transpose_b = a->transpose_b;
    p.accumulate = !a->fresh;
    p.has_bias = a->bias.data != NULL;
    p.type_ab = (uint8_t)a->a.dtype;
    p.type_c = (uint8_t)a->c.dtype;
    p.type_bias = (uint8_t)(a->bias.data ? a->bias.dtype : 0);
    p.n_threads = self->n_threads;
    p.alpha = (float)a->alpha;
    return p;
}

static nrl_status multiply(cpu *self, const nrl_gemm_args *a)
{
    gemm_product p = product_of(self, a);
    gemm_operands at = {a->a.data, a->b.data, a->bias.data, a->c.data};
    return gemm_multiply(self->engine, &p, &at);
}

/* bf16 operands as f32; a bf16 result goes through f32 too, so that it is rounded once. */
static nrl_status multiply_f32(copies *t, const nrl_gemm_args *a)
{
    nrl_gemm_args k = *a;
    NRL_TRY(widen(t, &k.a));
    NRL_TRY(widen(t, &k.b));
    NRL_TRY(widen(t, &k.bias));
    if (k.c.dtype == NRL_DTYPE_F32) return multiply(t->self, &k);
    if (k.fresh) NRL_TRY(new_f32(t, &k.c));
    else NRL_TRY(widen(t, &k.c));
    NRL_TRY(multiply(t->self, &k));
    nrl_copy_args back = {.size = sizeof back, .x = k.c, .y = a->c, .alpha = 1};
    return t->self->ops->copy(t->self, NULL, &back);
}

/* An empty sum: c = (fresh ? 0 : c) + bias. */
static nrl_status multiply_nothing(cpu *self, const nrl_gemm_args *a)
{
    nrl_fill_args zero = {.size = sizeof zero, .y = a->c};
    if (a->fresh) NRL_TRY(self->ops->fill(self, NULL, &zero));
    if (!a->bias.data) return NRL_OK;
    nrl_binary_args add = {.size = sizeof add, .op = NRL_BINARY_ADD, .a = a->c, .b = a->bias,
                           .y = a->c};
    return self->ops->binary(self, NULL, &add);
}

/* oneDNN's alpha would scale the bias too, so the bias comes afterwards: in f32, as a bf16 result is
 * to be rounded once. */
static nrl_status multiply_then_bias(copies *t, const nrl_gemm_args *a)
{
    nrl_gemm_args k = *a;
    k.bias.data = NULL;
    if (k.c.dtype != NRL_DTYPE_F32) {
        if (k.fresh) NRL_TRY(new_f32(t, &k.c));
        else NRL_TRY(widen(t, &k.c));
    }
    NRL_TRY(cpu_gemm(t->self, NULL, &k));
    k.fresh = false;
    k.bias = a->bias;
    NRL_TRY(multiply_nothing(t->self, &k));
    if (k.c.data == a->c.data) return NRL_OK;
    nrl_copy_args back = {.size = sizeof back, .x = k.c, .y = a->c, .alpha = 1};
    return t->self->ops->copy(t->self, NULL, &back);
}

/* May oneDNN have the operands as they are? */
static bool is_direct(const cpu *self, const nrl_gemm_args *a)
{
    if (a->a.dtype != a->b.dtype) return false;
    if (a->a.dtype == NRL_DTYPE_BF16) return self->native_bf16;
    return a->c.dtype == NRL_DTYPE_F32 && (!a->bias.data || a->bias.dtype == NRL_DTYPE_F32);
}

nrl_status cpu_gemm(void *instance, nrl_stream *stream, const nrl_gemm_args *a)
{
    cpu *self = instance;
    (void)stream;
    NRL_TRY(check(a));
    if (a->c.rows == 0 || a->c.cols == 0) return NRL_OK;
    if ((a->transpose_a ? a->a.rows : a->a.cols) == 0) return multiply_nothing(self, a);
    bool bias_apart = a->bias.data && a->alpha != 1;
    if (!bias_apart && is_direct(self, a)) return multiply(self, a);
    copies t = {.self = self};
    nrl_status st = bias_apart ? multiply_then_bias(&t, a) : multiply_f32(&t, a);
    for (int i = 0; i < t.n; i++) cpu_free(t.memory[i]);
    return st;
}
