/*
 * backend.h - a device: memory, copies, streams, events, and the operations it computes.
 *
 * The core checks shapes and dtypes, allocates results and calls one member per operation with an
 * argument struct. NULL means that the backend lacks the operation, which is reported when a run is
 * opened. Argument structs begin with their size; a non-zero member beyond the size that the backend
 * knows is an error ("no op Y with Z").
 *
 * Legend: R rows, C columns, N tokens, P target positions, D width, H heads, G kv heads, K head width,
 * V vocabulary, S segments. An nrl_mat whose data is NULL is an absent operand.
 * `overwrite` beside an accumulated output: true overwrites the output, false adds to it.
 * Every operation is queued on `stream` and is deterministic (but see `relax`). Results do not depend on
 * the number of threads unless stated otherwise. Sums of f32 columns are formed in f32 or wider. [step]
 */
#ifndef NRL_BACKEND_H
#define NRL_BACKEND_H
#include <nrl/logger.h>
#include <nrl/op.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef struct nrl_stream nrl_stream; /* defined by the backend; NULL on the CPU */
typedef struct nrl_event nrl_event;

typedef struct {
    uint32_t size;
    nrl_mat y;
    double value;
} nrl_fill_args;
/* y = alpha x (+ y), converting dtypes; transpose reads x [C,R]. */
typedef struct {
    uint32_t size;
    bool transpose, accumulate;
    nrl_mat x, y;
    double alpha;
} nrl_copy_args;
typedef struct {
    uint32_t size, op;
    nrl_mat x, y;
    double alpha, beta;
} nrl_unary_args;
/* dx = f'(x) dy. x is absent if the derivative follows from y (EXP, SQRT, RECIPROCAL, SIGMOID, TANH);
 * otherwise y is absent. */
typedef struct {
    uint32_t size, op;
    nrl_mat x, y, dy, dx;
    double alpha, beta;
} nrl_unary_grad_args;
/* b's rows and cols may each be 1 (broadcast over a). */
typedef struct {
    uint32_t size, op;
    nrl_mat a, b, y;
} nrl_binary_args;
/* da, db of y's shape (the core reduces broadcasts); either may be absent. */
typedef struct {
    uint32_t size, op;
    nrl_mat a, b, dy, da, db;
} nrl_binary_grad_args;
typedef struct {
    uint32_t size, reserved;
    nrl_mat mask, a, b, y;
} nrl_where_args;

typedef enum { NRL_AXIS_NONE = 0, NRL_AXIS_ALL = 1, NRL_AXIS_ROWS = 2, NRL_AXIS_COLUMNS = 3 } nrl_axis;
typedef enum {
    NRL_REDUCTION_NONE = 0,
    NRL_REDUCTION_SUM = 1,
    NRL_REDUCTION_MAX = 2,
    NRL_REDUCTION_LOG_SUM_EXP = 3
} nrl_reduction;
/* axis: the dimension that is reduced. ALL: y is 1x1; ROWS: y is 1xC; COLUMNS: y is Rx1 (any layout of R values). */
typedef struct {
    uint32_t size, op, axis;
    bool overwrite;
    nrl_mat x, y;
} nrl_reduce_args;
/* y = softmax or log_softmax over columns; backward: dx from y and dy. */
typedef struct {
    uint32_t size;
    bool log;
    nrl_mat x, y;
} nrl_softmax_args;
typedef struct {
    uint32_t size;
    bool log;
    nrl_mat y, dy, dx;
} nrl_softmax_grad_args;

/* The 8-bit formats of OCP's specification: sign, exponent, fraction. The largest numbers are 448 and 57344. */
typedef enum { NRL_FP8_NONE = 0, NRL_FP8_E4M3 = 1, NRL_FP8_E5M2 = 2 } nrl_fp8;

/* The elements of an operand that share a scale: all, 128 neighbours along the depth of the product (the dimension that
 * it sums over), or tiles of 128 by 128. Blocks begin at multiples of 128; the last ones may be smaller. */
