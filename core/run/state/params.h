/*
 * params.h - saves the parameters and optimizer states of a model under the names of their parts, and loads them.
 * Everything goes through slots and layouts, so any number of ranks can save and any other number can load.
 */
#ifndef RUN_PARAMS_H
#define RUN_PARAMS_H
#include "checkpoint/checkpoint.h"
#include "mesh/layout.h"
#include "model/model.h"

/* Which ranks save, and what of the model they save. */
typedef struct {
    const nrl_mesh *mesh; /* NULL = one rank */
    uint32_t n_states;    /* optimizer states: state_names[k] is in slot STATE0 + k */
    const char *const *state_names;
    bool trained_only; /* frozen weights are neither saved nor loaded */
    /* Tensors beside these that the caller saves and loads itself, for params_check_read; NULL: none. */
    bool (*reads)(const void *reads_user, const char *name, const char *slot);
    const void *reads_user;
} params_scope;

/* The uncompressed bytes that this rank saves. Works before the parameters have memory. */
int64_t params_bytes(const model *m, const params_scope *scope);

/* Saves the exact values of every parameter as slot "weight" (MASTER, or both halves of a split master as f32, or else
 * WEIGHT), and the optimizer states of the trained parameters. This rank saves what it holds; if other ranks hold the
 * same shard, each saves a share of it. The tensors must not change until checkpoint_submit returns. [step] */
nrl_status params_save(nrl_ctx *ctx, const model *m, const params_scope *scope, checkpoint_writer *w);

/* Loads the same values from a checkpoint of any number of ranks. If WEIGHT is a rounded copy of MASTER, the caller
 * must update it. NRL_ERR_CONFIG if the checkpoint belongs to another model; names the first tensor that is missing or
 * differs. [step] */
nrl_status params_load(nrl_ctx *ctx, const model *m, const params_scope *scope, checkpoint *c);

/* NRL_ERR_CONFIG if the checkpoint holds a tensor that params_load would not read, such as a layer that the model does
 * not have or a state that the optimizer does not keep: the next save would lose it. */
nrl_status params_check_read(const model *m, const params_scope *scope, const checkpoint *c);

#endif
