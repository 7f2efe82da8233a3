/*
 * head.h - the head chunk by chunk: logits of a few target positions at a time, forward and backward.
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
    double soft_cap, inverse_temperature; /* with the head's scale folded in */
    nrl_tensor *kept;                     /* f32 [K,V]: logits of the first K rows, or NULL */
    nrl_tensor *rows, *logits;   /* [chunk,D], f32 [chunk,V] where K < P (rows head_pitch apart); of the scope */
    nrl_tensor *dlogits, *drows; /* [chunk,V] unless f32, [chunk,D]; made when needed */
    nrl_tensor *dhidden;         /* [N,D], NULL = not wanted */
    bool overwrite_dhidden;      /* nothing was added to dhidden yet */
} head_work;

/* Where a chunk's values go or come from, [P] arrays on the device; NULL = not wanted. */
typedef struct {
    float *logp, *lse, *entropy, *log_sum_p2;
} head_values;
typedef struct {
    const float *lse, *entropy, *dlogp, *dentropy;
} head_grads;

/* K: how many of n_rows have room within ctx_set_head_keep, in whole chunks. */
int64_t head_kept_rows(const nrl_ctx *ctx, int64_t n_rows, int64_t vocab);
/* Elements from one row of logits to the next: more than there are where a device's products want
 * aligned rows, unless somebody else said how many rows a chunk has (whole logits are read as they lie). */
int64_t head_pitch(const nrl_ctx *ctx, int64_t vocab);
/* `kept` has room for the logits of the first head_kept_rows, or is NULL. */
nrl_status head_open(nrl_ctx *ctx, const head_spec *spec, nrl_tensor *hidden, const nrl_tensor *index,
                     const nrl_tensor *target, double temperature, nrl_tensor *kept, head_work *w);
/* Logits of rows [begin, begin + n): the product alone. */
nrl_status head_chunk_product(nrl_ctx *ctx, head_work *w, int64_t begin, int64_t n);
/* Cap and temperature in place, and the values of the rows. */
nrl_status head_chunk_values(nrl_ctx *ctx, head_work *w, int64_t begin, int64_t n, head_values values);
/* On the way back: logits as head_chunk_values left them, which are kept or recomputed. */
nrl_status head_chunk_again(nrl_ctx *ctx, head_work *w, int64_t begin, int64_t n);
/* Logits (as head_chunk_values left them) become their gradient, which goes to dhidden, GRAD.
 */
nrl_status head_chunk_backward(nrl_ctx *ctx, head_work *w, int64_t begin, int64_t n, head_grads grads);
/* The product alone leaves logits as head_chunk_values would. */
static inline bool head_is_plain(const head_work *w)
{
    return w->soft_cap == 0 && w->inverse_temperature == 1;
}

/* ---- head_combine.c: a vocabulary that an axis has cut ---- */
bool head_is_sharded(const head_spec *head);
/* Targets of the batch's target positions in the vocabulary that is here; the batch's own where all of it is. */
nrl_status head_targets(nrl_ctx *ctx, const head_spec *head, nrl_tensor **targets);
/* [n] f32 each; NULL = not wanted. */
typedef struct {
    nrl_tensor *logp, *lse, *entropy, *log_sum_p2;
} head_stats;
/* Values of this rank's vocabulary become those of the whole; target: host [n], in the whole. All ranks call it. */
nrl_status head_combine(nrl_ctx *ctx, const head_spec *head, const int32_t *target, const head_stats *s);
/* [n,V/R] becomes [n,V]. */
nrl_status head_whole_logits(nrl_ctx *ctx, const head_spec *head, nrl_tensor **logits);

#endif