typedef enum { NRL_FP8_WHOLE = 0, NRL_FP8_ROWS = 1, NRL_FP8_TILES = 2 } nrl_fp8_blocks;
enum { NRL_FP8_BLOCK = 128 };

/* How a product rounds an operand x to 8 bits: to q / s, where q is x s in the format, rounded to nearest with ties to
 * even; what is beyond the largest number becomes that, an infinity becomes NaN. s = *scale is a power of two from
 * 2^-62 to 2^62; if it is 0, s is the largest of these for which no x s is beyond the largest number.
 * *amax becomes the largest of itself and all |x|, where NaN is larger than all others. Both are on the device.
 * With blocks (ROWS, TILES) s follows from the values of each block, and both pointers are NULL. */
typedef struct {
    uint32_t format; /* nrl_fp8; NONE: x stays as it is, and the rest is not read */
    uint32_t blocks; /* nrl_fp8_blocks; two operands are not both TILES */
    const float *scale;
    float *amax;
} nrl_gemm_fp8;
NRL_STATIC_ASSERT(sizeof(nrl_gemm_fp8) == 24, "nrl_gemm_fp8 is frozen: arguments contain two");

/* c = alpha op(a) op(b) + (overwrite ? 0 : c) + bias; bias [cols of c] is optional. If `weight_key` is not 0, b
 * is the weight of that parameter and version, and the backend may cache a packed copy of it. */
typedef struct {
    uint32_t size;
    bool transpose_a, transpose_b, overwrite;
    nrl_mat a, b, c, bias;
    double alpha;
    uint64_t weight_key, weight_version;
    nrl_gemm_fp8 fp8_a, fp8_b; /* both or neither; a and b are bf16 or f32 then */
} nrl_gemm_args;

/* index: i32 [R] on the device; -1 reads as zero. */
typedef struct {
    uint32_t size, reserved;
    nrl_mat x, y;
    const int32_t *index;
} nrl_gather_args;
/* dx[index[i]] += dy[i] in ascending i; `overwrite` clears dx first. */
typedef struct {
    uint32_t size;
    bool overwrite;
    nrl_mat dy, dx;
    const int32_t *index;
} nrl_scatter_args;

/* sum = x + residual if there is a residual (otherwise sum may be absent), y = norm(sum). rms: bias and mean
 * are absent. rstd and mean are f32, one per normalized row. Each row of x is normalized in groups of
 * weight.cols columns (heads). */
typedef struct {
    uint32_t size;
    bool rms;
    nrl_mat x, residual, sum, weight, bias, y, mean, rstd;
    double eps;
} nrl_norm_args;
/* x: the normalized input. dx = gradient through the norm + dsum (optional). dweight and dbias: f32,
 * accumulated unless fresh_*; absent if not needed. */
typedef struct {
    uint32_t size;
    bool rms, overwrite_weight, overwrite_bias;
    nrl_mat x, weight, mean, rstd, dy, dsum, dx, dweight, dbias;
} nrl_norm_grad_args;

/* cos, sin: f32 [N, half]. inverse rotates back (backward). x and y may be the same memory. */
typedef struct {
    uint32_t size;
    bool inverse;
    nrl_mat x, y;
    const float *cos, *sin;
    int64_t n_heads, half;
} nrl_rope_args;

/* What not every backend computes in attention: bits of nrl_backend.attention_lacks. */
typedef enum {
    NRL_ATTENTION_SOFT_CAP = 1, /* capped scores */
    NRL_ATTENTION_SINKS = 2,
    NRL_ATTENTION_MERGE = 4 /* parts of the rows */
} nrl_attention_feature;

/* Segment s has queries [cu_q[s], cu_q[s+1]) and keys [cu_k[s], cu_k[s+1]). The last query attends to the last
 * key, so with a key/value cache the key range is longer. prefix[s] >= 0: the keys of segment prefix[s] precede
 * those of segment s. prefix = NULL: no prefixes.
 * q [N,H*K], k, v [M,G*K], y [N,H*K], lse f32 [H,N] (natural log of the sum of exp of scaled
 * scores; absent if no backward follows). cu_* and prefix: device and host copies. */
