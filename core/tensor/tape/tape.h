/*
 * tape.h - recording and backward, for the operations of this directory.
 *
 * A node refers to the headers of its operands (shape, gradient) and keeps the contents of what it saved. During the
 * backward, the header of an operand has its gradient.
 */
#ifndef TENSOR_TAPE_H
#define TENSOR_TAPE_H
#include "tensor/internal.h"

/* Whether a tape records: operations whose operands need gradients push themselves on it. */
bool tape_records(const nrl_ctx *ctx);

/* Like nrl_tape_push, but if `trained` is set, the operation is recorded even if no input needs a gradient, because one
 * of its parameters does. */
nrl_status tape_push(nrl_ctx *ctx, const nrl_tape_record *record, bool trained);

/* While ctx->deferred is set (ctx_defer), a backward function passes on what computes gradients of parameters only:
 * `saved` and a backward, no inputs and no outputs. */
void tape_defer(nrl_ctx *ctx, const nrl_tape_record *record);

/* Declares that the operation just pushed can cheaply recompute output 0 from what it saved. Later nodes of the tape
 * then do not keep that output; the backward recomputes it when the first node needs it. `recompute` writes to
 * `output`, which is already allocated. */
typedef nrl_status (*tape_remake)(nrl_ctx *ctx, nrl_tape_node *node, nrl_tensor *output);
void tape_can_remake(nrl_ctx *ctx, nrl_tensor *output, tape_remake recompute);

/* Returns the tensor for input i's gradient. If *overwrite is false, *grad is the input's gradient: add to it. If true,
 * overwrite *grad, then pass it to nrl_tape_give. */
nrl_status tape_grad_target(nrl_ctx *ctx, nrl_tape_node *node, int i, nrl_tensor **grad, bool *overwrite);
/* Removes and returns the gradient that input i has so far, NULL if none; it then belongs to the scope. For operations
 * that add it in their own kernel and give the sum. */
nrl_tensor *tape_take_grad(nrl_ctx *ctx, nrl_tape_node *node, int i);
/* Whether the gradient of output i may be overwritten, because no other code will read it. */
bool tape_grad_is_unshared(nrl_tape_node *node, int i);

#endif
