/*
 * gemm.c - c = alpha op(a) op(b) (+ c) + bias for any mixture of f32, bf16 and f16.
 *
 * Products in f32 of up to 2^25 multiplications are computed by ops/gemm_small.c, others by oneDNN.
 *
 * bf16 products use bf16 instructions only if the CPU multiplies bf16 faster than f32. Otherwise bf16
 * operands, and f16 operands on every CPU (oneDNN has f16 products from version 3 on and only for few
 * CPUs), are widened to f32 one block at a time, so that the copy stays in cache and only the 16-bit
 * original is read from memory. No widened weight is cached.
 */
#include "gemm_dnnl.h"
#include <string.h>

static bool is_compute(uint32_t dtype)
{
    return dtype == NRL_DTYPE_F32 || dtype == NRL_DTYPE_BF16 || dtype == NRL_DTYPE_F16;
}

static int64_t inner_of(const nrl_gemm_args *a)
{
    return a->transpose_a ? a->a.rows : a->a.cols;
}

static nrl_status check(const nrl_gemm_args *a)
{
    int64_t m = a->transpose_a ? a->a.cols : a->a.rows, k = inner_of(a);
    int64_t n = a->transpose_b ? a->b.rows : a->b.cols, l = a->transpose_b ? a->b.cols : a->b.rows;
    if (m != a->c.rows || n != a->c.cols || k != l || (a->bias.data && a->bias.cols != n))
        return nrl_fail(NRL_ERR_BUG, "gemm of %lldx%lld and %lldx%lld to %lldx%lld", (long long)m, (long long)k,
                        (long long)l, (long long)n, (long long)a->c.rows, (long long)a->c.cols);
    if (!is_compute(a->a.dtype) || !is_compute(a->b.dtype) || !is_compute(a->c.dtype))
        return nrl_fail(NRL_ERR_PLUGIN, "backend 'cpu' has no op 'gemm' for %s and %s to %s",
                        nrl_dtype_name(a->a.dtype), nrl_dtype_name(a->b.dtype), nrl_dtype_name(a->c.dtype));
    return NRL_OK;
}

static nrl_status convert(cpu *self, const nrl_mat *from, const nrl_mat *to)
{
    nrl_copy_args k = {.size = sizeof k, .x = *from, .y = *to, .alpha = 1};
    return self->ops->copy(self, NULL, &k);
}

static nrl_status add_bias(cpu *self, const nrl_mat *c, const nrl_mat *bias)
{
    nrl_binary_args add = {.size = sizeof add, .op = NRL_BINARY_ADD, .a = *c, .b = *bias, .y = *c};
    return bias->data ? self->ops->binary(self, NULL, &add) : NRL_OK;
}

/* ---- the operands are read as they are ---- */

/* By size alone, because the choice affects results. */
static bool is_small(const nrl_gemm_args *a)
{
    return a->a.dtype == NRL_DTYPE_F32 && (double)a->c.rows * (double)a->c.cols * (double)inner_of(a) <= 0x1p25;
}

static nrl_status multiply(cpu *self, const nrl_gemm_args *a)
{
    gemm_product p;
    if (is_small(a)) return self->gemm_small(self, a);
    memset(&p, 0, sizeof p);
    p.m = a->c.rows;
    p.n = a->c.cols;
    p.k = inner_of(a);
    p.lda = a->a.stride;
    p.ldb = a->b.stride;
    p.ldc = a->c.stride;
    p.transpose_a = a->transpose_a;
    p.transpose_b = a->transpose_b;
    p.accumulate = !a->overwrite;
    p.has_bias = a->bias.data != NULL;
    p.type_ab = (uint8_t)a->a.dtype;
    p.type_c = (uint8_t)a->c.dtype;
    p.type_bias = (uint8_t)(a->bias.data ? a->bias.dtype : 0);
    p.n_threads = self->n_threads;
    p.alpha = (float)a->alpha;
    gemm_operands at = {a->a.data, a->b.data, a->bias.data, a->c.data};
    return gemm_multiply(self->engine, &p, &at);
}

/* An empty sum: c = (overwrite ? 0 : c) + bias. */
static nrl_status multiply_nothing(cpu *self, const nrl_gemm_args *a)
{
    nrl_fill_args zero = {.size = sizeof zero, .y = a->c};
    if (a->overwrite) NRL_TRY(self->ops->fill(self, NULL, &zero));
    return add_bias(self, &a->c, &a->bias);
}

/* ---- block by block in f32 ----
 * One of the three dimensions is split. The operand without that dimension is widened whole, once. */

typedef enum { CUT_M, CUT_N, CUT_K } cut_axis;
typedef struct {
    cut_axis axis;
    int64_t length, step; /* of the split dimension */
    int64_t m, n, k;      /* of a block */
} cut;

enum { BLOCK_FLOATS = 1 << 20, STEP_UNIT = 48, LEAST_STEP = 192 };

/* Length of a block for which the widened data stays within BLOCK_FLOATS. */
static int64_t step_for(int64_t length, int64_t floats_each)
{
    int64_t step = floats_each > 0 ? BLOCK_FLOATS / floats_each / STEP_UNIT * STEP_UNIT : length;
    if (step < LEAST_STEP) step = LEAST_STEP;
    return step < length ? step : length;
}

