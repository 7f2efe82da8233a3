/*
 * op.h - differentiable operations, one function each. An operation checks shapes and dtypes, calls the
 * tensor's backend, and records itself on the tape if an operand has a gradient.
 *
 * Legend: N tokens of a packed batch, P target positions, S segments, D width, H query heads, G key/value
 * heads, K head width, V vocabulary; R rows and C columns of any matrix.
 * Values are f32, bf16 or f16 unless stated otherwise; reductions accumulate in f32 or wider. All operations
 * are deterministic.
 * Errors: NRL_ERR_BUG if shapes disagree (the text shows both), NRL_ERR_PLUGIN if the backend lacks the
 * operation, NRL_ERR_MEMORY. Results belong to the context (tensor.h). [step]
 */
#ifndef NRL_OP_H
#define NRL_OP_H
#include <nrl/param.h>
#ifdef __cplusplus
extern "C" {
#endif

/* ---- layers of a transformer ---- */

/* y[R,M] = x[R,K] W[M,K]^T + b[M]; b may be NULL. Gradients of W and b are accumulated in GRAD. */
NRL_API nrl_status nrl_op_linear(nrl_ctx *ctx, nrl_tensor *x, nrl_param *w, nrl_param *b, nrl_tensor **y);
/* The same for n weights, at most NRL_LINEARS_MOST, and one x: y[i] = x w[i]^T + b[i]; b, or a b[i], may be NULL. On
 * backends that ask for it (joins_linears) this is one product, and the results are columns of one matrix, which stays
 * in memory as long as any of them. Bit i of `apart`: y[i] is copied out of it, because it is needed longer than
 * others. */
enum { NRL_LINEARS_MOST = 3 };
NRL_API nrl_status nrl_op_linears(nrl_ctx *ctx, nrl_tensor *x, int n, nrl_param *const *w, nrl_param *const *b,
                                  uint32_t apart, nrl_tensor **const *y);
/* The same for a weight that may be sharded along its inputs (NRL_TP_ROW): the partial products of the ranks are
 * summed by the tp_region ROW_OUT, and b is added once. */
NRL_API nrl_status nrl_op_row_parallel_linear(nrl_ctx *ctx, nrl_tensor *x, nrl_param *w, nrl_param *b, nrl_tensor **y);
/* The same without a bias and without the sum: y is this rank's part of the product, and the caller adds what belongs
 * together before it sums over the ranks by one tp_region ROW_OUT (the experts of a mixture). */
NRL_API nrl_status nrl_op_partial_linear(nrl_ctx *ctx, nrl_tensor *x, nrl_param *w, nrl_tensor **y);
/* The same for n weights [M,K], each for rows of its own: the first rows[0] of x go through w[0], the next rows[1]
 * through w[1], and so on; they add up to R. No weight occurs twice. A backend with gemm_all computes the products
 * together. */
NRL_API nrl_status nrl_op_grouped_linear(nrl_ctx *ctx, nrl_tensor *x, int64_t n, const int64_t *rows,
                                         nrl_param *const *w, nrl_tensor **y);

/* Points of a forward pass where a strategy may communicate, as Megatron-LM's mappings do (copy_to, reduce_from,
 * gather). Without a strategy that handles them they are the identity and cost nothing. The core itself calls
 * EMBED_OUT, HEAD_IN and HEAD_STATS. */
typedef enum {
    NRL_TP_REGION_NONE = 0,
    NRL_TP_REGION_COLUMN_IN = 1, /* copy_to: [N,D], replicated, the input of column-parallel products; backward sums the
                           gradients of all ranks */
    NRL_TP_REGION_ROW_OUT = 2,   /* reduce_from: [N,D], the partial products of a row-parallel weight, to be summed */
    NRL_TP_REGION_EMBED_OUT = 3, /* reduce_from: [N,D], rows of a sharded table, zero if another rank holds them */
    NRL_TP_REGION_HEAD_IN = 4,   /* copy_to, for the input of the output layer */
    NRL_TP_REGION_HEAD_STATS =
        5,                      /* gather: [n] f32 of each rank's vocabulary -> [ranks n], in rank order; no backward */
    NRL_TP_REGION_WHOLE_IN = 6, /* the input of what all ranks compute alike for all tokens; see below */
    NRL_TP_REGION_WHOLE_OUT = 7, /* its output */
    NRL_TP_REGION_SUM = 8,       /* partial sums of any shape without tokens, to be added up; the gradient is kept */
    NRL_TP_REGION_COUNT = 9
} nrl_tp_region;
/* *y = x, or the strategy's result; the tape records the adjoint.
 *
 * Sequence parallel: if the strategy leaves each rank a part of the tokens (`tokens` of nrl_parallel), the rows outside
 * of the regions are those n of the N tokens. COLUMN_IN then gathers [n,D] -> [N,D] and its backward scatters the sums;
 * ROW_OUT and EMBED_OUT scatter the sums [N,D] -> [n,D] and their backward gathers. Code that each rank runs for all
 * tokens is between WHOLE_IN (gathers; backward selects the rank's rows) and WHOLE_OUT (selects them; backward
 * gathers); these two are the identity for any other strategy, and the core ends the last unit with WHOLE_IN. */
NRL_API nrl_status nrl_op_tp_region(nrl_ctx *ctx, nrl_tp_region tp_region, nrl_tensor *x, nrl_tensor **y);

/* Expert parallel: the number of ranks that divide the experts of a mixture (NRL_DIVIDES_EXPERTS), and the number of
 * this rank among them; 1 and 0 without such a strategy. Each has tokens of its own, and the parameters of consecutive
 * experts, equally many on each rank. */
NRL_API int32_t nrl_ctx_expert_ranks(const nrl_ctx *ctx, int32_t *rank);
/* Moves rows between these ranks, which all call it: the first sent[0] rows of x [R,C] go to rank 0, the next sent[1]
 * to rank 1 ..., and y [sum of received,C] has received[r] rows of each rank r. Gradients go back the same way. Values
 * of a floating dtype have a gradient in y even if x has none, so that all ranks make the same calls in the backward.
 */
NRL_API nrl_status nrl_op_exchange_rows(nrl_ctx *ctx, nrl_tensor *x, const int64_t *sent, const int64_t *received,
                                        nrl_tensor **y);

/* y[N,D] = rows of table[V,D] for the batch's tokens. */
NRL_API nrl_status nrl_op_embedding(nrl_ctx *ctx, nrl_param *table, nrl_tensor **y);
/* y[N,D] = rows of table[T,D] for the batch's positions (learned positions, GPT-2). */
NRL_API nrl_status nrl_op_position_embedding(nrl_ctx *ctx, nrl_param *table, nrl_tensor **y);
/* y = w * x / sqrt(mean_D(x^2) + eps); Zhang and Sennrich 2019. Works on the last dimension of w,
 * so x [N, H*K] with w [K] normalises each head. */
NRL_API nrl_status nrl_op_rms_norm(nrl_ctx *ctx, nrl_tensor *x, nrl_param *w, double eps, nrl_tensor **y);
/* sum = a + b, y = rms_norm(sum), in one pass over memory. */
NRL_API nrl_status nrl_op_add_rms_norm(nrl_ctx *ctx, nrl_tensor *a, nrl_tensor *b, nrl_param *w, double eps,
                                       nrl_tensor **sum, nrl_tensor **y);
/* Both with offset + w instead of w: Gemma stores weights around 0 and uses an offset of 1. */
NRL_API nrl_status nrl_op_rms_norm_offset(nrl_ctx *ctx, nrl_tensor *x, nrl_param *w, double offset, double eps,
                                          nrl_tensor **y);
NRL_API nrl_status nrl_op_add_rms_norm_offset(nrl_ctx *ctx, nrl_tensor *a, nrl_tensor *b, nrl_param *w, double offset,
                                              double eps, nrl_tensor **sum, nrl_tensor **y);
/* y = w * (x - mean) / sqrt(var + eps) + b, biased variance; Ba et al. 2016. */
NRL_API nrl_status nrl_op_layer_norm(nrl_ctx *ctx, nrl_tensor *x, nrl_param *w, nrl_param *b, double eps,
                                     nrl_tensor **y);
NRL_API nrl_status nrl_op_add_layer_norm(nrl_ctx *ctx, nrl_tensor *a, nrl_tensor *b_in, nrl_param *w, nrl_param *b,
                                         double eps, nrl_tensor **sum, nrl_tensor **y);

/* Rotary embedding (Su et al. 2021) with frequencies inv_freq[K/2] in radians per position; cos and sin are
 * multiplied by scale (YaRN's attention factor). Angles are computed in double from the batch's positions, once
 * per batch, and shared by all layers. Hugging Face's half-split convention: (x1, x2) -> (x1 cos - x2 sin,
 * x2 cos + x1 sin), where x1 is the first K/2 columns of a head. */
typedef struct {
    const double *inv_freq; /* [half]; lives as long as the model instance */
    int64_t half;           /* rotated pairs per head; 2*half <= K, the other columns are copied */
    double scale;
} nrl_rope;
/* y[N, n_heads*K] = x rotated; the same nrl_rope pointer means the same table. */
NRL_API nrl_status nrl_op_rope(nrl_ctx *ctx, nrl_tensor *x, int64_t n_heads, const nrl_rope *rope, nrl_tensor **y);

/* Causal attention over the batch's segments: q [N, H*K], k and v [N, G*K], y [N, H*K]. A query attends to
 * the keys of its own segment, and of the segment's prefix if there is one, up to its own position; with
 * window w > 0 only to the last w of them, including itself. Scores are multiplied by `scale` and are never
 * stored as a whole matrix. `layer` numbers the layers of a model (key/value cache). */
typedef struct {
    int64_t n_heads, n_kv_heads, head_dim;
    int64_t window; /* 0 = all */
    int64_t layer;
    double scale; /* usually 1/sqrt(K) */
} nrl_attention_spec;
NRL_STATIC_ASSERT(sizeof(nrl_attention_spec) == 48, "nrl_attention_spec is frozen: it has no size");
NRL_API nrl_status nrl_op_attention(nrl_ctx *ctx, nrl_tensor *q, nrl_tensor *k, nrl_tensor *v,
                                    const nrl_attention_spec *spec, nrl_tensor **y);
/* The same with cap * tanh(score / cap) in place of each scaled score (Gemma 2, Riviere et al. 2024); cap 0: no cap. */
NRL_API nrl_status nrl_op_capped_attention(nrl_ctx *ctx, nrl_tensor *q, nrl_tensor *k, nrl_tensor *v,
                                           const nrl_attention_spec *spec, double cap, nrl_tensor **y);
/* nrl_op_capped_attention of q and k after nrl_op_rope, in fewer passes over q and k and their gradients where the
 * backend can. They are rotated in place if they are results of nrl_op_linears, so nothing else may read them. */
NRL_API nrl_status nrl_op_rotary_attention(nrl_ctx *ctx, nrl_tensor *q, nrl_tensor *k, nrl_tensor *v,
                                           const nrl_attention_spec *spec, double cap, const nrl_rope *rope,
                                           nrl_tensor **y);
/* nrl_op_attention with one more key for each query, whose value is 0 and whose score is that of its head in sinks [H]
 * f32 (gpt-oss). Gradients also flow to sinks. Not while a strategy divides the tokens (context parallel). */
NRL_API nrl_status nrl_op_sink_attention(nrl_ctx *ctx, nrl_tensor *q, nrl_tensor *k, nrl_tensor *v,
                                         const nrl_attention_spec *spec, nrl_tensor *sinks, nrl_tensor **y);

/* y = silu(gate) * up (Shazeer 2020), and the same with gelu_tanh. */
NRL_API nrl_status nrl_op_swiglu(nrl_ctx *ctx, nrl_tensor *gate, nrl_tensor *up, nrl_tensor **y);
NRL_API nrl_status nrl_op_geglu(nrl_ctx *ctx, nrl_tensor *gate, nrl_tensor *up, nrl_tensor **y);

/* c[R,C] = a[R,K] b[K,C]; each operand may be read transposed. */
NRL_API nrl_status nrl_op_matmul(nrl_ctx *ctx, nrl_tensor *a, nrl_tensor *b, bool transpose_a, bool transpose_b,
                                 nrl_tensor **c);

/* ---- element by element ---- */

typedef enum {
    NRL_UNARY_NONE = 0,
    NRL_UNARY_NEG = 1,
    NRL_UNARY_EXP = 2,
    NRL_UNARY_LOG = 3,
    NRL_UNARY_SQRT = 4,
    NRL_UNARY_SQUARE = 5,
    NRL_UNARY_RECIPROCAL = 6,
    NRL_UNARY_ABS = 7,
    NRL_UNARY_RELU = 8,
    NRL_UNARY_SIGMOID = 9,
    NRL_UNARY_LOG_SIGMOID = 10, /* -softplus(-x), stable for any x */
    NRL_UNARY_SOFTPLUS = 11,
    NRL_UNARY_TANH = 12,
    NRL_UNARY_SILU = 13,
    NRL_UNARY_GELU = 14,      /* x/2 (1 + erf(x / sqrt 2)) */
    NRL_UNARY_GELU_TANH = 15, /* GPT-2's: x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) */
    NRL_UNARY_EXPM1 = 16,
    NRL_UNARY_LOG1P = 17,
    NRL_UNARY_AFFINE = 18, /* alpha x + beta */
    NRL_UNARY_CLAMP = 19,  /* into [alpha, beta]; gradient 1 inside and on the bounds */
    NRL_UNARY_POW = 20,    /* x^alpha, x > 0 unless alpha is integral */
    NRL_UNARY_COUNT = 21
} nrl_unary;
/* alpha and beta are read by AFFINE, CLAMP and POW only. */
NRL_API nrl_status nrl_op_unary(nrl_ctx *ctx, nrl_unary op, nrl_tensor *x, double alpha, double beta, nrl_tensor **y);

typedef enum {
    NRL_BINARY_NONE = 0,
    NRL_BINARY_ADD = 1,
    NRL_BINARY_SUB = 2,
    NRL_BINARY_MUL = 3,
    NRL_BINARY_DIV = 4,
    NRL_BINARY_MIN = 5, /* equal operands share the gradient in halves, as in PyTorch */
    NRL_BINARY_MAX = 6,
    NRL_BINARY_GREATER = 7, /* 1 or 0, no gradient */
    NRL_BINARY_COUNT = 8
} nrl_binary;
/* Shapes equal, or one operand has a single row, a single column, or one element (broadcast). */
NRL_API nrl_status nrl_op_binary(nrl_ctx *ctx, nrl_binary op, nrl_tensor *a, nrl_tensor *b, nrl_tensor **y);
/* y = mask != 0 ? a : b; shapes equal. No gradient flows to the mask. */
NRL_API nrl_status nrl_op_where(nrl_ctx *ctx, nrl_tensor *mask, nrl_tensor *a, nrl_tensor *b, nrl_tensor **y);
NRL_API nrl_status nrl_op_cast(nrl_ctx *ctx, nrl_tensor *x, nrl_dtype dtype, nrl_tensor **y);
/* The same values without a gradient. */
NRL_API nrl_status nrl_op_detach(nrl_ctx *ctx, nrl_tensor *x, nrl_tensor **y);
/* y = x * mask / (1-p); the random mask is a function of (seed, step, position in the sample, unit, op). */
NRL_API nrl_status nrl_op_dropout(nrl_ctx *ctx, nrl_tensor *x, double p, nrl_tensor **y);

/* ---- reductions ---- */

NRL_API nrl_status nrl_op_sum(nrl_ctx *ctx, nrl_tensor *x, nrl_tensor **y);         /* [1] f32 */
NRL_API nrl_status nrl_op_mean(nrl_ctx *ctx, nrl_tensor *x, nrl_tensor **y);        /* [1] f32 */
NRL_API nrl_status nrl_op_sum_columns(nrl_ctx *ctx, nrl_tensor *x, nrl_tensor **y); /* [R,C]->[R] */
NRL_API nrl_status nrl_op_sum_rows(nrl_ctx *ctx, nrl_tensor *x, nrl_tensor **y);    /* [R,C]->[C] */
NRL_API nrl_status nrl_op_max_columns(nrl_ctx *ctx, nrl_tensor *x, nrl_tensor **y); /* [R,C]->[R] */
NRL_API nrl_status nrl_op_log_sum_exp(nrl_ctx *ctx, nrl_tensor *x, nrl_tensor **y); /* [R,C]->[R] */
NRL_API nrl_status nrl_op_softmax(nrl_ctx *ctx, nrl_tensor *x, nrl_tensor **y);     /* over columns */
NRL_API nrl_status nrl_op_log_softmax(nrl_ctx *ctx, nrl_tensor *x, nrl_tensor **y); /* over columns */

/* ---- reshaping, slicing, gathering; each element of a vector [n] is a row ---- */

NRL_API nrl_status nrl_op_reshape(nrl_ctx *ctx, nrl_tensor *x, int n_dims, const int64_t *dims,
                                  nrl_tensor **y); /* a view; x must be contiguous */
NRL_API nrl_status nrl_op_slice_rows(nrl_ctx *ctx, nrl_tensor *x, int64_t begin, int64_t end,
                                     nrl_tensor **y); /* a view */
NRL_API nrl_status nrl_op_slice_columns(nrl_ctx *ctx, nrl_tensor *x, int64_t begin, int64_t end,
                                        nrl_tensor **y); /* a view */
NRL_API nrl_status nrl_op_concat_rows(nrl_ctx *ctx, nrl_tensor *const *xs, int n, nrl_tensor **y);
NRL_API nrl_status nrl_op_transpose(nrl_ctx *ctx, nrl_tensor *x, nrl_tensor **y); /* a copy */
/* y[i] = x[index[i]]; index [n] i32 on the host, copied. Gradients of repeated rows are added in order. */
NRL_API nrl_status nrl_op_gather_rows(nrl_ctx *ctx, nrl_tensor *x, const int32_t *index, int64_t n, nrl_tensor **y);
/* y[s] = sum of x[i] over i with segment[i] == s; x [n] or [n,C], segment [n] ascending or -1. */
NRL_API nrl_status nrl_op_segment_sum(nrl_ctx *ctx, nrl_tensor *x, const int32_t *segment, int64_t n,
                                      int64_t n_segments, nrl_tensor **y);

#ifdef __cplusplus
}
#endif
#endif