typedef struct {
    uint32_t size, n_segments;
    nrl_mat q, k, v, y, lse;
    const int32_t *cu_q, *cu_k, *prefix;                /* device */
    const int32_t *host_cu_q, *host_cu_k, *host_prefix; /* the same on the host */
    int64_t n_heads, n_kv_heads, head_dim, window;
    double scale;
    double soft_cap;    /* scaled scores s become soft_cap * tanh(s / soft_cap); 0 = they stay */
    const float *sinks; /* [H] device: the score of one more key for each query of a head, with value 0; part of lse,
                           not capped. NULL = none */
    /* A part of the rows, with `merge` and without sinks: q, y and lse have rows for the queries [q_begin, q_begin +
     * q.rows) of those that cu_q counts, k and v for the keys [k_begin, k_begin + k.rows) of cu_k; segments, and what a
     * query sees of them, are those of all rows. y (f32, whatever the others are) and lse hold the result for other
     * keys, lse -inf if there are none, and become the result for both. Without `merge` all rows are there. */
    int64_t q_begin, k_begin;
    bool merge;
} nrl_attention_args;
typedef struct {
    uint32_t size, reserved;
    const nrl_attention_args *forward; /* with y and lse as computed */
    nrl_mat dy, dq, dk, dv; /* dq, dk and dv are overwritten. For a part (`merge` of forward), y (of q's dtype) and lse
                               are those over all keys, and contributions are added to dq, dk and dv, which are f32 */
    float *dsinks;          /* [H] overwritten; NULL = not needed */
    /* q and k were rotated by these, as by nrl_rope_args: dq and dk are the gradients of q and k before the rotation.
     * Only for backends with rotates_gradients, and not for a part; NULL = not rotated. */
    const float *cos, *sin;
    int64_t half;
} nrl_attention_grad_args;

/* y = act(gate) * up; act: NRL_UNARY_SILU or NRL_UNARY_GELU_TANH. */
typedef struct {
    uint32_t size, act;
    nrl_mat gate, up, y;
} nrl_glu_args;
typedef struct {
    uint32_t size, act;
    nrl_mat gate, up, dy, dgate, dup;
} nrl_glu_grad_args;

/* One chunk of the head. Applies soft cap and temperature to logits [R,V] in place (f32, or bf16 if the device has
 * bf16_logits: the statistics are those of the rounded logits, computed in f32), then computes
 * logp[i] = logits[i][target[i]] - lse[i], lse[i], entropy[i], log_sum_p2[i] = log sum_v p_v^2, and argmax[i]
 * (the smallest index on ties). Outputs are f32 [R] or i32 [R]; NULL = not needed. */
typedef struct {
    uint32_t size, reserved;
    nrl_mat logits;
    const int32_t *target; /* device; -1 = none, logp = 0; -2 = in another rank's vocabulary, logp = 0 */
    double soft_cap, inverse_temperature;
    float *logp, *lse, *entropy, *log_sum_p2;
    int32_t *argmax;
} nrl_head_args;
/* The gradient of the logits, dz = dlogp (onehot - p) + dlse p + dentropy (...), through soft cap and temperature. It
 * is written to dlogits in the compute dtype, which may be the memory of logits if these have that dtype. */
typedef struct {
    uint32_t size, reserved;
    nrl_mat logits, dlogits; /* logits after cap and temperature, as head left them */
    const int32_t *target;   /* -1: no gradient of logp; -2: without the one-hot term */
    double soft_cap, inverse_temperature;
    const float *lse, *entropy;    /* of the whole vocabulary */
    const float *dlogp, *dentropy; /* NULL = zero */
    const float *dlse;             /* likewise */
} nrl_head_grad_args;

/* The decision of the device about an update, in its memory; see the extension "update_decision". */
typedef struct {
    double grad_scale; /* factor of gradients; 0 if the update is omitted */
    double grad_norm;  /* of the whole true gradient, before clipping */
    double applies;    /* 1; 0: the update is omitted */
} nrl_update_decision;

