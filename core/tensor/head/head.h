/*
 * head.h - the output head, forward and backward, in chunks: logits of a few target positions at a time.
 * Legend: P target positions, R rows of a chunk, D width, V vocabulary.
 */
#ifndef TENSOR_HEAD_H
#define TENSOR_HEAD_H
#include "tensor/internal.h"

typedef struct {
    const head_spec *spec;
    nrl_tensor *hidden;                   /* [N,D] */
    const int32_t *index;                 /* device [P]: token row of each target position */
    const int32_t *target;                /* device [P], NULL for plain logits */
    nrl_mat weight, bias;                 /* [V,D], 1 x V or absent */
    int64_t n_rows, chunk;                /* P, largest R */
    nrl_dtype dtype;                      /* of logits: f32, or bf16 */
    double soft_cap, inverse_temperature; /* includes the head's scale */
    nrl_tensor *kept;                     /* [K,V]: logits of the first K rows, or NULL */
    nrl_tensor *rows, *logits;   /* [chunk,D], [chunk,V] if K < P (rows head_pitch apart); owned by the scope */
    nrl_tensor *dlogits, *drows; /* [chunk,V] unless of the dtype of logits, [chunk,D]; allocated when needed */
    nrl_tensor *dhidden;         /* [N,D], NULL = not wanted */
    bool overwrite_dhidden;      /* dhidden has no contents yet */
} head_work;

/* Arrays [P] on the device that a chunk's values are written to or read from; NULL = not wanted. */
typedef struct {
    float *logp, *lse, *entropy, *log_sum_p2;
} head_values;
typedef struct {
    const float *lse, *entropy, *dlogp, *dentropy, *dlse;
    nrl_tensor *dlogits; /* [n,V] f32 of the whole vocabulary, for the rows of a chunk that was not kept */
} head_grads;

/* The dtype of logits that only log-probs are computed from: ctx_settings.logits, where hidden states have it. */
nrl_dtype head_dtype(const nrl_ctx *ctx, const nrl_tensor *hidden);
/* K: the number of rows whose logits fit into ctx_settings.head_keep_bytes, in whole chunks. */
int64_t head_kept_rows(const nrl_ctx *ctx, nrl_dtype dtype, int64_t n_rows, int64_t vocab);
/* The distance between two rows of logits in elements. It exceeds V if the device's products need aligned rows, unless
 * the caller has set the chunk size (complete logits are read without padding). */
int64_t head_pitch(const nrl_ctx *ctx, int64_t vocab);
/* Initialises w. dtype: of the logits. `kept` receives those of the first head_kept_rows rows, or is NULL. */
nrl_status head_open(nrl_ctx *ctx, const head_spec *spec, nrl_tensor *hidden, nrl_dtype dtype, const nrl_tensor *index,
                     const nrl_tensor *target, double temperature, nrl_tensor *kept, head_work *w);
/* Computes the logits of rows [begin, begin + n): only the matrix product. */
nrl_status head_chunk_product(nrl_ctx *ctx, head_work *w, int64_t begin, int64_t n);
/* Applies cap and temperature in place and computes the values of the rows. */
nrl_status head_chunk_values(nrl_ctx *ctx, head_work *w, int64_t begin, int64_t n, head_values values);
/* For the backward: restores the logits after head_chunk_values, kept or recomputed. */
nrl_status head_chunk_again(nrl_ctx *ctx, head_work *w, int64_t begin, int64_t n);
/* Replaces the logits after head_chunk_values by their gradient, and adds to dhidden and GRAD. */
nrl_status head_chunk_backward(nrl_ctx *ctx, head_work *w, int64_t begin, int64_t n, head_grads grads);
/* Whether the product alone gives the final logits, without cap and temperature. */
static inline bool head_is_plain(const head_work *w)
{
    return w->soft_cap == 0 && w->inverse_temperature == 1;
}

/* ---- head_combine.c: a vocabulary that is sharded over ranks ---- */
bool head_is_sharded(const head_spec *head);
/* Targets as indices into this rank's shard of the vocabulary; the batch's own targets if it is not sharded. */
nrl_status head_targets(nrl_ctx *ctx, const head_spec *head, nrl_tensor **targets);
/* Combines the values of all shards of the vocabulary, in place, except for logits. target: host [n], indices into the
 * whole vocabulary. Collective: all ranks call it. */
nrl_status head_combine(nrl_ctx *ctx, const head_spec *head, const int32_t *target, const head_tensors *s);
/* Gathers logits [n,V/R] of all R ranks to [n,V]. */
nrl_status head_whole_logits(nrl_ctx *ctx, const head_spec *head, nrl_tensor **logits);

#endif
