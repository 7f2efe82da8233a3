/*
 * ctx.h - what operations work in: a device, a pool of memory, the scope that new tensors belong
 * to, the current tape and the current batch. One context a model instance and device; [step]
 * thread.
 *
 * Memory: storage is counted. A scope holds one count on each tensor made in it; the tape holds one
 * on what it saved, until the node's backward has run; whoever must keep a tensor longer takes one
 * (tensor_retain). Freed storage goes to the pool and is reused by size, so a step that repeats the
 * shapes of the last one asks the device for nothing.
 */
#ifndef TENSOR_CTX_H
#define TENSOR_CTX_H
#include "tensor/batch.h"
#include "tensor/device.h"
#include <nrl/algorithm.h>
#include <nrl/run.h>
#include <nrl/tape.h>

nrl_status ctx_create(device *d, nrl_ctx **out);
void ctx_destroy(nrl_ctx *ctx);
device *ctx_device(nrl_ctx *ctx);
nrl_stream *ctx_stream(const nrl_ctx *ctx); /* where its operations are queued; NULL without streams */

/* The dtype of activations: of embedding's output, and what linear gives for f32 weights too. */
void ctx_set_compute(nrl_ctx *ctx, nrl_dtype dtype);

/* Key of the random numbers of the operations that follow (dropout): made by the caller from seed,
 * step, micro-batch and unit; a recompute action sets the same key again. 0 = dropout is off, as in
 * evaluation and at the start. */
void ctx_set_random(nrl_ctx *ctx, uint64_t key);

/* Adapters (tensor/adapter.h) take no part in what follows, until they are on again: the model as it was
 * before they were attached. */
void ctx_set_adapters(nrl_ctx *ctx, bool on);

/* Who answers the tp_regions of nrl/op.h from here on (nrl_parallel.tp_region); NULL = nobody. What a tape recorded
 * goes back to whom it was recorded with. */
typedef nrl_status (*tp_region_answer)(void *user, nrl_ctx *ctx, uint32_t tp_region, bool back, nrl_tensor *x,
                                       nrl_tensor **y);
void ctx_set_tp_regions(nrl_ctx *ctx, tp_region_answer answer, void *user);

/* Copies the batch's index arrays to the device (where the device reads host memory they are used
 * as they are) and forgets the rope rows of the last one. NULL = none. The batch outlives every
 * tape that was recorded with it. */
nrl_status ctx_set_batch(nrl_ctx *ctx, nrl_batch *batch);
nrl_batch *ctx_batch(nrl_ctx *ctx);

/* Scopes nest. End releases every tensor made since the matching begin that nobody else holds. */
void ctx_scope_begin(nrl_ctx *ctx);
void ctx_scope_end(nrl_ctx *ctx);
nrl_tensor *tensor_retain(nrl_tensor *t);         /* returns t */
void tensor_release(nrl_ctx *ctx, nrl_tensor *t); /* NULL is fine */

/* A tensor outside any scope (weights, moments, gradients), zeroed or not; tensor_release frees. */
nrl_status tensor_persistent(nrl_ctx *ctx, nrl_dtype dtype, int n_dims, const int64_t *dims, bool zero,
                             nrl_tensor **out);
/* A view of elements [begin, begin+n) of a contiguous tensor as [n], holding a count on its
 * storage. */
nrl_status tensor_flat_view(nrl_ctx *ctx, nrl_tensor *t, int64_t begin, int64_t n, nrl_tensor **out);
/* Copies between host memory and a contiguous tensor; bytes = numel * dtype size. */
nrl_status tensor_write(nrl_ctx *ctx, nrl_tensor *t, const void *host);
nrl_status tensor_read(nrl_ctx *ctx, const nrl_tensor *t, void *host);
/* Tensors of one number each, as doubles; the host waits for the device once. */
nrl_status tensor_fetch_numbers(nrl_ctx *ctx, nrl_tensor *const *numbers, int64_t n, double *out);
/* Called before the host waits for what the device has queued: to wait, with an end, for what that waits
 * for itself (other ranks). Its error is the reading's. */
void ctx_before_read(nrl_ctx *ctx, nrl_status (*before)(void *user), void *user);
/* Marks t as a leaf whose gradient is wanted (the carry at a cut). */
void tensor_set_leaf(nrl_tensor *t);

/* ---- tape ---- */
typedef struct tape tape;
tape *tape_create(void);
void tape_destroy(nrl_ctx *ctx, tape *t); /* releases what it still holds */
/* Operations record on t from here; NULL pauses recording. Pairs nest. */
void ctx_tape_begin(nrl_ctx *ctx, tape *t);
void ctx_tape_end(nrl_ctx *ctx); /* and no longer */
/* Walks t back from outputs' gradients (grads[i] NULL = none). On return input_grads[i] (counted
 * for the caller, release them) holds the gradient of inputs[i], or NULL. The tape is empty
 * afterwards. */
nrl_status tape_backward(nrl_ctx *ctx, tape *t, nrl_tensor *const *outputs, nrl_tensor *const *grads, int n_outputs,
                         nrl_tensor *const *inputs, nrl_tensor **input_grads, int n_inputs);

