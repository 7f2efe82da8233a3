/*
 * op.h - one function an operation. Each checks shapes and dtypes, asks the tensor's backend to
 * compute, and records itself on the tape when a gradient flows through an operand.
 *
 * Legend: N tokens of a packed batch, P scored rows, S segments, D width, H query heads, G key/value
 * heads, K head width, V vocabulary; R rows, C columns of any matrix.
 * Values are f32, bf16 or f16 unless said; reductions accumulate in f32 or wider. All are deterministic.
 * Errors: NRL_ERR_BUG for shapes that disagree (with both), NRL_ERR_PLUGIN for an op that the
 * backend lacks, NRL_ERR_MEMORY. Results belong to the context (tensor.h). [step]
 */
#ifndef NRL_OP_H
#define NRL_OP_H
#include <nrl/param.h>
#ifdef __cplusplus
extern "C" {
#endif

/* ---- layers of a transformer ---- */

/* y[R,M] = x[R,K] W[M,K]^T + b[M]; b may be NULL. Gradients of W and b go to their GRAD_ACC. */
NRL_API nrl_status nrl_op_linear(nrl_ctx *ctx, nrl_tensor *x, nrl_param *w, nrl_param *b,
                                 nrl_tensor **y);
/* The same where W may be cut in its inputs (NRL_TP_ROW): what ranks have of the product is summed by the
 * seam ROW_OUT, and b is added once. */
NRL_API nrl_status nrl_op_linear_row(nrl_ctx *ctx, nrl_tensor *x, nrl_param *w, nrl_param *b,
                                     nrl_tensor **y);

/* Places where a strategy may put communication, called by what flows through them. Unanswered they are
 * identity, and cost nothing. EMBED_OUT, HEAD_IN, HEAD_STATS are the core's own. */
typedef enum {
    NRL_SEAM_NONE = 0,
    NRL_SEAM_COLUMN_IN,  /* [N,D], alike on all ranks, goes into products with columns of weights; back: what
                            each rank's columns give to the gradient is summed */
    NRL_SEAM_ROW_OUT,    /* [N,D], partial: products with rows of a weight, to be summed */
    NRL_SEAM_EMBED_OUT,  /* [N,D], partial: rows of a cut table, zero where another rank has them */
    NRL_SEAM_HEAD_IN,    /* as COLUMN_IN, of the output layer */
    NRL_SEAM_HEAD_STATS, /* [n] f32 of each rank's vocabulary -> [ranks n], one rank's behind the other's */
    NRL_SEAM_COUNT
} nrl_seam;
/* *y = x, or what the strategy makes of it; the adjoint is recorded on the tape. */
NRL_API nrl_status nrl_op_seam(nrl_ctx *ctx, nrl_seam seam, nrl_tensor *x, nrl_tensor **y);

/* y[N,D] = rows of table[V,D] for the batch's tokens. */
NRL_API nrl_status nrl_op_embedding(nrl_ctx *ctx, nrl_param *table, nrl_tensor **y);
/* y[N,D] = rows of table[T,D] for the batch's positions (learned positions, GPT-2). */
NRL_API nrl_status nrl_op_position_embedding(nrl_ctx *ctx, nrl_param *table, nrl_tensor **y);
/* y = w * x / sqrt(mean_D(x^2) + eps); Zhang and Sennrich 2019. Works on the last dimension of w,
 * so x [N, H*K] with w [K] normalises each head. */
NRL_API nrl_status nrl_op_rms_norm(nrl_ctx *ctx, nrl_tensor *x, nrl_param *w, double eps,
                                   nrl_tensor **y);
/* sum = a + b, y = rms_norm(sum): one pass over memory. */
NRL_API nrl_status nrl_op_add_rms_norm(nrl_ctx *ctx, nrl_tensor *a, nrl_tensor *b, nrl_param *w,
                                       double eps, nrl_tensor **sum, nrl_tensor **y);
/* Both with offset + w in the place of w: Gemma keeps its weights around 0, with an offset of 1. */
NRL_API nrl_status nrl_op_rms_norm_offset(nrl_ctx *ctx, nrl_tensor *x, nrl_param *w, double offset,
                                          double eps, nrl_tensor **y);
NRL_API nrl_status nrl_op_add_rms_norm_offset(nrl_ctx *ctx, nrl_tensor *a, nrl_tensor *b,
                                              nrl_param *w, double offset, double eps,
                                              nrl_tensor **sum, nrl_tensor **y);
/* y = w * (x - mean) / sqrt(var + eps) + b, biased variance; Ba et al. 2016. */
NRL_API nrl_status nrl_op_layer_norm(nrl_ctx *ctx, nrl_tensor *x, nrl_param *w, nrl_param *b,
                                     double eps, nrl_tensor **y);
NRL_API nrl_status nrl_op_add_layer_norm(nrl_ctx *ctx, nrl_tensor *a, nrl_tensor *b_in,
                                         nrl_param *w, nrl_param *b, double eps, nrl_tensor **sum,
                                         nrl_tensor **y);

/* Rotary table: frequencies inv_freq[K/2] (radians a position), cos and sin multiplied by scale
 * (yarn's attention factor). Angles are computed in double from the batch's positions once a batch
 * and shared by all layers. Halves convention of Hugging Face: (x1, x2) -> (x1 cos - x2 sin,
 * x2 cos + x1 sin) with x1 the first K/2 columns of a head. Su et al. 2021. */
typedef struct {
    const double *inv_freq; /* [half]; lives as long as the model instance */
    int64_t half;           /* rotated pairs a head; 2*half <= K, the rest passes through */
    double scale;
} nrl_rope;
/* y[N, n_heads*K] = x rotated; the same nrl_rope pointer means the same table. */
NRL_API nrl_status nrl_op_rope(nrl_ctx *ctx, nrl_tensor *x, int64_t n_heads, const nrl_rope *rope,
                               nrl_tensor **y);

/* Packed attention over the batch's segments: q [N, H*K], k and v [N, G*K], y [N, H*K].
 * A query sees keys of its own segment (and of the segment's prefix, if it has one) that are not
 * later, and with window w > 0 only the last w of them, itself counted. Scores are scaled by
 * `scale` and never stored whole. `layer` tells the layers of one model apart (key/value cache). */
typedef struct {
    int64_t n_heads, n_kv_heads, head_dim;
    int64_t window; /* 0 = all */
    int64_t layer;
    double scale; /* usually 1/sqrt(K) */
} nrl_attention_spec;
NRL_API nrl_status nrl_op_attention(nrl_ctx *ctx, nrl_tensor *q, nrl_tensor *k, nrl_tensor *v,
                                    const nrl_attention_spec *spec, nrl_tensor **y);

/* y = silu(gate) * up (Shazeer 2020), and the same with gelu_tanh. */
NRL_API nrl_status nrl_op_swiglu(nrl_ctx *ctx, nrl_tensor *gate, nrl_tensor *up, nrl_tensor **y);
NRL_API nrl_status nrl_op_geglu(nrl_ctx *ctx, nrl_tensor *gate, nrl_tensor *up, nrl_tensor **y);

/* c[R,C] = a[R,K] b[K,C], with either operand read transposed. */
NRL_API nrl_status nrl_op_matmul(nrl_ctx *ctx, nrl_tensor *a, nrl_tensor *b, bool transpose_a,
                                 bool transpose_b, nrl_tensor **c);

/* ---- element by element ---- */

typedef enum {
    NRL_UNARY_NONE = 0,
    NRL_UNARY_NEG,
    NRL_UNARY_EXP,
    NRL_UNARY_LOG,
    NRL_UNARY_SQRT,
    NRL_UNARY_SQUARE,
    NRL_UNARY_RECIPROCAL,
    NRL_UNARY_ABS,
    NRL_UNARY_RELU,
    NRL_UNARY_SIGMOID,
    NRL_UNARY_LOG_SIGMOID, /* -softplus(-x), stable for any x */
    NRL_UNARY_SOFTPLUS,
    NRL_UNARY_TANH,
    NRL_UNARY_SILU,
    NRL_UNARY_GELU,      /* x/2 (1 + erf(x / sqrt 2)) */
    NRL_UNARY_GELU_TANH, /* GPT-2's: x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) */
    NRL_UNARY_EXPM1,
    NRL_UNARY_LOG1P,
    NRL_UNARY_AFFINE, /* alpha x + beta */
    NRL_UNARY_CLAMP,  /* into [alpha, beta]; gradient 1 inside and on the bounds */
    NRL_UNARY_POW,    /* x^alpha, x > 0 unless alpha is integral */
    NRL_UNARY_COUNT
} nrl_unary;
/* alpha and beta are read by AFFINE, CLAMP and POW only. */
NRL_API nrl_status nrl_op_unary(nrl_ctx *ctx, nrl_unary op, nrl_tensor *x, double alpha, double beta,
                                nrl_tensor **y);

typedef enum {
    NRL_BINARY_NONE = 0,
    NRL_BINARY_ADD,
    NRL_BINARY_SUB,
    NRL_BINARY_MUL,
    NRL_BINARY_DIV,
    NRL_BINARY_MIN, /* equal operands share the gradient in halves, as in PyTorch */
    NRL_BINARY_MAX,
    NRL_BINARY_GREATER, /* 1 or 0, no gradient */
    NRL_BINARY_COUNT
} nrl_binary;
/* Shapes equal, or one operand has a single row, a single column, or one element (broadcast). */
NRL_API nrl_status nrl_op_binary(nrl_ctx *ctx, nrl_binary op, nrl_tensor *a, nrl_tensor *b,
                                 nrl_tensor **y);
/* y = mask != 0 ? a : b; shapes equal. No gradient flows to the mask. */
NRL_API nrl_status nrl_op_where(nrl_ctx *ctx, nrl_tensor *mask, nrl_tensor *a, nrl_tensor *b,
                                nrl_tensor **y);
NRL_API nrl_status nrl_op_cast(nrl_ctx *ctx, nrl_tensor *x, nrl_dtype dtype, nrl_tensor **y);
/* The same values, cut off the tape. */
NRL_API nrl_status nrl_op_detach(nrl_ctx *ctx, nrl_tensor *x, nrl_tensor **y);
/* Random keep mask keyed by (seed, step, position in the sample, unit, op); y = x * mask / (1-p). */
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

/* ---- moving rows and columns; each element of a vector [n] is a row ---- */

NRL_API nrl_status nrl_op_reshape(nrl_ctx *ctx, nrl_tensor *x, int n_dims, const int64_t *dims,
                                  nrl_tensor **y); /* a view; x must be contiguous */
NRL_API nrl_status nrl_op_slice_rows(nrl_ctx *ctx, nrl_tensor *x, int64_t begin, int64_t end,
                                     nrl_tensor **y); /* a view */
NRL_API nrl_status nrl_op_slice_columns(nrl_ctx *ctx, nrl_tensor *x, int64_t begin, int64_t end,
                                        nrl_tensor **y); /* a view */
NRL_API nrl_status nrl_op_concat_rows(nrl_ctx *ctx, nrl_tensor *const *xs, int n, nrl_tensor **y);
NRL_API nrl_status nrl_op_transpose(nrl_ctx *ctx, nrl_tensor *x, nrl_tensor **y); /* a copy */
/* y[i] = x[index[i]]; index [n] i32 on the host, copied. Gradients of equal rows add in order. */
NRL_API nrl_status nrl_op_gather_rows(nrl_ctx *ctx, nrl_tensor *x, const int32_t *index, int64_t n,
                                      nrl_tensor **y);
/* y[s] = sum of x[i] over i with segment[i] == s; x [n] or [n,C], segment [n] ascending or -1. */
NRL_API nrl_status nrl_op_segment_sum(nrl_ctx *ctx, nrl_tensor *x, const int32_t *segment, int64_t n,
                                      int64_t n_segments, nrl_tensor **y);

#ifdef __cplusplus
}
#endif
#endif
