/*
 * gemm.h - opening the matrix library ahead of the first product, and what all products check.
 */
#ifndef CUDA_GEMM_H
#define CUDA_GEMM_H
#include "cuda_backend.h"
#ifdef __cplusplus
extern "C" {
#endif

/* Starts to load the library in a thread; the first product, or cuda_gemm_close, waits for it. What fails here is tried
 * again, and reported, by the first product. */
void cuda_gemm_prepare(cuda *self);

/* Whether shapes match, and dtypes are those of products. */
nrl_status cuda_gemm_check(const nrl_gemm_args *a);

#ifdef __cplusplus
}
#endif

#endif
