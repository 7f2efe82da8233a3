/*
 * ctx.h - the context of operations: a device, a memory pool, the scope that owns new tensors, the current tape and the
 * current batch. One context for each model instance and device; used on the [step] thread.
 *
 * Memory: tensors are refcounted. A scope has a reference to each tensor made in it; the tape has a reference to what a
 * node saved until the node's backward has run; code that needs a tensor longer calls tensor_retain. Freed storage
 * returns to the pool and is reused by size, so a step with the shapes of the previous step allocates nothing on the
 * device.
 */
#ifndef TENSOR_CTX_H
#define TENSOR_CTX_H
#include "tensor/batch.h"
#include "tensor/device/device.h"
#include <nrl/algorithm.h>
#include <nrl/comm.h>
#include <nrl/run.h>
#include <nrl/tape.h>

nrl_status ctx_create(device *d, nrl_ctx **out);
void ctx_destroy(nrl_ctx *ctx);

/* False: the device has shapes and no values (shape_device.h). */
bool ctx_computes(const nrl_ctx *ctx);

/* From here on linear operations round the operands of products to 8 bits (nrl_gemm_fp8), inputs and weights to e4m3
 * and gradients to e5m2, if the weight is one that tensor parallelism divides and no adapter's. `scale` and `amax`
 * [n,3] f32 are those of input, weight and gradient of n parameters, which have a number `fp8`; without such a number
 * an operand is scaled by its own values. The context takes both references; both may be NULL.
 * blocks: each block of an operand has its own scale (nrl_fp8_blocks), gradients are e4m3, and `scale` and `amax` are
 * NULL. */
void ctx_set_fp8(nrl_ctx *ctx, bool blocks, nrl_tensor *scale, nrl_tensor *amax);

/* Sets the key of the random numbers of subsequent operations (dropout). The caller derives the key from seed, step,
 * micro-batch and unit; a recompute action sets the same key again. 0 = dropout is off, as in evaluation; the default.
 */
void ctx_set_random(nrl_ctx *ctx, uint64_t key);

typedef struct tape tape;
/* Who handles the tp_regions of nrl/op.h: members of nrl_parallel. The backward of a region calls the functions that
 * were set when the region was recorded. */
typedef struct {
    nrl_status (*answer)(void *user, nrl_ctx *ctx, uint32_t tp_region, bool back, nrl_tensor *x, nrl_tensor **y);
    /* tp_region_begin; NULL = every exchange is complete before the next operation */
    nrl_status (*begin)(void *user, nrl_ctx *ctx, uint32_t tp_region, bool back, nrl_tensor *x, nrl_tensor **y,
                        nrl_work **work);
    nrl_status (*wait)(nrl_work **work, nrl_ctx *ctx);                   /* nrl_work_wait */
    void (*tokens)(void *user, int64_t n, int64_t *begin, int64_t *end); /* NULL = each rank has all everywhere */
    void *user;
} ctx_tp_regions;

/* Attention of another kind than packed attention over the batch, for cached keys. */
typedef struct {
    /* Fills y [N, H*K], as packed attention would. Nothing is recorded on the tape. NULL = packed attention */
    nrl_status (*call)(void *user, nrl_ctx *ctx, nrl_tensor *q, nrl_tensor *k, nrl_tensor *v,
                       const nrl_attention_spec *spec, double soft_cap, const nrl_tensor *sinks, nrl_tensor *y);
    void *user;
} ctx_attention;

/* What ranks that divide the tokens of a micro-batch (batch_divide) do together: attention of this rank's rows,
 * recorded on the tape, and sums in place, see `attention` and `sum` of nrl_parallel. */
typedef struct {
    nrl_status (*attention)(void *user, nrl_ctx *ctx, int64_t n, nrl_tensor *q, nrl_tensor *k, nrl_tensor *v,
                            const nrl_attention_spec *spec, double soft_cap, nrl_tensor **y);
    nrl_status (*sum)(void *user, nrl_ctx *ctx, nrl_tensor *x);
    void *user;
} ctx_divided;

/* The exchange of rows between the n ranks that divide the experts (nrl_parallel.exchange); n <= 1: there is none. */
typedef struct {
    nrl_status (*rows)(void *user, nrl_ctx *ctx, nrl_tensor *x, const int64_t *sent, nrl_tensor *y,
                       const int64_t *received);
    void *user;
    int32_t n, rank;
} ctx_experts;

/* While `allowed`, a walk that lacks memory goes on without computing (`lacked`), so that the exchanges between ranks
 * still take place; its step can then be repeated. */
