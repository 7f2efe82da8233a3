/*
 * gradients.h - train.gradients: bf16. Backward adds in f32, into one buffer that units use in turns; after the
 * backward action of a unit its gradients are rounded into GRAD_SHARD, or added to those of earlier micro-batches
 * there. So products, norms and embeddings keep their f32 sums, and a micro-batch costs one rounding per unit. A
 * strategy that reduces gradients itself (nrl/parallel.h) also rounds them itself.
 */
#ifndef RUN_GRADIENTS_H
#define RUN_GRADIENTS_H
#include "model/model.h"
#include "tensor/ctx.h"
#include <nrl/parallel.h>

typedef struct {
    nrl_tensor *buffer;  /* f32, as large as the largest unit's trained parameters; NULL: closed */
    nrl_tensor **views;  /* [all uses], counted: those of unit u from first[u] on */
    int32_t *first;      /* [n_units + 1] */
    bool *grad_is_empty; /* [n_params] GRAD_SHARD holds nothing of this step yet; of the unit that is held */
    const model *m;
    int32_t held; /* unit whose gradients the buffer has; -1: none */
} gradients;

/* Bytes of the buffer. */
int64_t gradients_bytes(const model *m);
/* After storage_bind; the model outlives it. [main] */
nrl_status gradients_open(nrl_ctx *ctx, const model *m, gradients *out);
void gradients_close(nrl_ctx *ctx, gradients *g);

/* Around an action, between the strategy's enter and leave: GRAD of the parameters that the unit uses is the buffer.
 * Outside actions, nrl_param_grad_is_empty tells whether GRAD_SHARD is still empty. [step] */
void gradients_enter(gradients *g, const nrl_action *actions, int64_t i);
nrl_status gradients_leave(gradients *g, nrl_ctx *ctx, const nrl_action *v);
/* Call it when a step begins: discards the gradients of the previous step. */
void gradients_forget(gradients *g);

#endif
