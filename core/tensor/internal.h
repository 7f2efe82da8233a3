/*
 * internal.h - the structs nrl_ctx and nrl_tensor, and helpers that operations share. Only for the files of
 * core/tensor; other code includes ctx.h and the public headers.
 *
 * A tensor is a header and a view into a refcounted block. `uses` counts references to the contents (scope, tape,
 * owner); `refs` counts tape nodes that need only shape and gradient. When `uses` becomes 0, the block is released; the
 * header lives until `refs` is 0 too.
 */
#ifndef TENSOR_INTERNAL_H
#define TENSOR_INTERNAL_H
#include "tensor/device/backend_call.h"
#include "tensor/ctx.h"
#include "tensor/param.h"
#include "tensor/memory/pool.h"

struct nrl_tensor {
    pool_block *block; /* NULL once the contents are released */
    void *data;
    nrl_tensor *grad;         /* refcounted; only during a backward */
    nrl_tensor *next;         /* in the list of spare headers */
    nrl_tape_node *maker;     /* the node that can recompute the contents; NULL = none */
    nrl_tape_node *collector; /* see tape_collect; NULL = none */
    nrl_tensor *joint;        /* see tape_join; NULL = none */
    int64_t joint_column;
    int64_t dims[NRL_MAX_DIMS];
    int64_t numel, rows, cols, stride; /* as a matrix; stride in elements */
    int32_t uses, refs;
    nrl_dtype dtype;
    int32_t n_dims;
    bool has_grad, has_room; /* has_room: the gradient's place in that of `joint` was given out */
    bool is_elsewhere;       /* in memory of the extension "offload" */
};

/* Index arrays of the current batch, i32 on the device; NULL if the batch does not have the array. */
typedef struct {
    nrl_tensor *tokens, *positions;     /* [N] */
    nrl_tensor *cu_seqlens, *prefix;    /* [S+n_prompts+1], [S+n_prompts] */
    nrl_tensor *row_token, *row_target; /* [P] */
    /* [N] i64 keys of dropout masks, for whole rows and for this rank's share of columns; NULL until first use */
    nrl_tensor *random_rows[2];
    nrl_tensor *packing; /* of nrl_packing; NULL until first use */
} ctx_index;

typedef struct rope_table rope_table;
typedef struct {
    const nrl_metric *row;
    uint32_t index;
    nrl_tensor *value; /* refcounted */
    double weight;
} pending_metric;

/* A table of nrl_quantize_code. */
typedef struct ctx_code {
    const float *host;
    nrl_tensor *tensor; /* counted */
    struct ctx_code *next;
} ctx_code;

/* Of ctx_read_ahead. */
typedef struct {
    struct {
        nrl_tensor *tensor; /* refcounted */
        int64_t at;         /* in `values` */
    } * list;
    int64_t n, next; /* entries; where the search begins */
    size_t room, value_room;
    double *values;    /* pinned */
    nrl_event *copied; /* NULL: the values are there */
    bool is_off;       /* there was no pinned memory */
} read_ahead;

enum { CTX_MAX_TAPES = 8 };

struct nrl_ctx {
    device *device;
    nrl_stream *stream; /* NULL on backends without streams */
    nrl_status (*before_read)(void *user);
    void *before_read_user;
    read_ahead ahead;
    ctx_settings settings;
    bool fp8, fp8_blocks; /* ctx_set_fp8 */
    nrl_tensor *fp8_scale, *fp8_amax;
    pool pool;
    arena memory; /* headers of tensors and nodes */
    nrl_tensor *spare_tensors;
    nrl_tape_node *spare_nodes;

    nrl_tensor **made; /* the tensors of all open scopes, oldest first */
    size_t n_made, made_capacity;
    size_t *marks; /* n_made at each scope's begin */
    size_t n_marks, marks_capacity;

    struct {
        const nrl_offload *table; /* NULL = not open */
        const char *folder;
    } offload[CTX_OFFLOADS];
    const nrl_offload *elsewhere;       /* NULL until it is called */
    size_t away_bytes, away_peak_bytes; /* that tapes saved and have elsewhere */
    tape *tapes[CTX_MAX_TAPES];         /* the last tape records; a NULL entry pauses recording */
    int n_tapes;

    nrl_batch *batch;
    ctx_index index;
    rope_table *ropes;
    ctx_code *codes;
    uint64_t random_key; /* 0 = dropout is off */
    uint64_t n_random;

    pending_metric *metrics;
    ctx_metric *taken;
    size_t n_metrics, metrics_capacity;
    int metrics_muted;
    const ctx_profiler *profiler; /* NULL = off */
    profile *profile;             /* the profiler's */
};

