/*
 * old_algorithm.c - the weighted log-probability of answer tokens: replace it by your own loss.
 * nrl/algorithm.h describes the arguments and the contract of each member.
 */
#include <nrl/nrl.h>

typedef struct {
    double strength;
} old_algorithm_options;

static const nrl_option old_algorithm_rows[] = {
    NRL_OPT_F64(old_algorithm_options, strength, "1.0", 0, 10, "the loss is multiplied by this"),
};

/* Columns that the loss reads; the core fills them. */
static const char *const old_algorithm_needs[] = {"logps", NULL};

/* The number by which the sum is divided after it was added up over the whole global batch;
 * computed from counts alone. */
static void old_algorithm_weight(void *self, const nrl_batch *batch, double *weight)
{
    (void)self;
    weight[0] = nrl_batch_count(batch, "answer_tokens");
}

/* sums[0] = -strength sum_i w_i log p_i: a sum, never a mean. */
static nrl_status old_algorithm_loss(void *self, nrl_ctx *ctx, const nrl_batch *batch, nrl_tensor **sums)
{
    const old_algorithm_options *o = self;
    nrl_tensor *logps, *weights, *each, *sum; /* [P] f32 each, sum [1] */
    NRL_TRY(nrl_batch_column(ctx, batch, "logps", &logps));
    NRL_TRY(nrl_batch_column(ctx, batch, "weights", &weights));
    NRL_TRY(nrl_op_binary(ctx, NRL_BINARY_MUL, logps, weights, &each));
    NRL_TRY(nrl_op_sum(ctx, each, &sum));
    return nrl_op_unary(ctx, NRL_UNARY_AFFINE, sum, -o->strength, 0, &sums[0]);
}

static const nrl_algorithm old_algorithm = {
    NRL_PLUGIN(NRL_KIND_ALGORITHM, nrl_algorithm, old_algorithm_options, old_algorithm_rows, "old_algorithm", "0.1",
               "one line for `nrl plugins`"),
    .needs = old_algorithm_needs,
    .n_terms = 1,
    .tokenwise = true, /* the loss is a sum over rows, so any part of a batch can be computed separately */
    .weight = old_algorithm_weight,
    .loss = old_algorithm_loss,
};
NRL_EXPORT(old_algorithm)