/* The split with the least traffic: floats that are widened whole, or passes over c. */
static cut choose_cut(const nrl_gemm_args *a)
{
    int64_t m = a->c.rows, n = a->c.cols, k = inner_of(a);
    bool low_a = a->a.dtype != NRL_DTYPE_F32, low_b = a->b.dtype != NRL_DTYPE_F32;
    bool low_c = a->c.dtype != NRL_DTYPE_F32;
    int64_t step_m = step_for(m, (low_a ? k : 0) + (low_c ? n : 0));
    int64_t step_n = step_for(n, (low_b ? k : 0) + (low_c ? m : 0));
    int64_t step_k = step_for(k, (low_a ? m : 0) + (low_b ? n : 0));
    double cost_m = low_b ? (double)n * (double)k : 0, cost_n = low_a ? (double)m * (double)k : 0;
    int64_t passes = low_c + (k + step_k - 1) / step_k - 1;
    double cost_k = (double)m * (double)n * (double)passes;
    if (cost_k < cost_m && cost_k < cost_n) return (cut){CUT_K, k, step_k, m, n, step_k};
    if (cost_m < cost_n) return (cut){CUT_M, m, step_m, step_m, n, k};
    return (cut){CUT_N, n, step_n, m, step_n, k};
}

/* Elements [begin, begin + n) of a matrix's rows or columns. */
static nrl_mat slice(const nrl_mat *m, bool of_rows, int64_t begin, int64_t n)
{
    nrl_mat s = *m;
    int64_t offset = of_rows ? begin * m->stride : begin;
    if (!m->data) return s;
    s.data = (char *)m->data + (size_t)offset * nrl_dtype_size(m->dtype);
    if (of_rows)
        s.rows = n;
    else
        s.cols = n;
    return s;
}

static nrl_gemm_args block_args(const nrl_gemm_args *a, const cut *c, int64_t begin)
{
    nrl_gemm_args g = *a;
    int64_t n = c->length - begin < c->step ? c->length - begin : c->step;
    if (c->axis != CUT_N) g.a = slice(&a->a, (c->axis == CUT_M) != a->transpose_a, begin, n);
    if (c->axis != CUT_M) g.b = slice(&a->b, (c->axis == CUT_K) != a->transpose_b, begin, n);
    if (c->axis != CUT_K) g.c = slice(&a->c, c->axis == CUT_M, begin, n);
    if (c->axis == CUT_N) g.bias = slice(&a->bias, false, begin, n);
    if (c->axis == CUT_K && begin > 0) {
        g.overwrite = false;
        g.bias.data = NULL;
    }
    return g;
}

typedef struct {
    float *a, *b, *c; /* buffers for widened operands; NULL = the operand is f32 */
} block_room;

static nrl_mat as_f32(const nrl_mat *m, float *room)
{
    return (nrl_mat){.data = room, .dtype = NRL_DTYPE_F32, .rows = m->rows, .cols = m->cols, .stride = m->cols};
}

/* One block: widens what changed, multiplies, adds the bias, and narrows the result when it is complete. */
static nrl_status multiply_block(cpu *self, const nrl_gemm_args *block, const cut *c, const block_room *room,
                                 bool first, bool last)
{
    nrl_gemm_args g = *block;
    bool same_c = c->axis == CUT_K; /* every block updates the whole of c */
    if (room->a) g.a = as_f32(&block->a, room->a);
    if (room->b) g.b = as_f32(&block->b, room->b);
    if (room->c) g.c = as_f32(&block->c, room->c);
    if (room->a && (first || c->axis != CUT_N)) NRL_TRY(convert(self, &block->a, &g.a));
    if (room->b && (first || c->axis != CUT_M)) NRL_TRY(convert(self, &block->b, &g.b));
    if (room->c && !g.overwrite && (first || !same_c)) NRL_TRY(convert(self, &block->c, &g.c));
    g.bias.data = NULL;
    NRL_TRY(multiply(self, &g));
    NRL_TRY(add_bias(self, &g.c, &block->bias));
    if (room->c && (last || !same_c)) return convert(self, &g.c, &block->c);
    return NRL_OK;
}

static nrl_status multiply_blocks(cpu *self, const nrl_gemm_args *a)
{
    cut c = choose_cut(a);
    size_t size_a = a->a.dtype != NRL_DTYPE_F32 ? (size_t)(c.m * c.k) : 0;
    size_t size_b = a->b.dtype != NRL_DTYPE_F32 ? (size_t)(c.n * c.k) : 0;
    size_t size_c = a->c.dtype != NRL_DTYPE_F32 ? (size_t)(c.m * c.n) : 0;
    void *memory;
    NRL_TRY(cpu_work(self, (size_a + size_b + size_c) * sizeof(float), &memory));
    float *p = memory;
    block_room room = {size_a ? p : NULL, size_b ? p + size_a : NULL, size_c ? p + size_a + size_b : NULL};
    for (int64_t begin = 0; begin < c.length; begin += c.step) {
        nrl_gemm_args g = block_args(a, &c, begin);
        NRL_TRY(multiply_block(self, &g, &c, &room, begin == 0, begin + c.step >= c.length));
    }
    return NRL_OK;
}

/* oneDNN would scale the bias by alpha too, which is wrong here. */
static bool is_direct(const cpu *self, const nrl_gemm_args *a)
{
    if (a->a.dtype != a->b.dtype || (a->bias.data && a->alpha != 1)) return false;
    if (a->a.dtype == NRL_DTYPE_BF16)
        return self->native_bf16 && a->c.dtype != NRL_DTYPE_F16 && a->bias.dtype != NRL_DTYPE_F16;
    return a->a.dtype == NRL_DTYPE_F32 && a->c.dtype == NRL_DTYPE_F32 &&
           (!a->bias.data || a->bias.dtype == NRL_DTYPE_F32);
}

nrl_status cpu_gemm(void *instance, nrl_stream *stream, const nrl_gemm_args *a)
{
    cpu *self = instance;
    (void)stream;
    NRL_TRY(check(a));
    if (a->c.rows == 0 || a->c.cols == 0) return NRL_OK;
    if (inner_of(a) == 0) return multiply_nothing(self, a);
    return is_direct(self, a) ? multiply(self, a) : multiply_blocks(self, a);
}
