/*
 * tensor.h - the values that operations take and give.
 *
 * A tensor is a dense array of 1 to NRL_MAX_DIMS dimensions on one backend. Seen as a matrix it
 * has dims[0] * .. * dims[n-2] rows of dims[n-1] columns; columns are contiguous, rows may be
 * apart (a slice of columns is a view, not a copy).
 *
 * Ownership: tensors belong to the context (nrl_ctx) they were made in. Whoever calls an operation
 * never frees its result: a tensor lives until the scope that made it ends, or longer while the
 * tape needs it for a backward pass. Tensors of parameters and batches outlive the step.
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
    NRL_DTYPE_F32,
    NRL_DTYPE_BF16,
    NRL_DTYPE_F16,
    NRL_DTYPE_F64,
    NRL_DTYPE_I32,
    NRL_DTYPE_I64,
    NRL_DTYPE_U8,
    NRL_DTYPE_U16 /* lower halves of split16, see param.h; nothing computes on it */
} nrl_dtype;

NRL_API size_t nrl_dtype_size(nrl_dtype dtype);      /* bytes of one element; 0 for NONE */
NRL_API const char *nrl_dtype_name(nrl_dtype dtype); /* "f32", "bf16", ... */
NRL_API double nrl_dtype_f64(nrl_dtype dtype, const void *element); /* one element in host memory as a number */

typedef struct nrl_ctx nrl_ctx;       /* backend + memory + tape + the batch at hand */
typedef struct nrl_tensor nrl_tensor; /* opaque: see the accessors */
typedef struct nrl_param nrl_param;   /* a parameter handle, see param.h */

/* A matrix as a backend sees it: rows x cols elements, consecutive rows `stride` elements apart. */
typedef struct {
    void *data; /* on the backend's device; NULL = absent (optional operands) */
    uint32_t dtype;
    uint32_t reserved;
    int64_t rows, cols, stride;
} nrl_mat;

NRL_API nrl_dtype nrl_tensor_dtype(const nrl_tensor *t);
NRL_API int nrl_tensor_n_dims(const nrl_tensor *t);
NRL_API int64_t nrl_tensor_dim(const nrl_tensor *t, int i); /* negative i counts from the end */
NRL_API int64_t nrl_tensor_numel(const nrl_tensor *t);
NRL_API bool nrl_tensor_has_grad(const nrl_tensor *t); /* a gradient flows through it */
NRL_API nrl_mat nrl_tensor_mat(const nrl_tensor *t);   /* borrowed view as a matrix */

/* A new tensor with undefined contents in the context's current scope. [step] */
NRL_API nrl_status nrl_tensor_new(nrl_ctx *ctx, nrl_dtype dtype, int n_dims, const int64_t *dims,
                                  nrl_tensor **out);
/* A new tensor filled from host memory (numel elements of the same dtype, copied). [step] */
NRL_API nrl_status nrl_tensor_from_host(nrl_ctx *ctx, nrl_dtype dtype, int n_dims,
                                        const int64_t *dims, const void *data, nrl_tensor **out);
/* Writes x, converted, into an existing tensor of as many elements: how an optimizer stores what it
 * computed in its slices. Not recorded on a tape. [step] */
NRL_API nrl_status nrl_tensor_copy(nrl_ctx *ctx, const nrl_tensor *x, nrl_tensor *to);
/* The same, added to what is there: how a strategy sums what arrived. [step] */
NRL_API nrl_status nrl_tensor_add(nrl_ctx *ctx, const nrl_tensor *x, nrl_tensor *to);
/* A tensor of no scope, for what outlives a step (slices, buckets): [n], zeroed or not, until
 * nrl_tensor_free. NRL_ERR_MEMORY. A tensor made of nrl_tensor_stretch is freed alike, and keeps the
 * memory it looks into. */
NRL_API nrl_status nrl_tensor_persistent(nrl_ctx *ctx, nrl_dtype dtype, int64_t n, bool zero,
                                         nrl_tensor **out);
/* Elements [begin, begin + n) of a contiguous tensor, as [n]. */
NRL_API nrl_status nrl_tensor_stretch(nrl_ctx *ctx, nrl_tensor *t, int64_t begin, int64_t n,
                                      nrl_tensor **out);
NRL_API void nrl_tensor_free(nrl_ctx *ctx, nrl_tensor *t); /* NULL is fine */
NRL_API nrl_status nrl_tensor_fill(nrl_ctx *ctx, nrl_tensor *t, double value);
/* The host can read and write the tensor's memory (nrl_tensor_mat) while nothing computes on it. */
NRL_API bool nrl_ctx_host_memory(const nrl_ctx *ctx);

/* Tensors made between begin and end die at end; pairs nest. For whoever computes outside a visit, as a
 * strategy does in `leave` and `finish`. [step] */
NRL_API void nrl_scope_begin(nrl_ctx *ctx);
NRL_API void nrl_scope_end(nrl_ctx *ctx);

/* Waits for the device and converts to host doubles; n = numel. For metrics and tests. [step] */
NRL_API nrl_status nrl_tensor_fetch(nrl_ctx *ctx, const nrl_tensor *t, double *out, int64_t n);

#ifdef __cplusplus
}
#endif
#endif
