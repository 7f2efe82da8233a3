/*
 * custom_ops.c - what nrl_backend.custom_ops of this backend lists: kernels for operations of libnrl-operations.
 */
#include "custom_ops.h"

bool cuda_has_prompts(const nrl_packing *p)
{
    for (int32_t s = 0; s < p->n_segments; s++)
        if (p->host_prefix[s] >= 0) return true;
    return false;
}

#define CUDA_ENTER_CUSTOM(name)                                                                                        \
    static nrl_status enter_##name(const nrl_kernel_args *a)                                                           \
    {                                                                                                                  \
        cuda *self = a->self;                                                                                          \
        NRL_TRY(cuda_enter(self));                                                                                     \
        return cuda_custom_##name(self, cuda_stream(self, nrl_ctx_stream(a->ctx)), a);                                 \
    }
CUDA_CUSTOM_KERNELS(CUDA_ENTER_CUSTOM)

/* inputs, outputs: what the backward reads, bit by bit. */
#define CUDA_CUSTOM_OP(op, backward, inputs, outputs)                                                                  \
    static const nrl_kernel kernels_of_##op[] = {{"cuda", enter_##op, backward}, {NULL, NULL, NULL}};                  \
    static const nrl_custom_op custom_##op = {.size = sizeof(nrl_custom_op),                                           \
                                              .kernel_size = sizeof(nrl_kernel),                                       \
                                              .name = "nrl." #op,                                                      \
                                              .kernels = kernels_of_##op,                                              \
                                              .saved_inputs = (inputs),                                                \
                                              .saved_outputs = (outputs)};
CUDA_CUSTOM_OP(top_k, enter_top_k_grad, 0, 2)
CUDA_CUSTOM_OP(clamped_swiglu, enter_clamped_swiglu_grad, 1, 0)
CUDA_CUSTOM_OP(scan, enter_scan_grad, 1, 1)
CUDA_CUSTOM_OP(uniform, NULL, 0, 0)
CUDA_CUSTOM_OP(biased_attention, enter_biased_attention_grad, 7, 3) /* and sinks, if there are any */

const nrl_custom_op *const cuda_custom_ops[] = {&custom_top_k,   &custom_clamped_swiglu,   &custom_scan,
                                                &custom_uniform, &custom_biased_attention, NULL};
