/*
 * loss.h - a loss of nrl.loss. loss.c reads its definition, loss_call.c runs it.
 */
#ifndef SCRIPT_LOSS_H
#define SCRIPT_LOSS_H
#include "script/tensor.h"

typedef struct script_loss {
    nrl_algorithm table;
    script_host *host;
    struct script_loss *next;
    int definition;    /* registry reference of the table given to nrl.loss */
    nrl_status failed; /* of a `weight`, which cannot report: told by the next call of the loss */
    const char *failure;
} script_loss;

/* Members of the table: they call the script's functions. */
void loss_weight(void *self, const nrl_batch *batch, double *weight);
nrl_status loss_sums(void *self, nrl_ctx *ctx, const nrl_batch *batch, nrl_tensor **sums);
nrl_status loss_step_end(void *self, const double *sums, const double *weights);

#endif
