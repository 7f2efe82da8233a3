/*
 * storage.h - memory of a model on one rank without a strategy: whole tensors bound to the slots, and
 * values brought into them from a file or an initialiser, a few MiB at a time.
 */
#ifndef RUN_STORAGE_H
#define RUN_STORAGE_H
#include "model/hf.h"

typedef struct {
    nrl_tensor **tensors; /* counted */
    size_t n;
    int64_t work_bytes, master_bytes, gradient_bytes, state_bytes;
} storage;

/* Binds WORK in `compute`; where `train`, also GRAD_ACC = GRAD, MASTER (WORK itself when that is f32)
 * and n_states zeroed states of every trained parameter. NRL_ERR_MEMORY. [main] */
nrl_status storage_bind(nrl_ctx *ctx, model *m, nrl_dtype compute, bool train, uint32_t n_states,
                        storage *out);
void storage_free(nrl_ctx *ctx, model *m, storage *s);
/* Counts the bytes that storage_bind would take, and takes none. */
void storage_plan(const model *m, nrl_dtype compute, bool train, uint32_t n_states, storage *out);

/* Fills MASTER (where bound) and WORK of every parameter from f32 values. [main] */
nrl_status storage_load(nrl_ctx *ctx, model *m, hf_source source, void *user);
/* WORK of one parameter again from its MASTER. [main] */
nrl_status storage_refresh(nrl_ctx *ctx, nrl_param *p);

/* An hf_source that reads MASTER, else WORK; user is the ctx. */
nrl_status storage_source(void *ctx, const nrl_param *p, int64_t begin, int64_t n, float *out);
/* Sources for storage_load. */
typedef struct {
    const model *m;
    const hf_weights *weights; /* NULL: initialised by seed */
    uint64_t seed;
} storage_origin;
nrl_status storage_read(void *origin, const nrl_param *p, int64_t begin, int64_t n, float *out);

#endif
