/*
 * tile.h - the product of small matrices, of attention and gemm_small.c: C[m,n] (+)= A[m,k] B[k,n] in f32.
 *
 * B and C are row-major with n a multiple of LANES; A is read one element at a time, with any
 * strides, so it needs neither packing nor transposing. ROWS x VECS vectors of C stay in registers
 * over all of k: 6 x 4 of the 32 registers of AVX-512, 6 x 2 of the 16 of AVX2.
 */
#ifndef CPU_OPS_TILE_H
#define CPU_OPS_TILE_H
#include "isa.h"

#if defined(__AVX512F__)
enum { VECS = 4 };
#else
enum { VECS = 2 };
#endif
enum { ROWS = 6 };

typedef float vec __attribute__((vector_size(LANES * 4), aligned(4), may_alias));

typedef struct {
    const float *a;
    int64_t a_row, a_col; /* element (i, p) of A at a[i * a_row + p * a_col] */
    const float *b;
    int64_t b_row;
    float *c;
    int64_t c_row;
    int64_t k;
    bool add;
} tile_args;

/* The whole product; n is rounded up to LANES by the caller. */
void ISA(cpu_tile_product)(const tile_args *whole, int64_t m, int64_t n);

#endif
