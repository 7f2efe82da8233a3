/*
 * backend_call.h - one function for each backend operation. It fails if the backend lacks the operation, marks the call
 * on the timeline of a profile, and otherwise only calls through the table.
 */
#ifndef TENSOR_BACKEND_CALL_H
#define TENSOR_BACKEND_CALL_H
#include "tensor/device/device.h"

#define BACKEND_OPS(X)                                                                                                 \
    X(fill, nrl_fill_args)                                                                                             \
    X(copy, nrl_copy_args)                                                                                             \
    X(unary, nrl_unary_args)                                                                                           \
    X(unary_grad, nrl_unary_grad_args)                                                                                 \
    X(binary, nrl_binary_args)                                                                                         \
    X(binary_grad, nrl_binary_grad_args)                                                                               \
    X(where, nrl_where_args)                                                                                           \
    X(reduce, nrl_reduce_args)                                                                                         \
    X(softmax, nrl_softmax_args)                                                                                       \
    X(softmax_grad, nrl_softmax_grad_args)                                                                             \
    X(gemm, nrl_gemm_args)                                                                                             \
    X(gather, nrl_gather_args)                                                                                         \
    X(scatter, nrl_scatter_args)                                                                                       \
    X(norm, nrl_norm_args)                                                                                             \
    X(norm_grad, nrl_norm_grad_args)                                                                                   \
    X(rope, nrl_rope_args)                                                                                             \
    X(attention, nrl_attention_args)                                                                                   \
    X(attention_grad, nrl_attention_grad_args)                                                                         \
    X(glu, nrl_glu_args)                                                                                               \
    X(glu_grad, nrl_glu_grad_args)                                                                                     \
    X(head, nrl_head_args)                                                                                             \
    X(head_grad, nrl_head_grad_args)                                                                                   \
    X(adamw, nrl_adamw_args)                                                                                           \
    X(square_sum, nrl_square_sum_args)                                                                                 \
    X(dropout, nrl_dropout_args)                                                                                       \
    X(split16, nrl_split16_args)                                                                                       \
    X(quantize, nrl_quantize_args)

#define BACKEND_DECLARE(name, args) nrl_status backend_##name(nrl_ctx *ctx, const args *a);
BACKEND_OPS(BACKEND_DECLARE) /* backend_gemm and the others */
#undef BACKEND_DECLARE
/* Whether the backend of the device has the operation of that name. */
bool backend_has(const device *d, const char *name);
/* Copies bytes between host and device, queued like an operation. */
nrl_status backend_transfer(nrl_ctx *ctx, void *to, const void *from, size_t bytes, nrl_copy_direction way);

#endif
