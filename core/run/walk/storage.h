/*
 * storage.h - memory of a model on this rank: allocates tensors for slots that no strategy has bound, with as many
 * elements as the layouts leave; loads values from a file or an initialiser, and reads them, a few MiB at a time.
 */
#ifndef RUN_STORAGE_H
#define RUN_STORAGE_H
#include "mesh/layout.h"
#include "model/weights.h"

typedef struct {
    nrl_mesh *mesh;    /* NULL = one rank */
    nrl_dtype compute; /* of WEIGHT */
    bool train;        /* also gradients, masters and states */
    bool bf16_gradients;
    bool split16; /* masters as the halves of nrl/param.h; compute is bf16 then */
    uint32_t n_states;
    bool gathers_weights, reduces_grads; /* the strategy's answers, see nrl/parallel.h */
} storage_spec;

typedef struct {
    nrl_tensor **tensors; /* counted */
    size_t n;
    /* held on this rank for the whole run, whoever allocated it */
    int64_t work_bytes, master_bytes, gradient_bytes, state_bytes;
    int64_t buffer_bytes; /* of gradient_bytes: see gradients.h */
} storage;

/* Binds every slot that is still empty: WEIGHT in `compute`; with `train` also GRAD, GRAD_SHARD (GRAD itself if that is
 * unsharded), MASTER (WEIGHT itself if that is f32 and unsharded; HI16 and LO16 with split16) and n_states zeroed
 * states of every trained parameter. With bf16 gradients there is GRAD_SHARD and no GRAD. A parameter without elements
 * on this rank has no local slots. NRL_ERR_MEMORY. [main] */
nrl_status storage_bind(nrl_ctx *ctx, model *m, const storage_spec *spec, storage *out);
/* Backward adds to the f32 buffer of gradients.h. */
bool storage_buffers_gradients(const storage_spec *spec);
void storage_free(nrl_ctx *ctx, model *m, storage *s);
/* Counts the bytes that storage_bind would need, and allocates nothing. */
void storage_plan(const model *m, const storage_spec *spec, storage *out);

/* Fills the exact values (tensor/split16.h) and unsharded WEIGHT of every parameter from f32 values; requests only the
 * ranges that are on this rank. [main] */
nrl_status storage_load(nrl_ctx *ctx, model *m, const nrl_mesh *mesh, weights_source source, void *user);

/* A weights_source of the exact values of all ranks: each range is sent by the lowest rank that holds it, so that no
 * rank ever holds a whole parameter. All ranks ask for the same ranges in the same order; user is a storage_view. */
typedef struct {
    nrl_ctx *ctx;
    nrl_mesh *mesh;        /* NULL = one rank */
    weights_source packed; /* of weights that are stored quantized; may be NULL if there are none */
    void *packed_user;
} storage_view;
nrl_status storage_gather(void *view, const nrl_param *p, int64_t begin, int64_t n, float *out);

#endif