/* AdamW on n elements, see optimizer.h. work is absent if master is WEIGHT itself; a bf16 work is rounded as in
 * split16. If low is present, master is absent and encoded in work and low (split16 of param.h); the result
 * is bitwise that of an f32 master. grad: f32 or bf16. */
typedef struct {
    uint32_t size, reserved;
    nrl_mat master, grad, m, v, work;
    double lr, grad_scale, beta1, beta2, eps, weight_decay, correction1, correction2; /* 1 - b^t */
    nrl_mat low;                                                                      /* u16 */
    const nrl_update_decision *decision; /* device: has grad_scale, and nothing changes if it does not apply. NULL
                                            unless the backend has the extension "update_decision" */
} nrl_adamw_args;
/* split16 of param.h: computes high (bf16) and low (u16; absent if only the rounded value is needed) from wide
 * (f32), or, with `join`, wide from both. */
typedef struct {
    uint32_t size;
    bool join;
    nrl_mat wide, high, low;
} nrl_split16_args;
/* *out (device double, one) += sum of x^2 in double; x f32 or bf16. */
typedef struct {
    uint32_t size;
    bool overwrite;
    nrl_mat x;
    double *out;
} nrl_square_sum_args;
/* y = x keep / (1-p) with keep from counter-based random numbers of key and, for element (r,c), of
 * (rows ? rows[r] : r) C + c modulo 2^64. */
typedef struct {
    uint32_t size, reserved;
    nrl_mat x, y;
    double p;
    uint64_t key;
    const uint64_t *rows; /* [R] on the device, or NULL */
} nrl_dropout_args;

/* Block-wise quantization, see nrl_quantize in optimizer.h: x f32 [1,n], q u8 [1,n], scale f32 [1,ceil(n/block)], all
 * contiguous; code f32 [1,256]. `inverse`: computes x from q and scale. Optional. */
typedef struct {
    uint32_t size;
    bool inverse;
    nrl_mat x, q, scale, code;
    int64_t block;
} nrl_quantize_args;

/* x = code[q] * scale of its block, for weights that are stored quantized (nrl/adapter.h): x [1,n] f32, bf16 or f16,
 * contiguous; code f32 [1,256], q u8 [1,n], or code f32 [1,16] and two elements in a byte of q, the first in its upper
 * half. scale [1,ceil(n/block)] is f32, or u8 and itself quantized: scale[i] stands for
 * nested_code[scale[i]] * nested[i/256] + offset[0], f32 each. 16 codes: block is a multiple of 2. Optional. */
typedef struct {
    uint32_t size, reserved;
    nrl_mat x, q, scale, code, nested, nested_code, offset;
    int64_t block;
} nrl_dequantize_args;

/* Every operation and its argument struct, in the order of the table: new ones are appended. */
/* clang-format off */
#define NRL_OPS(X) \
    X(fill, nrl_fill_args) \
    X(copy, nrl_copy_args) \
    X(unary, nrl_unary_args) \
    X(unary_grad, nrl_unary_grad_args) \
    X(binary, nrl_binary_args) \
    X(binary_grad, nrl_binary_grad_args) \
    X(where, nrl_where_args) \
    X(reduce, nrl_reduce_args) \
    X(softmax, nrl_softmax_args) \
    X(softmax_grad, nrl_softmax_grad_args) \
    X(gemm, nrl_gemm_args) \
    X(gather, nrl_gather_args) \
    X(scatter, nrl_scatter_args) \
    X(norm, nrl_norm_args) \
    X(norm_grad, nrl_norm_grad_args) \
    X(rope, nrl_rope_args) \
    X(attention, nrl_attention_args) \
    X(attention_grad, nrl_attention_grad_args) \
    X(glu, nrl_glu_args) \
    X(glu_grad, nrl_glu_grad_args) \
    X(head, nrl_head_args) \
    X(head_grad, nrl_head_grad_args) \
    X(adamw, nrl_adamw_args) \
    X(square_sum, nrl_square_sum_args) \
    X(dropout, nrl_dropout_args) \
    X(split16, nrl_split16_args) \
    X(quantize, nrl_quantize_args) \
    X(dequantize, nrl_dequantize_args)
