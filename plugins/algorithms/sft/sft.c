/*
 * sft.c - supervised fine-tuning: push up the log-probability of the answer tokens.
 * Called by core/run once per micro-batch, or once per chunk of its P target positions: every loss here
 * is a sum over rows. The core divides by the weights of the whole global batch.
 */
#include <nrl/expr.h>
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
static nrl_expr row_weights(nrl_exprs *e, const sft_options *o, const nrl_batch *batch)
{
    nrl_expr given = e_column(e, batch, "weights");
    return o->prompt_weight > 0 ? e_where(given, given, e_affine(given, 0, o->prompt_weight)) : given;
}

/* With the smoothing s, the target of a row has the probability 1 - s + s/V and every other token s/V, as in
 * LabelSmoother of transformers:
 *   (1 - s) log p(target) + s/V sum_v log p(v) = (1 - s) log p(target) + s (mean_v z_v - lse) */
static nrl_expr smooth(nrl_expr score, const nrl_batch *batch, double s)
{
    nrl_expr logits = e_column(score.of, batch, "logits"), lse = e_column(score.of, batch, "lse"); /* [P,V], [P] */
    if (e_status(lse)) return lse;
    const double share = s / (double)nrl_tensor_dim(logits.tensor, 1);
    nrl_expr mean = e_affine(e_apply(nrl_op_sum_columns, logits), share, 0), even = e_add(mean, e_affine(lse, -s, 0));
    return e_add(e_affine(score, 1 - s, 0), even);
}

/* sums[0] = -sum_i w_i s_i with the score s_i = log p(target of row i | its prefix), smoothed, less z_loss lse_i^2. In
 * dft (Wu et al. 2025) a row's weight is multiplied by its own probability, which gets no gradient. */
static nrl_status sft_loss(void *self, nrl_ctx *ctx, const nrl_batch *batch, nrl_tensor **sums)
{
    const sft_options *o = self;
    nrl_exprs e = {ctx, NRL_OK};
    nrl_expr score = e_column(&e, batch, "logps"), weights = row_weights(&e, o, batch); /* [P] f32 each */
    if (o->loss == SFT_DFT) score = e_mul(score, e_exp(e_detach(score)));
    if (o->label_smoothing > 0) score = smooth(score, batch, o->label_smoothing);
    if (o->z_loss > 0) score = e_add(score, e_affine(e_square(e_column(&e, batch, "lse")), -o->z_loss, 0));
    return e_store(e_neg(e_sum(e_mul(score, weights))), &sums[0]);
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
