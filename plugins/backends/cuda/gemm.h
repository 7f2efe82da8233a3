/*
 * gemm.h - opening the matrix library ahead of the first product.
 */
#ifndef CUDA_GEMM_H
#define CUDA_GEMM_H
#include "cuda_backend.h"

/* Starts to load the library in a thread; the first product, or cuda_gemm_close, waits for it. What fails here is tried
 * again, and reported, by the first product. */
void cuda_gemm_prepare(cuda *self);

#endif
