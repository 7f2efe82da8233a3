/*
 * gemm_dnnl.c - the only file that uses oneDNN (2.6 or later, or 3).
 *
 * Plain f32 products use dnnl_sgemm. Other products use a primitive that is created once per product
 * (shape, strides, dtypes, accumulation, bias, threads) and kept in a table; creating one takes
 * about a millisecond. One primitive computes the gradient of a weight for any number of rows, which it
 * sums over. Operands are not copied. oneDNN takes the number of threads from OpenMP's
 * setting of the calling thread, which is restored afterwards. Results may differ in the last bits
 * between numbers of threads.
 */
#include "gemm_dnnl.h"
#include <dnnl.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ARGUMENTS = 5 };

typedef struct {
    gemm_product key;
    uint64_t hash;
    dnnl_primitive_t primitive;
    dnnl_memory_t src, weights, dst, bias, workspace;
    size_t scratch_bytes;
    int64_t depth;     /* the k of src and weights */
    bool is_reference; /* plain loops, some thousand times slower */
} entry;

/* Packed batches and experts have ever new numbers of rows: a primitive replaces the one of its set that was not used
 * for longest. */
enum { SETS = 1024, WAYS = 4 };

enum { ANY_DEPTH = -1 }; /* as k of a key */

struct cpu_gemm_engine {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    cpu_memory *memory; /* borrowed */
    void *scratch;
    size_t scratch_bytes;
    bool any_depth;          /* see takes_any_depth */
    entry *sets[SETS][WAYS]; /* the last used first */
};

static nrl_status failed(dnnl_status_t st, const char *what, const gemm_product *p)
{
    if (st == dnnl_success) return NRL_OK;
    return nrl_fail(st == dnnl_out_of_memory ? NRL_ERR_MEMORY : NRL_ERR_PLUGIN,
                    "oneDNN cannot %s (status %d) for a product of %lld x %lld x %lld, %s%s%s to %s%s%s", what, (int)st,
                    (long long)p->m, (long long)p->n, (long long)p->k, nrl_dtype_name(p->type_ab),
                    p->transpose_a ? ", first transposed" : "", p->transpose_b ? ", second transposed" : "",
                    nrl_dtype_name(p->type_c), p->accumulate ? ", accumulated" : "", p->has_bias ? ", with bias" : "");
}

static dnnl_data_type_t type_of(uint8_t dtype)
{
    return dtype == NRL_DTYPE_BF16 ? dnnl_bf16 : dnnl_f32;
}

/* ---- differences between oneDNN 2 and 3 ---- */

#if DNNL_VERSION_MAJOR >= 3
typedef dnnl_memory_desc_t matrix_desc;

static dnnl_status_t desc_create(matrix_desc *d, int64_t rows, int64_t cols, int64_t row_stride, int64_t col_stride,
                                 dnnl_data_type_t type)
{
    dnnl_dims_t dims = {rows, cols}, strides = {row_stride, col_stride};
    return dnnl_memory_desc_create_with_strides(d, 2, dims, type, strides);
}

static void desc_destroy(matrix_desc *d)
{
    if (*d) dnnl_memory_desc_destroy(*d);
}

static dnnl_status_t memory_create(dnnl_memory_t *m, const matrix_desc *d, dnnl_engine_t e)
{
    return dnnl_memory_create(m, *d, e, DNNL_MEMORY_NONE);
}

static dnnl_status_t add_scale(dnnl_post_ops_t ops, float alpha)
{
    return dnnl_post_ops_append_eltwise(ops, dnnl_eltwise_linear, alpha, 0);
}

static dnnl_status_t add_sum(dnnl_post_ops_t ops)
{
    return dnnl_post_ops_append_sum(ops, 1, 0, dnnl_data_type_undef);
}