typedef struct {
    bool allowed, lacked;
} ctx_retry;

/* What the owner of a context may change between operations. Initially all zero, except `compute`. */
typedef struct {
    nrl_dtype compute; /* of activations: of the output of embedding, and of linear even for f32 weights; first f32 */
    /* The dtype of the logits from which log-probs are computed: NONE = f32, or bf16 where hidden states are bf16.
     * Complete logits, for sampling or for a loss (HEAD_LOGITS), are f32. */
    nrl_dtype logits;
    /* Target positions per chunk; 0 = chosen by the head. It changes results by rounding at most. */
    int64_t head_chunk_rows;
    /* Bytes of logits that head_columns may keep for its backward, which need not be recomputed. Results are equal bit
     * for bit. */
    int64_t head_keep_bytes;
    /* Alpha of NEFTune (Jain et al. 2023): where random numbers are on, each embedded token of a sample of L tokens
     * gets numbers from [-1, 1) times alpha / sqrt(L D), which depend on sample and position alone. 0 = off. */
    double noise;
    /* Floating-point operations of all backend calls so far: two for each multiply-add of matrix products and of
     * attention (for each pair of a query and a visible key). The backward of attention counts twice its forward.
     * Callers that recompute, or compute something that should not count, read the value before and restore it. */
    double flops;
    bool adapters_off;    /* operations compute the base model, without adapters (tensor/ops/adapter.h) */
    bool no_loss_metrics; /* nrl_metric_add may not be called: everywhere but in a loss */
    bool keeps_cheap;     /* outputs of norms and gates are kept for the backward, not computed again */
    ctx_retry retry;
    const nrl_update_decision *decision; /* of nrl_slices_adamw, filled by the device; NULL = from its arguments */
    /* The tape to which tape_backward leaves gradients of linear operations' parameters, for a tape_backward of that
     * tape, without outputs. NULL: computes them. */
    tape *deferred;
    ctx_attention attention;
    ctx_divided divided;
    ctx_experts experts;
    ctx_tp_regions tp_regions;  /* all zero: regions are the identity */
    const char *offload_folder; /* of the files of nrl_tensor_elsewhere */
} ctx_settings;
ctx_settings *ctx_settings_of(nrl_ctx *ctx);

/* Sets the current batch (NULL = none): copies its index arrays to the device, unless the device reads host memory, and
 * drops the rope rows of the previous batch. The batch must outlive every tape recorded with it. */
nrl_status ctx_set_batch(nrl_ctx *ctx, nrl_batch *batch);
nrl_batch *ctx_batch(nrl_ctx *ctx);

/* Scopes nest. The end of a scope releases its references to the tensors made since the matching begin. */
void ctx_scope_begin(nrl_ctx *ctx);
void ctx_scope_end(nrl_ctx *ctx);
nrl_tensor *tensor_retain(nrl_tensor *t);         /* returns t */
void tensor_release(nrl_ctx *ctx, nrl_tensor *t); /* t may be NULL */

/* Allocates a tensor outside any scope (weights, moments, gradients), zeroed or not; free it with tensor_release. */
nrl_status tensor_persistent(nrl_ctx *ctx, nrl_dtype dtype, int n_dims, const int64_t *dims, bool zero,
                             nrl_tensor **out);
/* A tensor [n] in memory of the device that other code owns and that outlives it; free it with tensor_release.
 * `counts`: its bytes are part of the memory in use. */
nrl_tensor *tensor_borrowed(nrl_ctx *ctx, nrl_dtype dtype, int64_t n, void *memory, bool counts);
/* A view [n] of elements [begin, begin+n) of a contiguous tensor, with a reference to its storage. */
nrl_status tensor_flat_view(nrl_ctx *ctx, nrl_tensor *t, int64_t begin, int64_t n, nrl_tensor **out);
/* Host memory that is pinned if the backend has such memory; see tensor_read. [any] */
nrl_status ctx_host_alloc(nrl_ctx *ctx, size_t bytes, void **out);
void ctx_host_free(nrl_ctx *ctx, void *memory);
nrl_status ctx_wait(nrl_ctx *ctx); /* the host waits for all queued work */
/* Copies numel elements between host memory and a contiguous tensor. A copy to or from memory of ctx_host_alloc is
 * queued: the memory must not be used until ctx_wait. Every other copy is complete when the call returns. */