/* ---- head ---- */
typedef struct {
    nrl_param *weight, *bias;
    double scale, soft_cap;
} head_spec;
enum { HEAD_LOGP = 1, HEAD_ENTROPY = 2, HEAD_LOG_SUM_P2 = 4 };
/* Log-probs of the batch's target positions from hidden [N,D]: logps [P] f32 on the tape (and entropy,
 * log_sum_p2 where wanted, NULL otherwise). Logits exist one chunk at a time; backward makes them
 * again, except for those that ctx_set_head_keep let the tape keep. */
nrl_status head_columns(nrl_ctx *ctx, const head_spec *head, nrl_tensor *hidden, uint32_t want, double temperature,
                        nrl_tensor **logps, nrl_tensor **entropy, nrl_tensor **log_sum_p2);
/* For tokenwise losses: logits are made once; per chunk of target positions `loss` is called with a
 * batch view and its log-probs and must return d loss / d logp (counted for the head; NULL = zero)
 * by running its own small tape; gives d loss / d hidden [N,D] (counted for the caller) and adds to
 * the head's GRAD. */
typedef nrl_status (*head_chunk_loss)(void *user, nrl_ctx *ctx, nrl_batch *chunk, nrl_tensor *logps,
                                      nrl_tensor **dlogps);
nrl_status head_fused(nrl_ctx *ctx, const head_spec *head, nrl_tensor *hidden, head_chunk_loss loss, void *user,
                      nrl_tensor **dhidden);
/* Target positions a chunk; 0 = chosen by the head. Results do not depend on it beyond rounding. */
void ctx_set_head_chunk(nrl_ctx *ctx, int64_t rows);
/* Bytes of logits that head_columns may keep for its backward (0 at the start). They spare the
 * product of making them again; results are the same bits. */
void ctx_set_head_keep(nrl_ctx *ctx, int64_t bytes);
/* Whole logits [n,V] f32 of given token rows: sampling and tests only. */
nrl_status head_logits(nrl_ctx *ctx, const head_spec *head, nrl_tensor *hidden, const int32_t *rows, int64_t n,
                       nrl_tensor **logits);

/* ---- key/value cache for generation ---- */
typedef struct kv_cache kv_cache;
/* Room for n_sequences of max_length tokens, one K and one V buffer a layer, made at first use. */
nrl_status kv_cache_create(nrl_ctx *ctx, int64_t n_sequences, int64_t max_length, kv_cache **out);
void kv_cache_destroy(nrl_ctx *ctx, kv_cache *c);
/* While set, attention appends each segment's new keys and values (segment s of the batch is
 * sequence s; positions say where) and sees the cached ones. NULL = no cache. */
void ctx_set_cache(nrl_ctx *ctx, kv_cache *c);
void kv_cache_truncate(kv_cache *c, int64_t sequence, int64_t length);

/* ---- metrics of an algorithm, collected during `loss` ---- */
typedef struct {
    uint32_t index;
    double value, weight;
} ctx_metric;
/* Takes what nrl_metric_add gathered since the last call (fetched from the device); the array is
 * the context's until the next call. */
nrl_status ctx_take_metrics(nrl_ctx *ctx, const ctx_metric **list, int64_t *n);

/* ---- stats ---- */
typedef struct {
    size_t live_bytes;                          /* in use now */
    size_t peak_bytes;                          /* most of live since the last reset */
    size_t reserved_bytes, reserved_peak_bytes; /* held from the device: live and waiting for reuse */
} ctx_memory;
void ctx_memory_use(const nrl_ctx *ctx, ctx_memory *fill);
void ctx_memory_reset_peak(nrl_ctx *ctx);
/* Gives unused pool blocks back to the device. */
void ctx_trim(nrl_ctx *ctx);

/* Floating-point operations that were asked of the backend so far: two for each multiply-add of a product, and
 * of attention for each pair of a query and a key that it sees; its backward counts as twice its forward. A
 * caller that computes something a second time, or for itself alone, sets back what it read before. */
double ctx_flops(const nrl_ctx *ctx);
void ctx_flops_set(nrl_ctx *ctx, double flops);

/* ---- where a step's time goes (nrl bench, nrl profile): off by default, and costs nothing then ---- */
void ctx_profile(nrl_ctx *ctx, bool on); /* also clears */
/* A step begins, in phase HOST, or is over. */
void ctx_profile_step(nrl_ctx *ctx, bool begins);
/* The phase from here on; returns the one before, to be set again. Nothing outside of a step. */
nrl_phase ctx_phase_set(nrl_ctx *ctx, nrl_phase p);
/* Waits for what was marked and adds it up: at a step's end, and before what follows is asked. */
nrl_status ctx_profile_read(nrl_ctx *ctx);

/* malloc'd; operations as they came, merged but for what `by` tells apart. */
nrl_op_time *ctx_profile_rows(const nrl_ctx *ctx, unsigned by, int *n);

/* Of this rank alone: `least` and `most` stay as they are. */
void ctx_profile_phases(const nrl_ctx *ctx, nrl_phase_times *fill);
const char *ctx_profile_clock(const nrl_ctx *ctx); /* what times are measured by, for people */

/* A row for what the host does between a mark and here, less the operations that ran meanwhile. */
double ctx_profile_mark(const nrl_ctx *ctx);
void ctx_profile_host(nrl_ctx *ctx, const char *name, double mark);

#endif
