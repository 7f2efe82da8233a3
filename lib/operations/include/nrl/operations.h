/*
 * operations.h - operations that only some models need: routers, state spaces, short convolutions, other positions.
 * They are in libnrl-operations (pkg-config nrl-operations, CMake nrl::libnrl-operations), which a model plugin links,
 * and are built on nrl/custom_op.h alone.
 *
 * Those marked [kernel] have kernels of their own: for the backend "cpu" and those that delegate to it in this library,
 * for another backend in its nrl_backend.custom_ops (the end of this header). A run on a backend without them is
 * refused when it is opened. All others are composed of operations of op.h and run on every backend.
 *
 * Legend: N tokens of the packed batch, R rows, C columns, H query heads, G key/value heads, K head width.
 * Values are f32, bf16 or f16; kernels compute in f32. Errors are those of op.h. [step]
 */
#ifndef NRL_OPERATIONS_H
#define NRL_OPERATIONS_H
#include <nrl/custom_op.h>
#ifdef __cplusplus
extern "C" {
#endif

/* [kernel] The k largest values of each row of x [R,C] in descending order, and their columns as i32; equal values in
 * ascending order of columns. A NaN is larger than all numbers. Gradients flow to the values. */
NRL_API nrl_status nrl_op_top_k(nrl_ctx *ctx, nrl_tensor *x, int64_t k, nrl_tensor **values, nrl_tensor **indices);

/* Expert parallel: rows sorted by expert, sent[e] of them for each of n_experts, go to the ranks that have the experts
 * (nrl_ctx_expert_ranks; expert e is on rank e / (n_experts / ranks)). y has the rows of all ranks for this rank's
 * experts, sorted by expert; received[r * own + k], [n_experts], is the number that rank r sent to the k-th of the
 * `own` experts here. On one rank y is x. All ranks make these calls, whatever rows they have. */
NRL_API nrl_status nrl_op_to_experts(nrl_ctx *ctx, nrl_tensor *x, const int64_t *sent, int64_t n_experts,
                                     int64_t *received, nrl_tensor **y);
/* The way back: x has a result for each row of the y of nrl_op_to_experts, y those for the rows of its x. */
NRL_API nrl_status nrl_op_from_experts(nrl_ctx *ctx, nrl_tensor *x, const int64_t *sent, int64_t n_experts,
                                       const int64_t *received, nrl_tensor **y);

/* y [R, sum of columns]; all of one dtype. */
NRL_API nrl_status nrl_op_concat_columns(nrl_ctx *ctx, nrl_tensor *const *xs, int n, nrl_tensor **y);
/* ys[i] = the next widths[i] columns of x, as views; widths add up to the columns of x. */
NRL_API nrl_status nrl_op_split_columns(nrl_ctx *ctx, nrl_tensor *x, const int64_t *widths, int n, nrl_tensor **ys);

/* [kernel] y [R,C] of pairs of adjacent columns (gate, up) of x [R,2C]: gate is bounded by limit from above and up from
 * both sides; y = (up + 1) gate sigmoid(alpha gate). The experts of gpt-oss. */
NRL_API nrl_status nrl_op_clamped_swiglu(nrl_ctx *ctx, nrl_tensor *x, double alpha, double limit, nrl_tensor **y);

/* nrl_op_rope for pairs of adjacent columns: (x[2i], x[2i+1]) is rotated, as in GPT-J and the original RoPE. */
NRL_API nrl_status nrl_op_rope_interleaved(nrl_ctx *ctx, nrl_tensor *x, int64_t n_heads, const nrl_rope *rope,
                                           nrl_tensor **y);

/* [kernel] h[t] = a[t] * h[t-1] + b[t] along each segment, with h = 0 before it, or the last state of its shared
 * prompt; a, b, h [N,C]. Gradients flow to a and b. */
NRL_API nrl_status nrl_op_scan(nrl_ctx *ctx, nrl_tensor *a, nrl_tensor *b, nrl_tensor **h);

/* y[t,c] = bias[c] + sum over k < K of w[c,K-1-k] x[t-k,c] along each segment, as PyTorch's Conv1d with groups = C and
 * a padding of K-1 on the left; x [N,C], w [C,K], bias [C] or NULL. */
NRL_API nrl_status nrl_op_conv1d(nrl_ctx *ctx, nrl_tensor *x, nrl_tensor *w, nrl_tensor *bias, nrl_tensor **y);

/* [kernel] y [N,C] f32, uniform in [0,1): a function of the seed, step, sample, position, unit and call, so the same
 * when recomputed, packed otherwise or computed by another rank. *y = NULL while random numbers are off
 * (nrl_ctx_random). */
NRL_API nrl_status nrl_op_uniform(nrl_ctx *ctx, int64_t cols, nrl_tensor **y);

/* Causal attention with additions to the scores, otherwise as nrl_op_attention. */
typedef struct {
    uint32_t size;
    uint32_t reserved;
    nrl_attention_spec attention;
    const double *slopes; /* [H] ALiBi (Press et al. 2022): slopes[h] times the distance in tokens is subtracted from
                             scores; NULL = none */
    nrl_tensor *sinks;    /* [H] f32: a learned score per head of an additional key with value 0; NULL = none */
} nrl_biased_attention;
/* [kernel] q [N,H*K], k and v [N,G*K]; not while decoding with a key/value cache. Gradients flow to q, k, v and sinks.
 */
NRL_API nrl_status nrl_op_biased_attention(nrl_ctx *ctx, nrl_tensor *q, nrl_tensor *k, nrl_tensor *v,
                                           const nrl_biased_attention *spec, nrl_tensor **y);
/* The slopes of ALiBi for n_heads heads, as in BLOOM and MPT. [any] */
NRL_API void nrl_op_alibi_slopes(int64_t n_heads, double *slopes);

/* ---- for backends: what a kernel of each operation gets (nrl_kernel_args) ----
 *
 * Matrices are f32 unless stated otherwise; sizes that are not named here follow from them.
 *
 *     name                   inputs                               outputs                  backward reads
 *     nrl.top_k              x [R,C]                              values [R,k], i32 [R,k]  output 1
 *     nrl.clamped_swiglu     x [R,2C]                             y [R,C]                  input 0
 *     nrl.scan               a, b [N,C]                           h [N,C]                  input 0, output 0
 *     nrl.uniform            none                                 y [N,C]                  (none)
 *     nrl.biased_attention   q [N,H*K], k, v [N,G*K]; sinks [H]   y [N,H*K], lse [H,N]     all
 *                            if there are any
 */

typedef struct {
    uint32_t size, reserved;
    double alpha, limit;
} nrl_clamped_swiglu_attributes;
/* nrl.uniform: y[r][c] = the upper 24 bits of mix(key ^ mix(rows[r] + c)) / 2^24 with the generator splitmix64: mix(z)
 * is its output after a state of z. */
typedef struct {
    uint32_t size, reserved;
    uint64_t key;
    const uint64_t *rows; /* [N] on the device */
} nrl_uniform_attributes;
/* nrl.biased_attention: lse is the natural log of the sum of exp of scores, with the sink's. */
typedef struct {
    uint32_t size, reserved;
    nrl_attention_spec spec;
    const double *slopes; /* [H] on the host, or NULL; they outlive the step */
} nrl_biased_attention_attributes;

#ifdef __cplusplus
}
#endif
#endif