nrl_status tensor_write(nrl_ctx *ctx, nrl_tensor *t, const void *host);
nrl_status tensor_read(nrl_ctx *ctx, const nrl_tensor *t, void *host);
/* Reads n tensors of one element each as doubles. The host waits for the device once. */
nrl_status tensor_fetch_numbers(nrl_ctx *ctx, nrl_tensor *const *numbers, int64_t n, double *out);
/* Starts to copy tensors, and the metrics reported so far, to the host in one piece. Until ctx_read_ahead_end or the
 * next call, nrl_tensor_fetch takes their values from there: the host waits once, and not for what is queued behind the
 * copy. Nobody may write them meanwhile. Does nothing if the host can read the device's memory. */
nrl_status ctx_read_ahead(nrl_ctx *ctx, nrl_tensor *const *tensors, int64_t n);
void ctx_read_ahead_end(nrl_ctx *ctx);
/* Sets a function that is called before the host waits for the device. Queued work may itself wait for other ranks; the
 * function waits for them with a time-out. Its error becomes the error of the read. */
void ctx_before_read(nrl_ctx *ctx, nrl_status (*before)(void *user), void *user);
/* Marks t as a leaf that needs a gradient (the carry at the boundary of a unit). */
void tensor_set_leaf(nrl_tensor *t);

/* Tensors that may be elsewhere than on the device: those that only updates use (tensor_offloaded), and those that
 * tapes saved. */
typedef enum { CTX_OFFLOAD_OPTIMIZER, CTX_OFFLOAD_ACTIVATIONS, CTX_OFFLOADS } ctx_offload;
/* From here on they are, by the backend's extension "offload": in a file in `folder`, or with NULL on the host.
 * NRL_ERR_CONFIG: the backend does not support it. [main] */
nrl_status ctx_offload_open(nrl_ctx *ctx, ctx_offload what, const char *folder);
/* Like tensor_persistent, of n elements; elsewhere if that is open. */
nrl_status tensor_offloaded(nrl_ctx *ctx, nrl_dtype dtype, int64_t n, bool zero, nrl_tensor **out);
/* Announces the use of a tensor, which may be elsewhere. */
void ctx_offload_use(nrl_ctx *ctx, nrl_tensor *t);
bool ctx_offloads(const nrl_ctx *ctx); /* what updates use may be elsewhere */
/* Whether t is (a view of) what tensor_offloaded or nrl_tensor_elsewhere has allocated elsewhere. */
bool tensor_is_elsewhere(const nrl_tensor *t);

/* ---- tape ---- */
tape *tape_create(void);
void tape_destroy(nrl_ctx *ctx, tape *t); /* releases all nodes and saved tensors */
/* Operations record on t from here; NULL pauses recording. Pairs nest. */
void ctx_tape_begin(nrl_ctx *ctx, tape *t);
void ctx_tape_end(nrl_ctx *ctx);
/* Runs the backward of t from the gradients of outputs (grads[i] NULL = none). input_grads[i] becomes the gradient of
 * inputs[i], with a reference for the caller, or NULL. The tape is empty afterwards. */
nrl_status tape_backward(nrl_ctx *ctx, tape *t, nrl_tensor *const *outputs, nrl_tensor *const *grads, int n_outputs,
                         nrl_tensor *const *inputs, nrl_tensor **input_grads, int n_inputs);

/* Moves what the nodes of t saved, and n inputs, elsewhere until the backward of t needs them, unless other tensors or
 * owners refer to the contents; until then the contents must not be read. The functions are three steps: start to copy
 * out, give the memory to the pool, and copy back (with `wait`, until the contents are complete and *saved is freed;
 * otherwise in the background, if there is memory). *saved NULL: nothing is elsewhere. */
typedef struct tape_saved tape_saved;
nrl_status tape_saved_leave(nrl_ctx *ctx, tape *t, nrl_tensor *const *inputs, int n, tape_saved **saved);
nrl_status tape_saved_free(nrl_ctx *ctx, tape_saved *saved);
nrl_status tape_saved_return(nrl_ctx *ctx, tape_saved **saved, bool wait);
/* The contents are not needed any more. */
void tape_saved_drop(nrl_ctx *ctx, tape_saved **saved);

/* ---- head ---- */
typedef struct {
    nrl_param *weight, *bias;
    double scale, soft_cap;
} head_spec;
enum { HEAD_LOGP = 1, HEAD_ENTROPY = 2, HEAD_LOG_SUM_P2 = 4, HEAD_LOGITS = 8 };
/* Values of n target positions, [n] f32 each, and their logits [n,V] f32 over the whole vocabulary, after scale, cap
 * and temperature. NULL = not wanted. All but log_sum_p2 may have a gradient. */
