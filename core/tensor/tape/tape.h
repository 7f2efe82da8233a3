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

/* The tape to which a backward function passes on what computes gradients of parameters only, from the gradient of an
 * output of its node, whose input is x: that of ctx_settings, or of the node that collects for x. NULL: nowhere. */
tape *tape_later(nrl_ctx *ctx, const nrl_tensor *x);
/* Passes it on: `saved` and a backward, no inputs and no outputs. */
void tape_defer(nrl_ctx *ctx, tape *later, const nrl_tape_record *record);

/* Declares that the operation just pushed, with this output, collects what the readers of the output defer, and that
 * its backward calls tape_run_collected, while an exchange is on its way. If it also recomputes the output, it may
 * leave that exchange in tape_work; the tape calls `wait` before the output is read. */
void tape_collect(nrl_ctx *ctx, nrl_tensor *output, nrl_status (*wait)(nrl_work **work, nrl_ctx *ctx));
nrl_work **tape_work(nrl_tape_node *node);
nrl_status tape_run_collected(nrl_ctx *ctx, nrl_tape_node *node);
/* Declares that the backward of the operation just pushed, with this output, reads saved 0, which is input 0, only in
 * what it passes to tape_later. */
void tape_reads_later(nrl_ctx *ctx, const nrl_tensor *output);

/* Declares that the operation just pushed can cheaply recompute output 0 from what it saved. Later nodes of the tape
 * then do not keep that output; the backward recomputes it when the first node needs it. `recompute` writes to
 * `output`, which is already allocated. */
typedef nrl_status (*tape_remake)(nrl_ctx *ctx, nrl_tape_node *node, nrl_tensor *output);
void tape_can_remake(nrl_ctx *ctx, nrl_tensor *output, tape_remake recompute);

/* Declares that outputs 0 to n-1 of the operation just pushed have the columns of its output n, one after the other. No
 * operation reads output n, but its gradient has those of the others: tape_joint_grad returns it to the backward. */
void tape_join(nrl_ctx *ctx, nrl_tensor *const *outputs, int n);
nrl_status tape_joint_grad(nrl_ctx *ctx, nrl_tape_node *node, int n, nrl_tensor **grad);
/* A new tensor for the gradient of input i, to be overwritten and passed to nrl_tape_give; if the input is such an
 * output, its columns of the joint gradient, so that nothing is copied later. */
nrl_status tape_grad_room(nrl_ctx *ctx, nrl_tape_node *node, int i, nrl_tensor **grad);
/* Whether that would be such columns. */
bool tape_grad_is_joint(const nrl_tape_node *node, int i);

/* Returns the tensor for input i's gradient. If *overwrite is false, *grad is the input's gradient: add to it. If true,
 * overwrite *grad, then pass it to nrl_tape_give. */
nrl_status tape_grad_target(nrl_ctx *ctx, nrl_tape_node *node, int i, nrl_tensor **grad, bool *overwrite);
/* Removes and returns the gradient that input i has so far, NULL if none; it then belongs to the scope. For operations
 * that add it in their own kernel and give the sum. */
nrl_tensor *tape_take_grad(nrl_ctx *ctx, nrl_tape_node *node, int i);
/* Whether the gradient of output i may be overwritten, because no other code will read it. */
bool tape_grad_is_unshared(nrl_tape_node *node, int i);

#endif
