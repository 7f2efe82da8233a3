/*
 * tape.h - reverse-mode differentiation for operations that the core does not provide.
 *
 * Operations of op.h record themselves. A custom operation, a strategy or a script records its own
 * node: the tensors it reads (inputs), creates (outputs) and needs again in backward (saved), and a
 * function that computes the inputs' gradients from the outputs' gradients. Saved tensors are kept
 * until that function has run. With activation checkpointing a recompute action creates them again.
 *
 * A gradient has the dtype of its tensor. If a tensor is used more than once, its gradients are added
 * in the order of the backward pass, which is fixed. [step]
 */
#ifndef NRL_TAPE_H
#define NRL_TAPE_H
#include <nrl/tensor.h>
#ifdef __cplusplus
extern "C" {
#endif

enum { NRL_TAPE_MAX_OPERANDS = 8 };

typedef struct nrl_tape_node nrl_tape_node;
typedef nrl_status (*nrl_tape_backward)(nrl_ctx *ctx, nrl_tape_node *node);

/* The description of a node; unused operands are NULL. */
typedef struct {
    uint32_t size; /* of this struct */
    const char *name;
    nrl_tensor *inputs[NRL_TAPE_MAX_OPERANDS];
    nrl_tensor *outputs[NRL_TAPE_MAX_OPERANDS];
    nrl_tensor *saved[NRL_TAPE_MAX_OPERANDS];
    const void *attributes; /* copied */
    size_t attributes_size;
    nrl_tape_backward backward;
} nrl_tape_record;

/* Records the node if a tape is active and an input has a gradient, and marks the outputs as having one.
 * Otherwise it does nothing. */
NRL_API nrl_status nrl_tape_push(nrl_ctx *ctx, const nrl_tape_record *record);

/* Inside a backward function: */
NRL_API const void *nrl_tape_attributes(const nrl_tape_node *node);
NRL_API nrl_tensor *nrl_tape_saved(nrl_tape_node *node, int i);
/* Input i, for its shape and dtype. Its contents may have been freed unless it was saved too. */
NRL_API nrl_tensor *nrl_tape_input(nrl_tape_node *node, int i);
/* The gradient of output i; NULL means zero. */
NRL_API nrl_tensor *nrl_tape_grad(nrl_tape_node *node, int i);
/* Whether input i needs a gradient. */
NRL_API bool nrl_tape_wants(nrl_tape_node *node, int i);
/* Passes input i its gradient: the first is stored, later ones are added to it. The caller must not write
 * to the tensor afterwards, but may pass it to several inputs. */
NRL_API nrl_status nrl_tape_give(nrl_ctx *ctx, nrl_tape_node *node, int i, nrl_tensor *grad);

#ifdef __cplusplus
}
#endif
#endif
