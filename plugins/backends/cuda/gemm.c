/*
 * gemm.c - c = alpha op(a) op(b) (+ c) + bias through a matrix library.
 *
 * The library's matrices are column-major, so it computes c^T = op(b)^T op(a)^T on the same memory;
 * the bias, one value per column of c, is one per row for the library. a and b of one dtype are passed
 * directly, with c of that dtype or f32; any other mixture, and what the library does not support, is
 * widened to f32 first. Each stream has its own workspace, so results repeat bit for bit.
 */
#include "gemm.h"
#include "gemm_plans.h"
#include <pthread.h>
#include <stdlib.h>

enum { WORKSPACE_BYTES = 32 << 20 }; /* the size recommended for Hopper */

typedef struct {
    const gemm_library *table;
    void *library; /* NULL until the first product */
    gemm_plans plans;
    pthread_t loader;
    bool is_loading;
} gemm_engine;

/* ---- the engine ---- */

static void *load(void *table)
{
    ((const gemm_library *)table)->load();
    return NULL;
}

void cuda_gemm_prepare(cuda *self)
{
    gemm_engine *e = self->math = calloc(1, sizeof *e);
    if (!e) return;
    e->table = gemm_library_table();
    e->is_loading = !pthread_create(&e->loader, NULL, load, (void *)(uintptr_t)e->table);
}

static void wait_for_loader(gemm_engine *e)
{
    if (e->is_loading) (void)pthread_join(e->loader, NULL);
    e->is_loading = false;
}

void cuda_gemm_close(cuda *self)
{
    gemm_engine *e = self->math;
    if (!e) return;
    wait_for_loader(e);
    gemm_plans_close(&e->plans);
    if (e->library) e->table->close(e->library);
    free(e);
    self->math = NULL;
}

static nrl_status engine_of(cuda *self, gemm_engine **out)
{
    if (!self->math) cuda_gemm_prepare(self);
    gemm_engine *e = *out = self->math;
    if (!e) return nrl_fail(NRL_ERR_MEMORY, "no memory for matrix products");
    if (e->library) return NRL_OK;
    wait_for_loader(e);
    nrl_status st = e->table->open(&e->library);
    if (!st) st = gemm_plans_open(&e->plans, e->table, e->library);
    if (st) cuda_gemm_close(self);
    return st;
}

/* ---- a product ---- */

static nrl_status failed(const nrl_gemm_args *a, nrl_status code, const char *problem)
{
    return nrl_fail(code, "gemm of %lldx%lld%s %s and %lldx%lld%s %s to %lldx%lld %s: %s", (long long)a->a.rows,
                    (long long)a->a.cols, a->transpose_a ? "^T" : "", nrl_dtype_name((nrl_dtype)a->a.dtype),
                    (long long)a->b.rows, (long long)a->b.cols, a->transpose_b ? "^T" : "",
                    nrl_dtype_name((nrl_dtype)a->b.dtype), (long long)a->c.rows, (long long)a->c.cols,
                    nrl_dtype_name((nrl_dtype)a->c.dtype), problem);
}

static int64_t inner_of(const nrl_gemm_args *a)
{
    return a->transpose_a ? a->a.rows : a->a.cols;
}

static bool is_compute(uint32_t dtype)
{
    return dtype == NRL_DTYPE_F32 || dtype == NRL_DTYPE_BF16 || dtype == NRL_DTYPE_F16;
}

static nrl_status check(const nrl_gemm_args *a)
{
    int64_t m = a->transpose_a ? a->a.cols : a->a.rows, n = a->transpose_b ? a->b.rows : a->b.cols;
    int64_t k = a->transpose_b ? a->b.cols : a->b.rows;
    if (m != a->c.rows || n != a->c.cols || k != inner_of(a)) return failed(a, NRL_ERR_BUG, "the shapes do not match");
    if (a->bias.data && a->bias.cols != n) return failed(a, NRL_ERR_BUG, "the width of the bias does not match");
    if (!is_compute(a->a.dtype) || !is_compute(a->b.dtype) || !is_compute(a->c.dtype))
        return failed(a, NRL_ERR_PLUGIN, "backend 'cuda' multiplies f32, bf16 and f16");
    return NRL_OK;
}

/* The largest power of two up to 16 that divides the address. */
static uint32_t alignment_of(const void *p)
{
    uint32_t low = (uint32_t)((uintptr_t)p & 15);
    return low ? low & -low : 16;
}

static bool bias_is_fused(const nrl_gemm_args *a)
{
    return a->bias.data && a->bias.dtype == a->c.dtype && alignment_of(a->bias.data) == 16;
}

