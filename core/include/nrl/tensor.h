/*
 * tensor.h - tensors, the operands and results of operations.
 *
 * A tensor is a dense array of 1 to NRL_MAX_DIMS dimensions on one backend. Viewed as a matrix it
 * has dims[0] * .. * dims[n-2] rows of dims[n-1] columns. Columns are contiguous; rows may have a
 * larger stride, so a slice of columns is a view and not a copy.
 *
 * Ownership: a tensor belongs to the context (nrl_ctx) that created it. Callers of an operation do
 * not free its result: a tensor lives until its scope ends, or longer while the tape needs it for
 * the backward pass. Tensors of parameters and batches outlive the step.
 * Threads: a context and its tensors belong to the [step] thread.
 */
#ifndef NRL_TENSOR_H
#define NRL_TENSOR_H
#include <nrl/plugin.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
    NRL_DTYPE_NONE = 0,
    NRL_DTYPE_F32 = 1,
    NRL_DTYPE_BF16 = 2,
    NRL_DTYPE_F16 = 3,
    NRL_DTYPE_F64 = 4,
    NRL_DTYPE_I32 = 5,
    NRL_DTYPE_I64 = 6,
    NRL_DTYPE_U8 = 7,
    NRL_DTYPE_U16 = 8 /* lo16 of split16, see param.h; no operation computes with it */
} nrl_dtype;

NRL_API size_t nrl_dtype_size(nrl_dtype dtype);                     /* bytes of one element; 0 for NONE */
NRL_API const char *nrl_dtype_name(nrl_dtype dtype);                /* "f32", "bf16", ... */
NRL_API double nrl_dtype_f64(nrl_dtype dtype, const void *element); /* one element in host memory as a number */

typedef struct nrl_ctx nrl_ctx;       /* backend, memory, tape and the current batch */
typedef struct nrl_tensor nrl_tensor; /* opaque: see the accessors */
typedef struct nrl_param nrl_param;   /* a parameter handle, see param.h */

/* A matrix as backends receive it: rows x cols elements; consecutive rows are `stride` elements apart. */
typedef struct {
    void *data; /* on the backend's device; NULL = absent (optional operands) */
    uint32_t dtype;
    uint32_t reserved;
    int64_t rows, cols, stride;
} nrl_mat;
NRL_STATIC_ASSERT(sizeof(nrl_mat) == 40, "nrl_mat is frozen: arguments of operations contain several");

NRL_API nrl_dtype nrl_tensor_dtype(const nrl_tensor *t);
NRL_API int nrl_tensor_n_dims(const nrl_tensor *t);
NRL_API int64_t nrl_tensor_dim(const nrl_tensor *t, int i); /* negative i counts from the end */
NRL_API int64_t nrl_tensor_numel(const nrl_tensor *t);
NRL_API bool nrl_tensor_has_grad(const nrl_tensor *t); /* the tape records a gradient for it */
NRL_API nrl_mat nrl_tensor_mat(const nrl_tensor *t);   /* borrowed view as a matrix */

/* Creates a tensor with undefined contents in the context's current scope. [step] */
NRL_API nrl_status nrl_tensor_new(nrl_ctx *ctx, nrl_dtype dtype, int n_dims, const int64_t *dims, nrl_tensor **out);
/* Creates a tensor and copies numel elements of the same dtype from host memory into it. [step] */
NRL_API nrl_status nrl_tensor_from_host(nrl_ctx *ctx, nrl_dtype dtype, int n_dims, const int64_t *dims,
                                        const void *data, nrl_tensor **out);
/* Converts x and writes it into an existing tensor with the same number of elements. Optimizers store
 * their results in slices this way. The tape does not record it. [step] */
NRL_API nrl_status nrl_tensor_copy(nrl_ctx *ctx, const nrl_tensor *x, nrl_tensor *to);
/* The same, but adds x to the existing contents. Strategies sum received values this way. [step] */
NRL_API nrl_status nrl_tensor_add(nrl_ctx *ctx, const nrl_tensor *x, nrl_tensor *to);
/* Creates a tensor [n] outside any scope, for values that outlive a step (slices, buckets). It lives until
 * nrl_tensor_free. NRL_ERR_MEMORY. A result of nrl_tensor_slice is freed the same way, which leaves the
 * memory it refers to untouched. */
NRL_API nrl_status nrl_tensor_persistent(nrl_ctx *ctx, nrl_dtype dtype, int64_t n, bool zero, nrl_tensor **out);
/* The same, zeroed, but outside the device's memory: in a file (`disk`) or in host memory, where operations use it like
 * any other tensor. NRL_ERR_CONFIG if the backend does not support it. */
NRL_API nrl_status nrl_tensor_elsewhere(nrl_ctx *ctx, nrl_dtype dtype, int64_t n, bool disk, nrl_tensor **out);
/* Announces that such a tensor is used soon (true), so that it can be fetched, or not for a while. Ignores other
 * tensors. */
NRL_API void nrl_tensor_expect(nrl_ctx *ctx, const nrl_tensor *t, bool soon);
/* Elements [begin, begin + n) of a contiguous tensor as a view [n]. */
NRL_API nrl_status nrl_tensor_slice(nrl_ctx *ctx, nrl_tensor *t, int64_t begin, int64_t n, nrl_tensor **out);
NRL_API void nrl_tensor_free(nrl_ctx *ctx, nrl_tensor *t); /* NULL is fine */
NRL_API nrl_status nrl_tensor_fill(nrl_ctx *ctx, nrl_tensor *t, double value);
/* Whether the host can read and write a tensor's memory (nrl_tensor_mat) while no operation uses it. */
NRL_API bool nrl_ctx_host_memory(const nrl_ctx *ctx);

/* Tensors created between begin and end are freed at end; pairs nest. Needed by code that computes outside
 * an action, such as a strategy in `leave` and `finish`. [step] */
NRL_API void nrl_scope_begin(nrl_ctx *ctx);
NRL_API void nrl_scope_end(nrl_ctx *ctx);

/* Reports a [1] f32 tensor and its weight for `row`, a row of the `metrics` that the plugin's header declares
 * (nrl/plugin.h). What a forward pass reports counts once for each micro-batch, not again when it is recomputed. [step]
 */
NRL_API nrl_status nrl_metric_report(nrl_ctx *ctx, const nrl_metric *row, nrl_tensor *value, double weight);

/* Waits for the device and converts n = numel elements to host doubles. For metrics and tests. [step] */
NRL_API nrl_status nrl_tensor_fetch(nrl_ctx *ctx, const nrl_tensor *t, double *out, int64_t n);

#ifdef __cplusplus
}
#endif
#endif