/* clang-format on */
#define NRL_OP_MEMBER(name, args) nrl_status (*name)(void *self, nrl_stream *stream, const args *a);
typedef struct {
    uint32_t size;
    uint32_t reserved;
    NRL_OPS(NRL_OP_MEMBER)
} nrl_ops;
#undef NRL_OP_MEMBER

typedef enum {
    NRL_COPY_NONE = 0,
    NRL_COPY_TO_DEVICE = 1,
    NRL_COPY_TO_HOST = 2,
    NRL_COPY_ON_DEVICE = 3
} nrl_copy_direction;

typedef struct {
    uint32_t size;
    uint32_t index;       /* device number */
    char name[96];        /* "AMD EPYC 7B13", "NVIDIA H200" */
    char isa[64];         /* "avx512+bf16", "avx2", "sm_90" */
    char library[64];     /* "oneDNN 2.6.3 (OpenMP)" */
    int64_t memory_bytes; /* total */
    int64_t n_threads;    /* CPU threads or multiprocessors */
    double peak_flops[8]; /* by nrl_dtype: dense matrix peak, 0 = unknown */
    bool native_bf16;     /* bf16 matrix products are faster than f32 ones */
    bool host_memory;     /* device pointers can be read by the host */
    bool has_f16;         /* operations support f16 wherever they support bf16; otherwise train.precision refuses
                             fp16 */
    bool bf16_logits;     /* head and head_grad take logits in bf16; false: train.logits has no bf16 */
    bool has_fp8;         /* gemm rounds its operands to 8 bits; false: train.precision has no fp8 */
    bool has_fp8_blocks;  /* also with a scale for each block; false: train.fp8.recipe has no block */
} nrl_device_info;

/* Memory of this machine within the limits of its control groups (containers, Slurm), in bytes: the total, and
 * what can be allocated without swapping or being killed. -1 if unknown. [any] */
NRL_API void nrl_host_memory(int64_t *total, int64_t *available);