static gemm_product product_of(const cuda *self, const nrl_gemm_args *a)
{
    return (gemm_product){.rows = a->c.cols,
                          .cols = a->c.rows,
                          .depth = inner_of(a),
                          .left_stride = a->b.stride,
                          .right_stride = a->a.stride,
                          .out_stride = a->c.stride,
                          .type = a->a.dtype,
                          .out_type = a->c.dtype,
                          .left_alignment = alignment_of(a->b.data),
                          .right_alignment = alignment_of(a->a.data),
                          .out_alignment = alignment_of(a->c.data),
                          .transpose_left = a->transpose_b,
                          .transpose_right = a->transpose_a,
                          .accumulate = !a->overwrite,
                          .has_bias = bias_is_fused(a),
                          .tf32 = self->tf32,
                          .relaxed = self->relaxed};
}

static nrl_status add_bias(cuda *self, void *stream, const nrl_mat *c, const nrl_mat *bias)
{
    nrl_binary_args add = {.size = sizeof add, .op = NRL_BINARY_ADD, .a = *c, .b = *bias, .y = *c};
    return bias->data ? cuda_op_binary(self, stream, &add) : NRL_OK;
}

/* *done false: the library does not support these dtypes and strides. */
static nrl_status multiply(cuda *self, void *stream, const nrl_gemm_args *a, bool *done)
{
    gemm_engine *e;
    void *plan, *workspace;
    gemm_product p = product_of(self, a);
    *done = false;
    NRL_TRY(engine_of(self, &e));
    NRL_TRY(gemm_plans_find(&e->plans, &p, WORKSPACE_BYTES, &plan));
    if (!plan) return NRL_OK;
    NRL_TRY(cuda_workspace(self, stream, WORKSPACE_BYTES, &workspace));
    gemm_operands at = {a->b.data, a->a.data, p.has_bias ? a->bias.data : NULL, a->c.data};
    NRL_TRY(e->table->run(e->library, plan, (float)a->alpha, &at, workspace, WORKSPACE_BYTES, stream));
    cuda_watch_count(self->watch, 1);
    *done = true;
    return p.has_bias ? NRL_OK : add_bias(self, stream, &a->c, &a->bias);
}

/* ---- other mixtures of dtypes ---- */

static nrl_status convert(cuda *self, void *stream, const nrl_mat *from, const nrl_mat *to)
{
    nrl_copy_args k = {.size = sizeof k, .x = *from, .y = *to, .alpha = 1};
    return cuda_op_copy(self, stream, &k);
}

static size_t widened_bytes(const nrl_mat *m)
{
    return m->dtype == NRL_DTYPE_F32 ? 0 : ((size_t)(m->rows * m->cols) * sizeof(float) + 255) / 256 * 256;
}

/* If m is not f32, a dense f32 matrix of its shape at *room, which is advanced. */
static nrl_mat widened(const nrl_mat *m, char **room)
{
    nrl_mat w = *m;
    if (m->dtype == NRL_DTYPE_F32) return w;
    w = (nrl_mat){.data = *room, .dtype = NRL_DTYPE_F32, .rows = m->rows, .cols = m->cols, .stride = m->cols};
    *room += widened_bytes(m);
    return w;
}

static nrl_status multiply_widened(cuda *self, void *stream, const nrl_gemm_args *a)
{
    nrl_gemm_args g = *a;
    bool done;
    void *memory;
    NRL_TRY(cuda_scratch(self, stream, widened_bytes(&a->a) + widened_bytes(&a->b) + widened_bytes(&a->c), &memory));
    char *room = memory;
    g.a = widened(&a->a, &room);
    g.b = widened(&a->b, &room);
    g.c = widened(&a->c, &room);
    if (g.a.data != a->a.data) NRL_TRY(convert(self, stream, &a->a, &g.a));
    if (g.b.data != a->b.data) NRL_TRY(convert(self, stream, &a->b, &g.b));
    if (g.c.data != a->c.data && !a->overwrite) NRL_TRY(convert(self, stream, &a->c, &g.c));
    NRL_TRY(multiply(self, stream, &g, &done));
    if (!done) return failed(a, NRL_ERR_PLUGIN, "the matrix library does not support it");
    return g.c.data != a->c.data ? convert(self, stream, &g.c, &a->c) : NRL_OK;
}

/* An empty sum: c = (overwrite ? 0 : c) + bias. */
static nrl_status multiply_nothing(cuda *self, void *stream, const nrl_gemm_args *a)
{
    nrl_fill_args zero = {.size = sizeof zero, .y = a->c};
    if (a->overwrite) NRL_TRY(cuda_op_fill(self, stream, &zero));
    return add_bias(self, stream, &a->c, &a->bias);
}

nrl_status cuda_op_gemm(cuda *self, void *stream, const nrl_gemm_args *a)
{
    NRL_TRY(check(a));
    if (a->c.rows == 0 || a->c.cols == 0) return NRL_OK;
    if (inner_of(a) == 0) return multiply_nothing(self, stream, a);
    bool done = false;
    if (a->a.dtype == a->b.dtype && (a->c.dtype == a->a.dtype || a->c.dtype == NRL_DTYPE_F32))
        NRL_TRY(multiply(self, stream, a, &done));
    return done ? NRL_OK : multiply_widened(self, stream, a);
}
