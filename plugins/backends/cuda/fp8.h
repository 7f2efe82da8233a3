/*
 * fp8.h - operands of products rounded to 8 bits (nrl_gemm_fp8): ops/fp8.cu, for gemm.c.
 */
#ifndef CUDA_FP8_H
#define CUDA_FP8_H
#include "cuda_backend.h"
#ifdef __cplusplus
extern "C" {
#endif

/* On the device, for one operand without blocks. */
typedef struct {
    float inverse;      /* 1 / scale */
    uint32_t magnitude; /* the bits of the largest |x|, if the scale follows it; 0 before the call */
} cuda_fp8_scales;

/* Blocks have their 1 / scale in the order that cuBLASLt reads. For y [n, depth] and d blocks along the depth: of ROWS
 * [d, n]; of TILES [ceil(n / 128), d rounded up to a multiple of 4]. The number of elements: */
int64_t cuda_fp8_block_scales(uint32_t blocks, int64_t n, int64_t depth);

/* y [n, depth], rows filled up with zeros to y->stride, becomes x or, with `transpose`, the transpose of x: codes if it
 * is u8, or numbers q / scale in bf16. */
nrl_status cuda_fp8_round(cuda *self, void *stream, const nrl_gemm_fp8 *how, const nrl_mat *x, bool transpose,
                          const nrl_mat *y, cuda_fp8_scales *at);
/* The same with how->blocks. */
nrl_status cuda_fp8_round_blocks(cuda *self, void *stream, const nrl_gemm_fp8 *how, const nrl_mat *x, bool transpose,
                                 const nrl_mat *y, float *inverses);

#ifdef __cplusplus
}
#endif
#endif
