/*
 * custom_ops.h - the kernels of this backend for operations of libnrl-operations (nrl/operations.h, which describes
 * operands and attributes). custom_ops.c lists them for the core; each is a function in ops/ or attention.c that
 * launches on `stream`.
 */
#ifndef CUDA_CUSTOM_OPS_H
#define CUDA_CUSTOM_OPS_H
#include "cuda_backend.h"
#include <nrl/operations.h>
#ifdef __cplusplus
extern "C" {
#endif

extern const nrl_custom_op *const cuda_custom_ops[];

/* clang-format off */
#define CUDA_CUSTOM_KERNELS(X) \
    X(top_k) X(top_k_grad) X(clamped_swiglu) X(clamped_swiglu_grad) X(scan) X(scan_grad) X(uniform) X(biased_attention) \
    X(biased_attention_grad)
/* clang-format on */
#define CUDA_CUSTOM_DECLARE(name) nrl_status cuda_custom_##name(cuda *self, void *stream, const nrl_kernel_args *a);
CUDA_CUSTOM_KERNELS(CUDA_CUSTOM_DECLARE)

/* Whether a segment of the batch continues a shared prompt. */
bool cuda_has_prompts(const nrl_packing *p);

#ifdef __cplusplus
}
#endif
#endif