static dnnl_status_t matmul_desc(dnnl_primitive_desc_t *pd, dnnl_engine_t e, const matrix_desc d[4], bool has_bias,
                                 dnnl_primitive_attr_t attr)
{
    return dnnl_matmul_primitive_desc_create(pd, e, d[0], d[1], has_bias ? d[3] : NULL, d[2], attr);
}

static size_t scratch_of(dnnl_primitive_desc_t pd)
{
    const_dnnl_memory_desc_t d = dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    return d ? dnnl_memory_desc_get_size(d) : 0;
}

static dnnl_status_t scratch_memory(dnnl_memory_t *m, dnnl_primitive_desc_t pd, dnnl_engine_t e)
{
    const_dnnl_memory_desc_t d = dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    return dnnl_memory_create(m, d, e, DNNL_MEMORY_NONE);
}
#else
typedef dnnl_memory_desc_t matrix_desc;

static dnnl_status_t desc_create(matrix_desc *d, int64_t rows, int64_t cols, int64_t row_stride, int64_t col_stride,
                                 dnnl_data_type_t type)
{
    dnnl_dims_t dims = {rows, cols}, strides = {row_stride, col_stride};
    return dnnl_memory_desc_init_by_strides(d, 2, dims, type, strides);
}

static void desc_destroy(matrix_desc *d)
{
    (void)d;
}

static dnnl_status_t memory_create(dnnl_memory_t *m, const matrix_desc *d, dnnl_engine_t e)
{
    return dnnl_memory_create(m, d, e, DNNL_MEMORY_NONE);
}

static dnnl_status_t add_scale(dnnl_post_ops_t ops, float alpha)
{
    return dnnl_post_ops_append_eltwise(ops, 1, dnnl_eltwise_linear, alpha, 0);
}

static dnnl_status_t add_sum(dnnl_post_ops_t ops)
{
    return dnnl_post_ops_append_sum(ops, 1);
}

static dnnl_status_t matmul_desc(dnnl_primitive_desc_t *pd, dnnl_engine_t e, const matrix_desc d[4], bool has_bias,
                                 dnnl_primitive_attr_t attr)
{
    dnnl_matmul_desc_t op;
    dnnl_status_t st = dnnl_matmul_desc_init(&op, &d[0], &d[1], has_bias ? &d[3] : NULL, &d[2]);
    return st == dnnl_success ? dnnl_primitive_desc_create(pd, &op, attr, e, NULL) : st;
}

static size_t scratch_of(dnnl_primitive_desc_t pd)
{
    const dnnl_memory_desc_t *d = dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    return d ? dnnl_memory_desc_get_size(d) : 0;
}

static dnnl_status_t scratch_memory(dnnl_memory_t *m, dnnl_primitive_desc_t pd, dnnl_engine_t e)
{
    const dnnl_memory_desc_t *d = dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    return dnnl_memory_create(m, d, e, DNNL_MEMORY_NONE);
}
#endif

/* ---- creating a primitive ---- */

/* alpha and accumulation as post-operations: c = alpha (a b + bias) + c. */
static dnnl_status_t attributes(const gemm_product *p, dnnl_primitive_attr_t *attr)
{
    dnnl_status_t st = dnnl_primitive_attr_create(attr);
    if (st != dnnl_success) return st;
    st = dnnl_primitive_attr_set_scratchpad_mode(*attr, dnnl_scratchpad_mode_user);
    if (st != dnnl_success || (p->alpha == 1 && !p->accumulate)) return st;
    dnnl_post_ops_t ops;
    st = dnnl_post_ops_create(&ops);
    if (st != dnnl_success) return st;
    if (p->alpha != 1) st = add_scale(ops, p->alpha);
    if (st == dnnl_success && p->accumulate) st = add_sum(ops);
    if (st == dnnl_success) st = dnnl_primitive_attr_set_post_ops(*attr, ops);
    dnnl_post_ops_destroy(ops);
    return st;
}

