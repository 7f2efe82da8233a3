/*
 * tape.h - the walk back, for the operations of this folder.
 *
 * A node refers to its operands' headers (shape, gradient) and holds the contents of what it saved.
 * Gradients hang on the operands' headers while the tape is walked.
 */
#ifndef TENSOR_TAPE_H
#define TENSOR_TAPE_H
#include "tensor/internal.h"

/* A tape is on: operations whose operands carry gradients record themselves. */
bool tape_records(const nrl_ctx *ctx);

/* As nrl_tape_push; `trained`: a parameter of the operation wants a gradient, so record even where
 * no input does. */
nrl_status tape_push(nrl_ctx *ctx, const nrl_tape_record *record, bool trained);

/* Says of the operation just pushed that it can make output 0 again, cheaply and from what it
 * saved: later nodes of the tape then do not keep that output, and the walk back has it made when
 * the first of them needs it. `recompute` fills *output, whose memory is there. */
typedef nrl_status (*tape_remake)(nrl_ctx *ctx, nrl_tape_node *node, nrl_tensor *output);
void tape_can_remake(nrl_ctx *ctx, nrl_tensor *output, tape_remake recompute);

/* Where input i's gradient may be written: *overwrite false = add to what *grad holds (it is the
 * input's gradient already); true = overwrite *grad, then nrl_tape_give it. */
nrl_status tape_grad_target(nrl_ctx *ctx, nrl_tape_node *node, int i, nrl_tensor **grad, bool *overwrite);
/* Takes away the gradient that input i has so far (the scope's now), NULL if none: for operations
 * that add it inside their own pass and give the sum. */
nrl_tensor *tape_take_grad(nrl_ctx *ctx, nrl_tape_node *node, int i);
/* The gradient of output i may be overwritten: nobody else will read it. */
bool tape_grad_is_unshared(nrl_tape_node *node, int i);

#endif
