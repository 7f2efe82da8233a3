/*
 * fp8.h - operands of products rounded to 8 bits (nrl_gemm_fp8): ops/fp8.cu, for gemm.c.
 */
#ifndef CUDA_FP8_H
#define CUDA_FP8_H
#include "cuda_backend.h"
#ifdef __cplusplus
extern "C" {
#endif

/* On the device, for one operand. */
typedef struct {
    float inverse;      /* 1 / scale */
    uint32_t magnitude; /* the bits of the largest |x|, if the scale follows it; 0 before the call */
} cuda_fp8_scales;

/* y [n, depth], rows filled up with zeros to y->stride, becomes x or, with `transpose`, the transpose of x: codes if it
 * is u8, or numbers q / scale in bf16. */
nrl_status cuda_fp8_round(cuda *self, void *stream, const nrl_gemm_fp8 *how, const nrl_mat *x, bool transpose,
                          const nrl_mat *y, cuda_fp8_scales *at);

#ifdef __cplusplus
}
#endif
#endif