/* Descriptions of a and b with a depth of k; a transposed operand is the same memory with strides exchanged. */
static dnnl_status_t operand_descriptions(const gemm_product *p, int64_t k, matrix_desc d[2])
{
    dnnl_data_type_t ab = type_of(p->type_ab);
    dnnl_status_t st = desc_create(&d[0], p->m, k, p->transpose_a ? 1 : p->lda, p->transpose_a ? p->lda : 1, ab);
    if (st != dnnl_success) return st;
    return desc_create(&d[1], k, p->n, p->transpose_b ? 1 : p->ldb, p->transpose_b ? p->ldb : 1, ab);
}

/* Of a, b, c, bias. */
static dnnl_status_t descriptions(const gemm_product *p, matrix_desc d[4])
{
    dnnl_status_t st = operand_descriptions(p, p->k == ANY_DEPTH ? DNNL_RUNTIME_DIM_VAL : p->k, d);
    if (st == dnnl_success) st = desc_create(&d[2], p->m, p->n, p->ldc, 1, type_of(p->type_c));
    if (st == dnnl_success && p->has_bias) st = desc_create(&d[3], 1, p->n, p->n, 1, type_of(p->type_bias));
    return st;
}

static void entry_destroy(entry *e)
{
    dnnl_memory_t memory[] = {e->src, e->weights, e->dst, e->bias, e->workspace};
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
        if (memory[i]) dnnl_memory_destroy(memory[i]);
    if (e->primitive) dnnl_primitive_destroy(e->primitive);
    free(e);
}

/* The objects that stand for a and b, with a depth of k. */
static dnnl_status_t entry_set_depth(cpu_gemm_engine *g, entry *e, int64_t k)
{
    matrix_desc d[2];
    memset(d, 0, sizeof d);
    if (e->src) dnnl_memory_destroy(e->src);
    if (e->weights) dnnl_memory_destroy(e->weights);
    e->src = e->weights = NULL;
    dnnl_status_t st = operand_descriptions(&e->key, k, d);
    if (st == dnnl_success) st = memory_create(&e->src, &d[0], g->engine);
    if (st == dnnl_success) st = memory_create(&e->weights, &d[1], g->engine);
    e->depth = st == dnnl_success ? k : 0;
    desc_destroy(&d[0]);
    desc_destroy(&d[1]);
    return st;
}

static dnnl_status_t entry_fill(cpu_gemm_engine *g, entry *e, const matrix_desc d[4], dnnl_primitive_desc_t pd)
{
    dnnl_status_t st = dnnl_primitive_create(&e->primitive, pd);
    if (st == dnnl_success) st = memory_create(&e->dst, &d[2], g->engine);
    if (st == dnnl_success && e->key.has_bias) st = memory_create(&e->bias, &d[3], g->engine);
    const char *name = NULL;
    (void)dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &name);
    e->is_reference = name && !strncmp(name, "ref", 3);
    e->scratch_bytes = scratch_of(pd);
    if (st == dnnl_success) st = scratch_memory(&e->workspace, pd, g->engine);
    return st;
}

static nrl_status entry_create(cpu_gemm_engine *g, const gemm_product *p, uint64_t hash, entry **out)
{
    matrix_desc d[4];
    memset(d, 0, sizeof d);
    dnnl_primitive_attr_t attr = NULL;
    dnnl_primitive_desc_t pd = NULL;
    entry *e = calloc(1, sizeof *e);
    if (!e) return nrl_fail(NRL_ERR_MEMORY, "no memory for a matrix product's plan");
    e->key = *p;
    e->hash = hash;
    const char *what = "describe the operands";
    dnnl_status_t st = descriptions(p, d);
    if (st == dnnl_success) st = attributes(p, &attr);
    if (st == dnnl_success) {
        what = "find an implementation";
        st = matmul_desc(&pd, g->engine, d, p->has_bias, attr);
    }
    if (st == dnnl_success) {
        what = "create a primitive";
        st = entry_fill(g, e, d, pd);
    }
    if (pd) dnnl_primitive_desc_destroy(pd);
    if (attr) dnnl_primitive_attr_destroy(attr);
    for (int i = 0; i < 4; i++)
        desc_destroy(&d[i]);
    if (st != dnnl_success) {
        entry_destroy(e);
        return failed(st, what, p);
    }
    *out = e;
    return NRL_OK;
}

