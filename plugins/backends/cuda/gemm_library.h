/*
 * gemm_library.h - a matrix product library as a table: cuBLASLt (library_lt.c), opened on first use,
 * or a plain loop in tests (tests/support/cuda/fake_library.c).
 *
 * A product is described in cuBLASLt's column-major terms: out[rows, cols] = alpha op(left) op(right)
 * (+ out) (+ bias[rows] to each column) with element (r, c) of a stored matrix at [c stride + r]. Sums
 * are f32. A plan is the choice for one product; it does not depend on the operands' addresses except
 * for their alignment, which is 16 bytes for a bias and 256 for a workspace. [step]
 */
#ifndef CUDA_GEMM_LIBRARY_H
#define CUDA_GEMM_LIBRARY_H
#include <nrl/tensor.h>

typedef struct {
    int64_t rows, cols, depth;
    int64_t left_stride, right_stride, out_stride;
    uint32_t type, out_type;                                 /* nrl_dtype: of left and right; of out and bias */
    uint32_t left_alignment, right_alignment, out_alignment; /* bytes, 2 to 16 */
    uint32_t transpose_left, transpose_right, accumulate, has_bias, tf32;
    uint32_t relaxed; /* sums may be made in any order */
    /* nrl_fp8: left and right are codes instead, times *left_scale and *right_scale. Then left is transposed and right
     * is not, depth and their strides are multiples of 16, and a bias is bf16. 0 = of `type` */
    uint32_t left_fp8, right_fp8;
    uint32_t left_blocks, right_blocks; /* nrl_fp8_blocks: which elements share a scale (fp8.h has their order) */
    uint32_t unused;                    /* no padding: compared as a whole */
} gemm_product;

typedef struct {
    const void *left, *right, *bias;
    void *out;
    const float *left_scale, *right_scale; /* on the device; of codes, or of their blocks */
} gemm_operands;

/* An algorithm, as the library writes it; for the same version of the library and the same kind of device. */
typedef struct {
    unsigned char bytes[64];
} gemm_choice;

typedef struct {
    void (*load)(void);                 /* reads the library's file, so that `open` is short; fails silently [any] */
    nrl_status (*open)(void **library); /* NRL_ERR_PLUGIN: not found */
    void (*close)(void *library);
    size_t (*version)(void *library);
    /* The algorithms that the library expects to be fastest, at most `most`, the best first. */
    nrl_status (*choices)(void *library, const gemm_product *p, size_t workspace_bytes, gemm_choice *fill, int most,
                          int *n);
    /* By this algorithm; NULL: by the first of `choices`. *plan NULL with NRL_OK: the library does not support this
     * product, or not by this algorithm. */
    nrl_status (*plan)(void *library, const gemm_product *p, size_t workspace_bytes, const gemm_choice *choice,
                       void **plan);
    void (*plan_free)(void *library, void *plan);
    nrl_status (*run)(void *library, void *plan, float alpha, const gemm_operands *at, void *workspace,
                      size_t workspace_bytes, void *stream);
} gemm_library;

const gemm_library *gemm_library_table(void);

#endif
