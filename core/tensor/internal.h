/*
 * internal.h - the structs behind nrl_ctx and nrl_tensor and the helpers that operations share.
 * For the files of core/tensor only; everybody else sees ctx.h and the public headers.
 *
 * A tensor is a header and a view into a counted block. `uses` counts who needs the contents
 * (scope, tape, owner); `refs` counts tape nodes that need only shape and gradient. When uses falls
 * to zero the block is released though the header may live on.
 */
#ifndef TENSOR_INTERNAL_H
#define TENSOR_INTERNAL_H
#include "tensor/backend_call.h"
#include "tensor/ctx.h"
#include "tensor/param.h"
#include "tensor/pool.h"

struct nrl_tensor {
    pool_block *block; /* NULL once the contents are released */
    void *data;
    nrl_tensor *grad;     /* counted; only while a tape is walked back */
    nrl_tensor *next;     /* among spare headers */
    nrl_tape_node *maker; /* the node that can make the contents again; NULL = none */
    int64_t dims[NRL_MAX_DIMS];
    int64_t numel, rows, cols, stride; /* as a matrix; stride in elements */
    int32_t uses, refs;
    nrl_dtype dtype;
    int32_t n_dims;
    bool has_grad;
};

/* Index arrays of the current batch, i32 on the device; NULL where the batch has none. */
typedef struct {
    nrl_tensor *tokens, *positions;     /* [N] */
    nrl_tensor *cu_seqlens, *prefix;    /* [S+n_prompts+1], [S+n_prompts] */
    nrl_tensor *row_token, *row_target; /* [P] */
    /* [N] i64 that masks of dropout are keyed by, of whole rows and of this rank's share; NULL until wanted */
    nrl_tensor *random_rows[2];
} ctx_index;

typedef struct rope_table rope_table;
typedef struct profile profile;
typedef struct {
    uint32_t index;
    nrl_tensor *value; /* counted */
    double weight;
} pending_metric;

enum { CTX_MAX_TAPES = 8 };

struct nrl_ctx {
    device *device;
    nrl_stream *stream; /* NULL on backends without streams */
    nrl_status (*before_read)(void *user);
    void *before_read_user;
    nrl_dtype compute;
    pool pool;
    arena memory; /* headers of tensors and nodes */
    nrl_tensor *spare_tensors;
    nrl_tape_node *spare_nodes;

    nrl_tensor **made; /* of all open scopes, oldest first */
    size_t n_made, made_capacity;
    size_t *marks; /* n_made at each scope's begin */
    size_t n_marks, marks_capacity;

    tape *tapes[CTX_MAX_TAPES]; /* the last one records; NULL entries pause recording */
    int n_tapes;

    nrl_batch *batch;
    ctx_index index;
    rope_table *ropes;
    kv_cache *cache;
    int64_t head_chunk_rows;     /* 0 = chosen from the vocabulary */
    int64_t head_keep_bytes;     /* of logits, from a head's forward to its backward */
    bool adapters_off;           /* linear is the plain product */
    tp_region_answer tp_regions; /* NULL = identity */
    void *tp_regions_user;
    uint64_t random_key; /* 0 = dropout is off */
    uint64_t n_random;

    pending_metric *metrics;
    ctx_metric *taken;
    size_t n_metrics, metrics_capacity;
    profile *profile; /* NULL while off */
    double flops;     /* see ctx_flops */
};

static inline nrl_mat tensor_mat(const nrl_tensor *t)
{
    return (nrl_mat){t->data, (uint32_t)t->dtype, 0, t->rows, t->cols, t->stride};
}

/* The same memory as n x 1 for 1-D tensors: vectors whose elements are rows (gather, scatter). */
static inline nrl_mat tensor_rows_mat(const nrl_tensor *t)
{
    if (t->n_dims > 1) return tensor_mat(t);
    return (nrl_mat){t->data, (uint32_t)t->dtype, 0, t->cols, 1, 1};
}