typedef struct {
    nrl_plugin plugin;
    const nrl_ops *ops;
    /* [any] whether this machine can run the backend: NRL_OK, or an error with the reason. Fast; opens nothing. */
    nrl_status (*probe)(void);
    /* index: the rank's among those of its node; a CPU is the same device for all. [main] */
    nrl_status (*open)(const void *options, int32_t index, void **self);
    void (*close)(void *self);                             /* [main] */
    nrl_status (*info)(void *self, nrl_device_info *fill); /* [main] */

    /* 64-byte aligned. NRL_ERR_MEMORY; the text states how much was requested and how much is free. [step] */
    nrl_status (*alloc)(void *self, size_t bytes, void **out);
    void (*free)(void *self, void *memory);
    /* Host memory, pinned if the device copies faster from pinned memory. [any] */
    nrl_status (*alloc_host)(void *self, size_t bytes, void **out);
    void (*free_host)(void *self, void *memory);
    /* Queued on stream. Memory of alloc_host must stay valid until the copy is complete. Other host memory has
     * been read or written when the call returns; reading it does not wait for the queue. */
    nrl_status (*copy)(void *self, nrl_stream *stream, void *to, const void *from, size_t bytes, uint32_t direction);

    /* Streams and events. NULL: every call is complete when it returns. */
    nrl_status (*stream_create)(void *self, nrl_stream **out);
    void (*stream_destroy)(void *self, nrl_stream *stream);
    nrl_status (*stream_wait)(void *self, nrl_stream *stream); /* the host waits */
    nrl_status (*event_record)(void *self, nrl_stream *stream, nrl_event **out);
    nrl_status (*event_fence)(void *self, nrl_stream *stream, nrl_event *event); /* device waits */
    nrl_status (*event_wait)(void *self, nrl_event *event);                      /* host waits */
    void (*event_destroy)(void *self, nrl_event *event);
    /* Returns an operation that the core does not know, by name; NULL = none. */
    const void *(*extension)(void *self, const char *name);

    /* ---- measuring (nrl bench, nrl profile); not called in other runs ---- */
    /* Records an event with the time at which the device reaches it. If this or event_seconds is NULL, the core reads
     * the host's clock, and on a backend with streams waits before and after each operation. */
    nrl_status (*event_record_timed)(void *self, nrl_stream *stream, nrl_event **out);
    /* The time by the device's clock between two timed events of one stream, which the device has reached. */
    nrl_status (*event_seconds)(void *self, nrl_event *from, nrl_event *to, double *seconds);

    /* Starts collecting counters and samples of the device until watch_end. One watch at a time. NULL = the device
     * reports nothing. [main] */
    nrl_status (*watch_begin)(void *self);
    /* Ends the watch and fills at most `room` values. Names are unique, in lower_snake with the unit last, and live as
     * long as the instance; values are finite and not negative. Values that the device does not report are omitted, not
     * zero. Names with a meaning for the core:
     *   launches         kernels and library calls queued since watch_begin
     *   energy_j         energy consumed since watch_begin
     *   memory_...       of the device's pool, shown next to the run's own; peaks since the device was opened
     * The core prints all others unchanged: means and extremes of samples since watch_begin. [main] */
    nrl_status (*watch_end)(void *self, nrl_value *values, size_t room, size_t *n);

    /* Called after open if train.deterministic is false: allows faster kernels whose results differ in the last bits
     * from run to run. `relaxed` describes what differs ("..., ..."). Both NULL: the backend has none. [main] */
    void (*relax)(void *self);
    const char *relaxed;

    /* The collective that works best with this device's memory, for `collective: auto`. NULL: the collective with the
     * highest priority. `backend: auto` is the backend with the highest priority whose probe succeeds. */
    const char *collective;

    /* The name of another backend that computes the operations and kernels that this one lacks. Both must work in host
     * memory, without streams; the other backend is opened with its default options. NULL = none. */
    const char *delegate;

    /* Kernels of this backend for operations of plugins that bring none for it (nrl/custom_op.h): tables with the name
     * of the operation, what the backward reads, and a row of kernels for this backend. The header of the operation
     * describes operands and attributes. NULL ends the list; NULL = none. */
    const struct nrl_custom_op *const *custom_ops;

    /* Bits of nrl_attention_feature that attention and attention_grad do not compute: the delegate is called instead,
     * and without one a run that needs them is refused when it opens. */
    uint32_t attention_lacks;

    /* If parameters are adjacent in memory, nrl_op_linears computes one product instead of one for each weight. Sums
     * are then added in another order. */
    bool joins_linears;

    /* Calls of one operation that do not depend on each other, in fewer kernels and with the results of single calls:
     * updates and norms of models with many small tensors. All have the size of the first. Both optional: NULL = the
     * core makes single calls. [step] */
    nrl_status (*adamw_all)(void *self, nrl_stream *stream, const nrl_adamw_args *calls, int64_t n);
    nrl_status (*square_sum_all)(void *self, nrl_stream *stream, const nrl_square_sum_args *calls, int64_t n);

    /* The name of a backend in host memory that computes the updates of optimizers whose states the extension "offload"
     * of this one keeps on the host, where both read and write them at the same addresses. It is opened with its
     * default options. NULL = this backend computes them. */
    const char *updater;

    /* attention_grad takes cos and sin. Otherwise the core calls rope afterwards. */
    bool rotates_gradients;

    /* Products that do not depend on each other, of any shapes, at the same time: the experts of a mixture. Sums may be
     * added in another order than by gemm. Arguments are as for adamw_all. Optional. [step] */
    nrl_status (*gemm_all)(void *self, nrl_stream *stream, const nrl_gemm_args *calls, int64_t n);
} nrl_backend;

/* ---- what operations of plugins may ask of the backend ---- */

/* The queue of the backend on which operations run, such as a cudaStream_t; NULL on backends without streams. */
NRL_API nrl_stream *nrl_ctx_stream(const nrl_ctx *ctx);
/* The table that the backend, or the backend to which it delegates, provides under this name (nrl_backend.extension);
 * NULL = none. The header of the extension describes the table. */
