/*
 * custom_op.h - operations that a plugin provides, with its own kernels for some backends.
 *
 * An operation is a table: its name and, for each backend, a forward and a backward kernel. A function of the plugin
 * checks shapes, creates the outputs and calls nrl_op_custom, which finds the kernels, runs the forward, and records
 * the backward on the tape. Recomputation, pipelines and accumulation work as with the operations of op.h. A run on a
 * backend for which an operation has no kernels is refused when it is opened. Kernels may also come from the backend:
 * its table lists them by the names of the operations (nrl_backend.custom_ops), so neither plugin has to know the
 * other.
 *
 *     static const nrl_kernel kernels[] = {{"BACKEND", decay_forward, decay_backward}, {NULL, NULL, NULL}};
 *     static const nrl_custom_op decay = {.size = sizeof decay, .kernel_size = sizeof *kernels, .name = "my.decay",
 *                                         .kernels = kernels, .saved_inputs = 1};
 *
 *     NRL_TRY(nrl_tensor_new(ctx, nrl_tensor_dtype(x), 2, dims, &y));
 *     NRL_TRY(nrl_op_custom(ctx, &decay, &x, 1, &y, 1, &attributes, sizeof attributes));
 *
 * Everything here belongs to the [step] thread.
 */
#ifndef NRL_CUSTOM_OP_H
#define NRL_CUSTOM_OP_H
#include <nrl/backend.h>
#include <nrl/batch.h>
#include <nrl/tape.h>
#ifdef __cplusplus
extern "C" {
#endif

enum { NRL_CUSTOM_MAX_OPERANDS = 7 };

/* How the N rows of activations are packed, see batch.h. Segments here include shared prompts: S is their number, and
 * prefix[s] >= 0 is the segment that comes before segment s. Arrays are on the device and on the host, and live as long
 * as the batch and the tapes recorded with it. */
typedef struct {
    uint32_t size;
    int32_t n_segments;        /* S */
    int64_t n_tokens;          /* N */
    const int32_t *cu_seqlens; /* [S+1] device */
    const int32_t *prefix;     /* [S] or -1 */
    const int32_t *positions;  /* [N] */
    const int32_t *segments;   /* [N] */
    const int32_t *host_cu_seqlens, *host_prefix, *host_positions, *host_segments;
} nrl_packing;

/* The arguments of a kernel. Matrices are as in backend.h: rows may have a stride. Contents are in the device's memory.
 */
typedef struct {
    uint32_t size;
    uint32_t n_inputs, n_outputs, reserved;
    nrl_ctx *ctx;                             /* for its stream, extensions of the backend and temporary tensors */
    const void *attributes;                   /* as given to nrl_op_custom */
    const nrl_packing *packing;               /* of the current batch; NULL = there is none */
    nrl_mat inputs[NRL_CUSTOM_MAX_OPERANDS];  /* in a backward kernel absent unless saved */
    nrl_mat outputs[NRL_CUSTOM_MAX_OPERANDS]; /* likewise */
    /* Backward only. An absent gradient of an output is zero. The kernel overwrites each gradient of an input that is
     * not absent. */
    nrl_mat output_grads[NRL_CUSTOM_MAX_OPERANDS], input_grads[NRL_CUSTOM_MAX_OPERANDS];
    void *self; /* the opened backend that the kernel is for, as its `open` returned it */
} nrl_kernel_args;

typedef struct {
    const char *backend; /* the name of a backend plugin; NULL ends the list */
    nrl_status (*forward)(const nrl_kernel_args *a);
    nrl_status (*backward)(const nrl_kernel_args *a); /* NULL: the operation has no gradient */
} nrl_kernel;

typedef struct nrl_custom_op {
    uint32_t size;
    uint32_t kernel_size; /* stride of kernels */
    const char *name;     /* unique: "PLUGIN.NAME" */
    const nrl_kernel *kernels;
    uint32_t saved_inputs, saved_outputs; /* bit i: backward reads the contents of input or output i; at most 7 bits */
} nrl_custom_op;

/* Runs the operation on inputs [n_inputs], which fills outputs [n_outputs] (created by the caller, for example with
 * nrl_tensor_new), and records it. Gradients flow to inputs of a floating dtype. The table must live as long as the
 * plugin; attributes are copied.
 * NRL_ERR_PLUGIN: there are no kernels for the backend; the text names both. */
NRL_API nrl_status nrl_op_custom(nrl_ctx *ctx, const nrl_custom_op *op, nrl_tensor *const *inputs, int n_inputs,
                                 nrl_tensor *const *outputs, int n_outputs, const void *attributes,
                                 size_t attributes_size);

/* y = the values of a parameter as a tensor of its shape, for operations that take tensors; dtype NONE = that of the
 * weight. The gradient is added to GRAD. It is a copy: op_linear, op_embedding and norms read theirs in place. */
NRL_API nrl_status nrl_op_param(nrl_ctx *ctx, nrl_param *p, nrl_dtype dtype, nrl_tensor **y);

/* The packing of the current batch. NRL_ERR_PLUGIN while the context decodes with a key/value cache: the rows of a
 * batch are not whole sequences then. */
NRL_API nrl_status nrl_ctx_packing(nrl_ctx *ctx, nrl_packing *fill);
/* Random numbers of this call, as nrl_op_dropout draws them: `key` differs from call to call and is the same when the
 * call is recomputed; rows [N] on the device has a number for each token that depends on its sample and position alone,
 * so that packing and the distribution over ranks change nothing. *key = 0: random numbers are off (evaluation, or a
 * model that did not call nrl_build_random). */
NRL_API nrl_status nrl_ctx_random(nrl_ctx *ctx, uint64_t *key, const uint64_t **rows);
/* The current batch, whose tokens and segments an operation may read; NULL = none. */
NRL_API const nrl_batch *nrl_ctx_batch(const nrl_ctx *ctx);

/* ---- kernels on the host: nrl_host_threads of backend.h ---- */

/* Splits n items among the threads of the backend; on the calling thread alone if it does not offer them. */
static inline void nrl_host_split(const nrl_ctx *ctx, int64_t n, int64_t grain,
                                  void (*body)(void *arg, int64_t begin, int64_t end, int thread), void *arg)
{
    const nrl_host_threads *t = (const nrl_host_threads *)nrl_ctx_backend_extension(ctx, "host_threads");
    if (t)
        t->split(t->self, n, grain, body, arg);
    else if (n > 0)
        body(arg, 0, n, 0);
}

#ifdef __cplusplus
}
#endif
#endif
