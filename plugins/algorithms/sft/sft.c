/*
 * sft.c - supervised fine-tuning: push up the log-probability of the answer tokens.
 * Called by core/run once per micro-batch, or once per chunk of its P target positions: every loss here
 * is a sum over rows. The core divides by the weights of the whole global batch.
 */
#include <nrl/nrl.h>

enum { SFT_NLL = 0, SFT_DFT };

typedef struct {
    int64_t loss;   /* SFT_NLL or SFT_DFT */
    int64_t reduce; /* 0 token, 1 sequence */
    double prompt_weight, label_smoothing, z_loss;
} sft_options;

static const nrl_option sft_rows[] = {
    NRL_OPT_ENUM(sft_options, loss, "nll", "nll|dft",
                 "nll: -log p; dft: -p log p with p held constant (dynamic fine-tuning)"),
    NRL_OPT_ENUM(sft_options, reduce, "token", "token|sequence",
                 "the loss is a mean over answer tokens, or over sequences' sums"),
    NRL_OPT_F64(sft_options, prompt_weight, "0.0", 0, 1, "how much a prompt token counts next to an answer token"),
    NRL_OPT_F64(sft_options, label_smoothing, "0.0", 0, 1,
                "share of each target's probability that is spread evenly over the vocabulary"),
    NRL_OPT_F64(sft_options, z_loss, "0.0", 0, 1e6,
                "weight of z^2, where z is the logarithm of the softmax's denominator; it keeps logits small"),
};

static nrl_status sft_check(const void *options)
{
    const sft_options *o = options;
    if (o->loss == SFT_NLL || o->label_smoothing == 0) return NRL_OK;
    return nrl_fail(NRL_ERR_CONFIG,
                    "label_smoothing is %g with loss: dft, which has a target of its own; expected "
                    "loss: nll or label_smoothing: 0",
                    o->label_smoothing);
}

/* Prompt tokens are scored only where they count, and logits are read only where they are smoothed: both are work. */
static const char *const *sft_instance_needs(void *self)
{
    static const char *const needs[2][3][5] = {{{"logps"}, {"logps", "lse"}, {"logps", "lse", "logits"}},
                                               {{"logps", "prompt_targets"},
                                                {"logps", "prompt_targets", "lse"},
                                                {"logps", "prompt_targets", "lse", "logits"}}};
    const sft_options *o = self;
    return needs[o->prompt_weight > 0][o->label_smoothing > 0 ? 2 : o->z_loss > 0];
}

static void sft_weight(void *self, const nrl_batch *batch, double *weight)
{
    const sft_options *o = self;
    weight[0] = o->reduce ? nrl_batch_count(batch, "sequences")
                          : nrl_batch_count(batch, "answer_tokens") +
                                o->prompt_weight * nrl_batch_count(batch, "prompt_tokens");
}

/* Row weights [P] with prompt_weight in the place of a prompt row's 0. */
static nrl_status row_weights(const sft_options *o, nrl_ctx *ctx, const nrl_batch *batch, nrl_tensor **weights)
{
    nrl_tensor *given, *prompt;
    NRL_TRY(nrl_batch_column(ctx, batch, "weights", &given));
    *weights = given;
    if (o->prompt_weight <= 0) return NRL_OK;
    NRL_TRY(nrl_op_unary(ctx, NRL_UNARY_AFFINE, given, 0.0, o->prompt_weight, &prompt));
    return nrl_op_where(ctx, given, given, prompt, weights);
}

/* Wu et al. 2025: each row's weight times its own probability, which gets no gradient. */
static nrl_status times_probability(nrl_ctx *ctx, nrl_tensor *logps, nrl_tensor **weights)
{
    nrl_tensor *constant, *p;
    NRL_TRY(nrl_op_detach(ctx, logps, &constant));
    NRL_TRY(nrl_op_unary(ctx, NRL_UNARY_EXP, constant, 0, 0, &p));
    return nrl_op_binary(ctx, NRL_BINARY_MUL, *weights, p, weights);
}