static inline nrl_mat tensor_mat(const nrl_tensor *t)
{
    return (nrl_mat){t->data, (uint32_t)t->dtype, 0, t->rows, t->cols, t->stride};
}

/* The same, but a 1-D tensor is n x 1: a vector whose elements are rows (gather, scatter). */
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

/* Whether no other tensor or owner refers to the contents, so that the caller may overwrite them. */
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

/* ---- read_ahead.c ---- */
/* ctx_read_ahead, with the metrics reported so far or without them. */
nrl_status read_ahead_start(nrl_ctx *ctx, nrl_tensor *const *tensors, int64_t n, bool metrics);
bool read_ahead_find(nrl_ctx *ctx, const nrl_tensor *t); /* whether t is read ahead */
nrl_status read_ahead_fetch(nrl_ctx *ctx, double *out);  /* the tensor that was found */
void read_ahead_free(nrl_ctx *ctx);

/* ---- tensor.c: creating tensors; results belong to the current scope unless stated otherwise ---- */
nrl_status dims_numel(int n_dims, const int64_t *dims, int64_t *numel); /* checks the dims */
nrl_tensor *tensor_header(nrl_ctx *ctx, nrl_dtype dtype, int n_dims, const int64_t *dims);
/* x's dims with the last one replaced. */
nrl_status tensor_with_columns(nrl_ctx *ctx, nrl_dtype dtype, const nrl_tensor *x, int64_t cols, nrl_tensor **out);
nrl_status tensor_like(nrl_ctx *ctx, const nrl_tensor *x, nrl_tensor **out);
/* n rows of x's width; n elements if x is a vector. */
nrl_status tensor_rows_like(nrl_ctx *ctx, const nrl_tensor *x, int64_t n, nrl_tensor **out);
nrl_status tensor_vector(nrl_ctx *ctx, nrl_dtype dtype, int64_t n, nrl_tensor **out);
nrl_status tensor_matrix(nrl_ctx *ctx, nrl_dtype dtype, int64_t rows, int64_t cols, nrl_tensor **out);
/* A view that starts `offset` elements into x, with `stride` elements between rows. */
nrl_tensor *tensor_view(nrl_ctx *ctx, nrl_tensor *x, int64_t offset, int n_dims, const int64_t *dims, int64_t stride);
/* Makes a tensor of host memory. Borrows the memory if the device can read it and `keep` is set, which means that it
 * lives as long as the tensor; else copies it. */
nrl_status tensor_of_host(nrl_ctx *ctx, nrl_dtype dtype, int64_t n, const void *host, bool keep, nrl_tensor **out);
void ctx_own(nrl_ctx *ctx, nrl_tensor *t); /* moves the caller's reference to the current scope */
void tensor_ref(nrl_tensor *t);            /* for tape nodes; t may be NULL */
void tensor_unref(nrl_ctx *ctx, nrl_tensor *t);

/* ---- common steps of operations ---- */
nrl_status tensor_fill(nrl_ctx *ctx, nrl_tensor *t, double value);
/* y = x, converting; y += x. */
nrl_status tensor_copy(nrl_ctx *ctx, const nrl_tensor *x, nrl_tensor *y);
nrl_status tensor_accumulate(nrl_ctx *ctx, const nrl_tensor *x, nrl_tensor *y);
/* A new tensor of x's shape and dtype with b (1 x C, R x 1 or one element) broadcast. */
nrl_status tensor_expand(nrl_ctx *ctx, const nrl_tensor *b, const nrl_tensor *x, nrl_tensor **out);

/* ---- op_dropout.c ---- */
/* nrl_op_dropout of the columns from cols * index on of a matrix [N, cols * count]: ranks that share the columns drop
 * the same elements as a single rank. */
nrl_status dropout_share(nrl_ctx *ctx, nrl_tensor *x, double p, int64_t index, int64_t count, nrl_tensor **y);

/* ---- param.c ---- */
/* The WEIGHT of p as a matrix [dims[0], rest]; vectors are 1 x n. */
nrl_status param_work(const nrl_param *p, nrl_mat *mat);
/* Adds the noise of ctx_settings to the embedded tokens y [N,D], which no operation has read yet. */
nrl_status embedding_noise(nrl_ctx *ctx, nrl_tensor *y);
/* The GRAD of p likewise. *overwrite tells the caller to overwrite instead of add; the next call returns false. If p is
 * frozen or NULL, *mat is absent and the result NRL_OK. */
nrl_status param_grad(nrl_param *p, nrl_mat *mat, bool *overwrite);

#endif
