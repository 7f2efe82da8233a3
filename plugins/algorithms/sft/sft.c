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
    double prompt_weight;
} sft_options;

static const nrl_option sft_rows[] = {
    NRL_OPT_ENUM(sft_options, loss, "nll", "nll|dft",
                 "nll: -log p; dft: -p log p with p held constant (dynamic fine-tuning)"),
    NRL_OPT_ENUM(sft_options, reduce, "token", "token|sequence",
                 "the loss is a mean over answer tokens, or over sequences' sums"),
    NRL_OPT_F64(sft_options, prompt_weight, "0.0", 0, 1, "how much a prompt token counts next to an answer token"),
};

/* Prompt tokens are scored only where they count: their logits are work too. */
static const char *const *sft_instance_needs(void *self)
{
    static const char *const answers[] = {"logps", NULL};
    static const char *const all[] = {"logps", "prompt_targets", NULL};
    return ((const sft_options *)self)->prompt_weight > 0 ? all : answers;
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

/* sums[0] = -sum_i w_i log p(target of row i | its prefix) */
static nrl_status sft_loss(void *self, nrl_ctx *ctx, const nrl_batch *batch, nrl_tensor **sums)
{
    const sft_options *o = self;
    nrl_tensor *logps, *weights, *each, *sum; /* [P] f32 each, sum [1] */
    NRL_TRY(nrl_batch_column(ctx, batch, "logps", &logps));
    NRL_TRY(row_weights(o, ctx, batch, &weights));
    if (o->loss == SFT_DFT) NRL_TRY(times_probability(ctx, logps, &weights));
    NRL_TRY(nrl_op_binary(ctx, NRL_BINARY_MUL, logps, weights, &each));
    NRL_TRY(nrl_op_sum(ctx, each, &sum));
    return nrl_op_unary(ctx, NRL_UNARY_NEG, sum, 0, 0, &sums[0]);
}

static const char *const sft_needs[] = {"logps", NULL};

static const nrl_algorithm sft = {
    NRL_PLUGIN(NRL_KIND_ALGORITHM, nrl_algorithm, sft_options, sft_rows, "sft", "0.1",
               "supervised fine-tuning on answer tokens"),
    .plugin.priority = 100, /* the loss where a config names none */
    .needs = sft_needs,
    .n_terms = 1,
    .tokenwise = true,
    .weight = sft_weight,
    .loss = sft_loss,
    .instance_needs = sft_instance_needs,
};
NRL_EXPORT(sft)