typedef struct {
    nrl_tensor *logps, *lse, *entropy, *logits, *log_sum_p2;
} head_tensors;
/* Computes values of the batch's target positions from hidden [N,D], recorded on the tape: logps and lse always,
 * entropy and log_sum_p2 if `want` has them. Logits exist one chunk at a time; the backward recomputes them, except for
 * those that the tape may keep (ctx_settings.head_keep_bytes). */
nrl_status head_columns(nrl_ctx *ctx, const head_spec *head, nrl_tensor *hidden, uint32_t want, double temperature,
                        head_tensors *values);
/* Head and loss in one pass, for tokenwise losses: computes logits only once. For each chunk of target positions, calls
 * `loss` with a batch view and the values that `want` has; `loss` runs its own small tape and fills d loss / d value,
 * with references for the head (NULL = zero). Returns d loss / d hidden [N,D] with a reference for the caller, and adds
 * to the head's GRAD. dhidden NULL: no gradients. */
typedef nrl_status (*head_chunk_loss)(void *user, nrl_ctx *ctx, nrl_batch *chunk, const head_tensors *values,
                                      head_tensors *grads);
nrl_status head_fused(nrl_ctx *ctx, const head_spec *head, nrl_tensor *hidden, uint32_t want, head_chunk_loss loss,
                      void *user, nrl_tensor **dhidden);
/* Complete logits [n,V] f32 of given token rows, for sampling and tests. */
nrl_status head_logits(nrl_ctx *ctx, const head_spec *head, nrl_tensor *hidden, const int32_t *rows, int64_t n,
                       nrl_tensor **logits);

/* ---- a term that a model adds to the loss, see nrl/model.h ---- */
struct nrl_loss_term {
    const char *name;
    double coefficient;
    int32_t n_values;  /* that forward gives for each micro-batch, over all units */
    bool sums_tokens;  /* values are of the tokens of all ranks */
    bool counts;       /* values are added to total: in forward actions of training, and in an evaluation */
    nrl_tensor *total; /* [1] f32, counted: sum of tokens * mean value of each micro-batch; NULL = none yet */
    double scale;      /* of this step: d loss / d value, for each token of the micro-batch */
};

/* ---- metrics, collected during a step ---- */
typedef struct {
    const nrl_metric *row; /* NULL: metric `index` of the algorithm */
    uint32_t index;
    double value, weight;
} ctx_metric;
/* While `begin` calls have no end, metrics are dropped: in a recompute, and in a model that is only read. */
void ctx_mute_metrics(nrl_ctx *ctx, bool begin);
/* Fetches the values that plugins have reported since the last call. The array belongs to the context and is
 * valid until the next call. */
nrl_status ctx_take_metrics(nrl_ctx *ctx, const ctx_metric **list, int64_t *n);

/* ---- stats ---- */
typedef struct {
    size_t live_bytes;                          /* in use now */
    size_t peak_bytes;                          /* most of live since the last reset */
    size_t away_peak_bytes;                     /* most that tapes had elsewhere, ever */
    size_t reserved_bytes, reserved_peak_bytes; /* allocated on the device: live bytes and bytes free for reuse */
} ctx_memory;
void ctx_memory_use(const nrl_ctx *ctx, ctx_memory *fill);
void ctx_memory_reset_peak(nrl_ctx *ctx);
/* Frees unused pool blocks on the device. */
void ctx_trim(nrl_ctx *ctx);

/* ---- profile of a step (nrl/profile.h): off by default ---- */
typedef struct ctx_profiler ctx_profiler; /* device/profile.h */
typedef struct profile profile;
void ctx_set_profiler(nrl_ctx *ctx, const ctx_profiler *profiler, profile *p); /* closes the one before; NULL = off */
/* Marks the start of a step, in phase HOST, or its end, where the times of the step are added up. */
nrl_status ctx_profile_step(nrl_ctx *ctx, bool begins);
/* Sets the current phase and returns the previous phase, so that the caller can restore it. Does nothing outside a
 * step. */
nrl_phase ctx_phase_set(nrl_ctx *ctx, nrl_phase p);
/* Sets the unit of the model and the micro-batch that the following operations belong to. */
void ctx_profile_unit(nrl_ctx *ctx, const char *name, const nrl_batch *batch);
/* Adds a row for the time of the host between a mark and this call, without operations that ran in between. */
double ctx_profile_mark(const nrl_ctx *ctx);
void ctx_profile_host(nrl_ctx *ctx, const char *name, double mark);

#endif
