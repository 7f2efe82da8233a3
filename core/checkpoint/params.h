/*
 * params.h - a model's parameters and optimizer states to and from a checkpoint, under the parts'
 * names: what the run and a strategy bound is read through slots and layouts, so any number of ranks
 * saves and any other number loads.
 */
#ifndef CHECKPOINT_PARAMS_H
#define CHECKPOINT_PARAMS_H
#include "checkpoint/checkpoint.h"
#include "model/model.h"

/* What is saved of a model, and who saves it. */
typedef struct {
    const nrl_mesh *mesh; /* NULL = one rank */
    uint32_t n_states;    /* saved beside the weights: the optimizer's names, slot STATE0 + k each */
    const char *const *state_names;
    bool trained_only; /* frozen weights are not saved, nor looked for */
} params_scope;

/* Bytes of numbers that this rank saves; also before anything is bound. */
int64_t params_bytes(const model *m, const params_scope *scope);

/* Every parameter's exact values (MASTER or both halves of it, in f32; else WEIGHT) as slot "weight", and the
 * states of the trained ones: what lies here, and where other ranks hold the same, this rank's share of it.
 * The tensors stay as they are until checkpoint_submit returns; halves are joined in a copy. [step] */
nrl_status params_save(nrl_ctx *ctx, const model *m, const params_scope *scope, checkpoint_writer *w);

/* The same back, from a checkpoint of any number of ranks. WEIGHT that is a copy of MASTER is the
 * caller's to write anew. NRL_ERR_CONFIG where the checkpoint is of another model: names the first
 * tensor that is missing or differs. [step] */
nrl_status params_load(nrl_ctx *ctx, const model *m, const params_scope *scope, checkpoint *c);

/* NRL_ERR_CONFIG where the checkpoint holds a tensor that params_load would not read: layers that the model has not,
 * states that the optimizer does not keep. The next save would lose it. */
nrl_status params_check_read(const model *m, const params_scope *scope, const checkpoint *c);

/* Every part's weight is there in its shape: what can be told before any memory is bound. Errors as
 * params_load. */
nrl_status params_check(const model *m, const checkpoint *c);

#endif
