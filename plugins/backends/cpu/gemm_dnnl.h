/*
 * gemm_dnnl.h - matrix products by oneDNN, row-major, in f32 or from bf16.
 */
#ifndef CPU_GEMM_DNNL_H
#define CPU_GEMM_DNNL_H
#include "cpu.h"

/* One product: c[m,n] = alpha op(a) op(b) (+ c) (+ bias). Leading dimensions in elements. It is a
 * key compared byte by byte, so it has no padding. */
typedef struct {
    int64_t m, n, k, lda, ldb, ldc;
    uint8_t transpose_a, transpose_b, accumulate, has_bias;
    uint8_t type_ab, type_c, type_bias, reserved; /* nrl_dtype: f32 or bf16 */
    int32_t n_threads;
    float alpha;
} gemm_product;

typedef struct {
    const void *a, *b, *bias;
    void *c;
} gemm_operands;

/* `memory` outlives the engine. */
nrl_status gemm_engine_create(cpu_isa isa, cpu_memory *memory, cpu_gemm_engine **out);
void gemm_engine_destroy(cpu_gemm_engine *e);
nrl_status gemm_multiply(cpu_gemm_engine *e, const gemm_product *p, const gemm_operands *at);
void gemm_engine_version(char *fill, size_t size);

#endif