static uint64_t hash_of(const gemm_product *p)
{
    uint64_t words[sizeof *p / 8], h = 0x9E3779B97F4A7C15u;
    NRL_STATIC_ASSERT(sizeof *p % 8 == 0, "the key is a whole number of words without padding");
    memcpy(words, p, sizeof words);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        h = (h ^ words[i]) * 0xBF58476D1CE4E5B9u;
        h ^= h >> 29;
    }
    return h;
}

static bool entry_is_for(const entry *e, const gemm_product *p, uint64_t hash)
{
    return e->hash == hash && memcmp(&e->key, p, sizeof *p) == 0;
}

static nrl_status entry_find(cpu_gemm_engine *g, const gemm_product *p, entry **out)
{
    uint64_t hash = hash_of(p);
    entry **set = g->sets[hash % SETS];
    int i = 0;
    while (i < WAYS - 1 && set[i] && !entry_is_for(set[i], p, hash))
        i++;
    entry *e = set[i];
    if (!e || !entry_is_for(e, p, hash)) {
        if (e) entry_destroy(e);
        set[i] = NULL;
        NRL_TRY(entry_create(g, p, hash, &e));
    }
    memmove(set + 1, set, (size_t)i * sizeof *set);
    set[0] = *out = e;
    return NRL_OK;
}

static nrl_status scratch_grow(cpu_gemm_engine *g, size_t bytes)
{
    if (bytes <= g->scratch_bytes) return NRL_OK;
    void *memory;
    NRL_TRY(cpu_alloc(g->memory, bytes, &memory));
    cpu_free(g->memory, g->scratch);
    g->scratch = memory;
    g->scratch_bytes = bytes;
    return NRL_OK;
}

static dnnl_status_t run(cpu_gemm_engine *g, entry *e, const gemm_operands *at)
{
    dnnl_exec_arg_t args[ARGUMENTS];
    int n = 0;
    struct {
        int which;
        dnnl_memory_t memory;
        const void *data;
    } bound[ARGUMENTS] = {{DNNL_ARG_SRC, e->src, at->a},
                          {DNNL_ARG_WEIGHTS, e->weights, at->b},
                          {DNNL_ARG_DST, e->dst, at->c},
                          {DNNL_ARG_BIAS, e->bias, at->bias},
                          {DNNL_ARG_SCRATCHPAD, e->workspace, g->scratch}};
    for (int i = 0; i < ARGUMENTS; i++) {
        if (!bound[i].memory) continue;
        dnnl_status_t st = dnnl_memory_set_data_handle(bound[i].memory, (void *)bound[i].data);
        if (st != dnnl_success) return st;
        args[n++] = (dnnl_exec_arg_t){bound[i].which, bound[i].memory};
    }
    dnnl_status_t st = dnnl_primitive_execute(e->primitive, g->stream, n, args);
    return st == dnnl_success ? dnnl_stream_wait(g->stream) : st;
}

/* Gradients of weights sum over ever new numbers of rows. On a Zen 4 CPU oneDNN's code for any depth is also up to a
 * quarter faster than that for a known one if a weight has more than some 500 x 500 elements, and up to a tenth slower
 * if it has less. It is not used where a tile unit multiplies, on which it was not measured. For a scaled product, as
 * of adapters, oneDNN has only its reference code. */
static bool takes_any_depth(const cpu_gemm_engine *g, const gemm_product *p)
{
    return g->any_depth && p->type_ab == NRL_DTYPE_BF16 && p->type_c == NRL_DTYPE_F32 && p->transpose_a &&
           !p->transpose_b && !p->has_bias && p->alpha == 1;
}