/* With the smoothing e, the target of a row has the probability 1 - e + e/V and every other token e/V, as in
 * LabelSmoother of transformers:
 *   (1 - e) log p(target) + e/V sum_v log p(v) = (1 - e) log p(target) + e (mean_v z_v - lse) */
static nrl_status smooth(nrl_ctx *ctx, const nrl_batch *batch, double e, nrl_tensor **score)
{
    nrl_tensor *logits, *lse, *sum, *mean, *even; /* logits [P,V], the others [P] */
    NRL_TRY(nrl_batch_column(ctx, batch, "logits", &logits));
    NRL_TRY(nrl_batch_column(ctx, batch, "lse", &lse));
    NRL_TRY(nrl_op_sum_columns(ctx, logits, &sum));
    NRL_TRY(nrl_op_unary(ctx, NRL_UNARY_AFFINE, sum, e / (double)nrl_tensor_dim(logits, 1), 0, &mean));
    NRL_TRY(nrl_op_unary(ctx, NRL_UNARY_AFFINE, lse, -e, 0, &even));
    NRL_TRY(nrl_op_binary(ctx, NRL_BINARY_ADD, mean, even, &even));
    NRL_TRY(nrl_op_unary(ctx, NRL_UNARY_AFFINE, *score, 1 - e, 0, score));
    return nrl_op_binary(ctx, NRL_BINARY_ADD, *score, even, score);
}

static nrl_status subtract_z(nrl_ctx *ctx, const nrl_batch *batch, double weight, nrl_tensor **score)
{
    nrl_tensor *lse, *square;
    NRL_TRY(nrl_batch_column(ctx, batch, "lse", &lse));
    NRL_TRY(nrl_op_unary(ctx, NRL_UNARY_SQUARE, lse, 0, 0, &square));
    NRL_TRY(nrl_op_unary(ctx, NRL_UNARY_AFFINE, square, -weight, 0, &square));
    return nrl_op_binary(ctx, NRL_BINARY_ADD, *score, square, score);
}

/* sums[0] = -sum_i w_i s_i with the score s_i = log p(target of row i | its prefix), smoothed, less z_loss lse_i^2 */
static nrl_status sft_loss(void *self, nrl_ctx *ctx, const nrl_batch *batch, nrl_tensor **sums)
{
    const sft_options *o = self;
    nrl_tensor *score, *weights, *each, *sum; /* [P] f32 each, sum [1] */
    NRL_TRY(nrl_batch_column(ctx, batch, "logps", &score));
    NRL_TRY(row_weights(o, ctx, batch, &weights));
    if (o->loss == SFT_DFT) NRL_TRY(times_probability(ctx, score, &weights));
    if (o->label_smoothing > 0) NRL_TRY(smooth(ctx, batch, o->label_smoothing, &score));
    if (o->z_loss > 0) NRL_TRY(subtract_z(ctx, batch, o->z_loss, &score));
    NRL_TRY(nrl_op_binary(ctx, NRL_BINARY_MUL, score, weights, &each));
    NRL_TRY(nrl_op_sum(ctx, each, &sum));
    return nrl_op_unary(ctx, NRL_UNARY_NEG, sum, 0, 0, &sums[0]);
}

static bool sft_detaches(void *self)
{
    return ((const sft_options *)self)->loss == SFT_DFT;
}

static const char *const sft_needs[] = {"logps", NULL};

static const nrl_algorithm sft = {
    NRL_PLUGIN(NRL_KIND_ALGORITHM, nrl_algorithm, sft_options, sft_rows, "sft", "0.1",
               "supervised fine-tuning on answer tokens"),
    .plugin.check = sft_check,
    .plugin.priority = 100, /* the loss where a config names none */
    .needs = sft_needs,
    .n_terms = 1,
    .tokenwise = true,
    .weight = sft_weight,
    .loss = sft_loss,
    .instance_needs = sft_instance_needs,
    .detaches = sft_detaches,
};
NRL_EXPORT(sft)