NRL_API const void *nrl_ctx_backend_extension(const nrl_ctx *ctx, const char *name);

/* The extension "host_threads" of a backend whose memory is the host's: its threads. */
typedef struct {
    uint32_t size, reserved;
    void *self;
    /* Calls body for contiguous ranges of n items, of at least `grain` items each; returns when all are done. */
    void (*split)(void *self, int64_t n, int64_t grain, void (*body)(void *arg, int64_t begin, int64_t end, int thread),
                  void *arg);
} nrl_host_threads;

typedef struct nrl_offload_copy nrl_offload_copy; /* defined by the backend */

/* The extension "offload" of a backend: memory outside the device, in a file in a directory or (folder NULL) on the
 * host. NRL_ERR_CONFIG if the backend does not support it, NRL_ERR_FULL if the disk is full. */
typedef struct {
    uint32_t size, reserved;
    void *self;
    /* Zeroed memory for tensors that a step uses once: operations and the host read and write it as memory of `alloc`
     * of the table. Freed when the device is closed. [main] */
    nrl_status (*alloc)(void *self, const char *folder, size_t bytes, void **out);
    /* Announces that a part of it is used now, and not again before the next step; steps use the same parts in the same
     * order. Ignores other memory. [step] */
    void (*use)(void *self, void *memory, size_t bytes);

    /* Copies of memory that a step needs again later; NULL = the backend has none. A copy has room for `bytes`. [step]
     */
    nrl_status (*copy_create)(void *self, const char *folder, size_t bytes, nrl_offload_copy **out);
    /* Starts to copy a part of the device's memory out, to `offset` of the copy, or back from there. Copies begin when
     * the work that is queued on `stream` is done, and proceed beside later work. */
    nrl_status (*copy_out)(void *self, nrl_stream *stream, nrl_offload_copy *copy, size_t offset, const void *memory,
                           size_t bytes);
    nrl_status (*copy_back)(void *self, nrl_stream *stream, nrl_offload_copy *copy, size_t offset, void *memory,
                            size_t bytes);
    /* Work that is queued on `stream` from here on may write what was copied out, and read what was copied back. */
    nrl_status (*copy_wait)(void *self, nrl_stream *stream, nrl_offload_copy *copy);
    void (*copy_free)(void *self, nrl_offload_copy *copy); /* after copy_wait */

    /* Announces that a part of the memory of `alloc` is read or written soon (true), or not for a while. NULL = the
     * backend needs no such calls. Ignores other memory. [step] */
    void (*expect)(void *self, void *memory, size_t bytes, bool soon);
} nrl_offload;

typedef struct {
    uint32_t size, n_sums;
    const double *squares; /* [n_squares] device: their sum, in this order, is that of the squares of all gradients */
    int64_t n_squares;
    double scale, max_norm;   /* scale: the true gradient is gradient * scale; max_norm 0: nothing is clipped */
    const float *sums[16];    /* [n_sums] device, one number each */
    nrl_update_decision *out; /* device */
} nrl_decide_args;

/* The extension "update_decision" of a backend whose adamw accepts `decision`: it decides on the device whether and how
 * a step updates, so that the update is queued before the host knows the numbers of the step. */
typedef struct {
    uint32_t size, reserved;
    void *self;
    /* Fills `out`: grad_norm = sqrt(sum of squares) |scale|, grad_scale = scale min(1, max_norm / (grad_norm +
     * 1e-6)), each operation rounded to double, so that the host gets the same bits. It applies if grad_norm and all
     * `sums` are finite, and no earlier operation has found an error. [step] */
    nrl_status (*decide)(void *self, nrl_stream *stream, const nrl_decide_args *a);
} nrl_update_decider;

/* The extension "utilization" of a device that measures it. */
typedef struct {
    uint32_t size;
    uint32_t reserved;
    void *self;
    /* The share of the device's last sampling period in which it executed anything, 0 to 1; NaN = not known. [step] */
    double (*read)(void *self);
} nrl_utilization;

#ifdef __cplusplus
}
#endif
#endif