static nrl_status multiply_cached(cpu_gemm_engine *g, const gemm_product *p, const gemm_operands *at)
{
    entry *e;
    gemm_product key = *p;
    if (takes_any_depth(g, p)) key.k = ANY_DEPTH;
    NRL_TRY(entry_find(g, &key, &e));
    if (key.k == ANY_DEPTH && e->is_reference) { /* in another version of oneDNN */
        g->any_depth = false;
        NRL_TRY(entry_find(g, p, &e));
    }
    NRL_TRY(scratch_grow(g, e->scratch_bytes));
    dnnl_status_t st = e->depth == p->k ? dnnl_success : entry_set_depth(g, e, p->k);
    return failed(st == dnnl_success ? run(g, e, at) : st, "run", p);
}

/* f32 without a bias: faster than the primitive if the rows of b are a multiple of 4 KiB apart, and needs no lookup. */
static nrl_status multiply_plain(const gemm_product *p, const gemm_operands *at)
{
    dnnl_status_t st = dnnl_sgemm(p->transpose_a ? 'T' : 'N', p->transpose_b ? 'T' : 'N', p->m, p->n, p->k, p->alpha,
                                  at->a, p->lda, at->b, p->ldb, p->accumulate ? 1.0f : 0.0f, at->c, p->ldc);
    return failed(st, "run", p);
}

nrl_status gemm_multiply(cpu_gemm_engine *g, const gemm_product *p, const gemm_operands *at)
{
    bool plain = p->type_ab == NRL_DTYPE_F32 && p->type_c == NRL_DTYPE_F32 && !p->has_bias;
    int before = omp_get_max_threads();
    omp_set_num_threads(p->n_threads);
    nrl_status st = plain ? multiply_plain(p, at) : multiply_cached(g, p, at);
    omp_set_num_threads(before);
    return st;
}

/* ---- the engine ---- */

nrl_status gemm_engine_create(cpu_isa isa, cpu_memory *memory, cpu_gemm_engine **out)
{
    *out = NULL;
    /* process-wide, and only before oneDNN's first use; a later call fails and the first choice stays */
    if (isa == CPU_ISA_AVX2) (void)dnnl_set_max_cpu_isa(dnnl_cpu_isa_avx2);
    if (isa == CPU_ISA_BASE) (void)dnnl_set_max_cpu_isa(dnnl_cpu_isa_sse41);
    cpu_gemm_engine *g = calloc(1, sizeof *g);
    if (!g) return nrl_fail(NRL_ERR_MEMORY, "no memory for the matrix engine");
    g->memory = memory;
    g->any_depth = !cpu_isa_has_tiles();
    dnnl_status_t st = dnnl_engine_create(&g->engine, dnnl_cpu, 0);
    if (st == dnnl_success) st = dnnl_stream_create(&g->stream, g->engine, dnnl_stream_in_order);
    if (st != dnnl_success) {
        gemm_engine_destroy(g);
        return nrl_fail(NRL_ERR_PLUGIN, "oneDNN cannot open the CPU (status %d)", (int)st);
    }
    *out = g;
    return NRL_OK;
}

void gemm_engine_destroy(cpu_gemm_engine *g)
{
    if (!g) return;
    for (int i = 0; i < SETS; i++)
        for (int k = 0; k < WAYS; k++)
            if (g->sets[i][k]) entry_destroy(g->sets[i][k]);
    if (g->stream) dnnl_stream_destroy(g->stream);
    if (g->engine) dnnl_engine_destroy(g->engine);
    cpu_free(g->memory, g->scratch);
    free(g);
}

void gemm_engine_version(char *fill, size_t size)
{
    const dnnl_version_t *v = dnnl_version();
    snprintf(fill, size, "oneDNN %d.%d.%d (OpenMP)", v->major, v->minor, v->patch);
}
