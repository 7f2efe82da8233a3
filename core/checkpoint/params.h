/*
 * params.h - a model's parameters and optimizer states to and from a checkpoint, under the parts'
 * names: what the run and a strategy bound is read through slots, a chunk at a time.
 */
#ifndef CHECKPOINT_PARAMS_H
#define CHECKPOINT_PARAMS_H
#include "checkpoint/checkpoint.h"
#include "model/model.h"

/* The states that are saved beside the weights: the optimizer's names, slot STATE0 + k each. */
typedef struct {
    uint32_t n;
    const char *const *names;
} params_states;

int64_t params_bytes(const model *m, const params_states *states);

/* Every parameter's MASTER (else WORK) as slot "weight", and the states of the trained ones. [step]
 */
nrl_status params_save(nrl_ctx *ctx, const model *m, const params_states *states,
                       checkpoint_writer *w);

/* The same back. WORK that is a copy of MASTER is the caller's to write anew. NRL_ERR_CONFIG where
 * the checkpoint is of another model: names the first tensor that is missing or differs. `states`
 * NULL = weights only. [step] */
nrl_status params_load(nrl_ctx *ctx, const model *m, const params_states *states,
                       const checkpoint *c);

#endif