static inline bool tensor_is_contiguous(const nrl_tensor *t)
{
    return t->stride == t->cols || t->rows <= 1;
}

static inline const int32_t *tensor_index(const nrl_tensor *t)
{
    return t ? t->data : NULL;
}

/* No other tensor or holder sees these contents: they may be overwritten by the one who asks. */
static inline bool tensor_is_unshared(const nrl_tensor *t)
{
    return t->uses == 1 && t->block->count == 1;
}

/* Same rows and columns. */
static inline bool tensor_same_matrix(const nrl_tensor *a, const nrl_tensor *b)
{
    return a->rows == b->rows && a->cols == b->cols;
}

typedef struct {
    char text[96];
} shape_text;
shape_text tensor_shape(const nrl_tensor *t); /* "[3,5]" for messages */
shape_text dims_shape(int n_dims, const int64_t *dims);

/* ---- tensor.c: making tensors; results belong to the current scope unless said ---- */
nrl_status dims_numel(int n_dims, const int64_t *dims, int64_t *numel); /* checks the dims */
nrl_tensor *tensor_header(nrl_ctx *ctx, nrl_dtype dtype, int n_dims, const int64_t *dims);
/* x's dims with the last one replaced. */
nrl_status tensor_with_columns(nrl_ctx *ctx, nrl_dtype dtype, const nrl_tensor *x, int64_t cols, nrl_tensor **out);
nrl_status tensor_like(nrl_ctx *ctx, const nrl_tensor *x, nrl_tensor **out);
nrl_status tensor_vector(nrl_ctx *ctx, nrl_dtype dtype, int64_t n, nrl_tensor **out);
nrl_status tensor_matrix(nrl_ctx *ctx, nrl_dtype dtype, int64_t rows, int64_t cols, nrl_tensor **out);
/* A view that starts `offset` elements into x; rows stay apart as in x where dims has two entries.
 */
nrl_tensor *tensor_view(nrl_ctx *ctx, nrl_tensor *x, int64_t offset, int n_dims, const int64_t *dims, int64_t stride);
/* Host memory as a tensor: borrowed where the device can read it and `keep` says that it lives as
 * long as the tensor, else copied. */
nrl_status tensor_of_host(nrl_ctx *ctx, nrl_dtype dtype, int64_t n, const void *host, bool keep, nrl_tensor **out);
void ctx_own(nrl_ctx *ctx, nrl_tensor *t); /* the current scope takes the one use */
void tensor_ref(nrl_tensor *t);            /* for tape nodes; NULL is fine */
void tensor_unref(nrl_ctx *ctx, nrl_tensor *t);

/* ---- common steps of operations ---- */
nrl_status tensor_fill(nrl_ctx *ctx, nrl_tensor *t, double value);
/* y = x, converting; y += x. */
nrl_status tensor_copy(nrl_ctx *ctx, const nrl_tensor *x, nrl_tensor *y);
nrl_status tensor_accumulate(nrl_ctx *ctx, const nrl_tensor *x, nrl_tensor *y);
/* A new tensor of x's shape and dtype with b (1 x C, R x 1 or one element) repeated. */
nrl_status tensor_expand(nrl_ctx *ctx, const nrl_tensor *b, const nrl_tensor *x, nrl_tensor **out);

/* ---- op_dropout.c ---- */
/* As nrl_op_dropout of a matrix [N, cols * count] of which x has the columns from cols * index on: ranks that share
 * the columns drop what one rank would. */
nrl_status dropout_share(nrl_ctx *ctx, nrl_tensor *x, double p, int64_t index, int64_t count, nrl_tensor **y);

/* ---- param.c ---- */
/* WEIGHT of p as [dims[0], rest]; vectors as 1 x n. */
nrl_status param_work(const nrl_param *p, nrl_mat *mat);
/* GRAD likewise; *overwrite says whether to overwrite, and is cleared for next time. Absent mat and
 * NRL_OK when p is frozen or NULL. */
nrl_status param_grad(nrl_param *p, nrl_mat *mat, bool *overwrite);

#endif
