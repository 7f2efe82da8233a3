/*
 * tape.h - reverse-mode differentiation, for operations that the core does not have.
 *
 * Operations of op.h record themselves. A seam, a foreign backend op or a script records its own
 * node: the tensors it read (inputs), made (outputs) and needs again (saved), and a function that
 * turns the outputs' gradients into the inputs'. Saved tensors are kept until that function has
 * run, then released; with activation checkpointing they are made again by a recompute visit.
 *
 * Gradients have the dtype of their tensor; a tensor used twice gets the sum in the order of the
 * walk back, which is fixed. [step]
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

/* What a caller fills to record a node; unused operand places are NULL. */
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

/* Records when a tape is on and an input has a gradient; marks the outputs; else does nothing. */
NRL_API nrl_status nrl_tape_push(nrl_ctx *ctx, const nrl_tape_record *record);

/* Inside a backward function: */
NRL_API const void *nrl_tape_attributes(const nrl_tape_node *node);
NRL_API nrl_tensor *nrl_tape_saved(nrl_tape_node *node, int i);
/* Input i for its shape and dtype; its contents may be gone unless it was saved as well. */
NRL_API nrl_tensor *nrl_tape_input(nrl_tape_node *node, int i);
/* The gradient that arrived at output i; NULL when nothing flowed into it (read it as zero). */
NRL_API nrl_tensor *nrl_tape_grad(nrl_tape_node *node, int i);
/* Whether input i wants a gradient at all. */
NRL_API bool nrl_tape_wants(nrl_tape_node *node, int i);
/* Gives input i its gradient: the first one is taken as it is, later ones are added to it. The
 * tensor is not to be written afterwards; it may be given to several inputs. */
NRL_API nrl_status nrl_tape_give(nrl_ctx *ctx, nrl_tape_node *node, int i, nrl_tensor *grad);

#ifdef __cplusplus
}
#endif
#endif
