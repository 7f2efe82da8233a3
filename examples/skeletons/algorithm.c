/*
 * @NAME@.c - the weighted log-probability of answer tokens: replace it by your own loss.
 * nrl/algorithm.h describes the arguments and the contract of each member.
 */
#include <nrl/nrl.h>

typedef struct {
    double strength;
} @NAME@_options;

static const nrl_option @NAME@_rows[] = {
    NRL_OPT_F64(@NAME@_options, strength, "1.0", 0, 10, "the loss is multiplied by this"),
};

/* Columns that the loss reads; the core fills them. */
static const char *const @NAME@_needs[] = {"logps", NULL};

/* The number by which the sum is divided after it was added up over the whole global batch;
 * computed from counts alone. */
static void @NAME@_weight(void *self, const nrl_batch *batch, double *weight)
{
    (void)self;
    weight[0] = nrl_batch_count(batch, "answer_tokens");
}

/* sums[0] = -strength sum_i w_i log p_i: a sum, never a mean. */
static nrl_status @NAME@_loss(void *self, nrl_ctx *ctx, const nrl_batch *batch, nrl_tensor **sums)
{
    const @NAME@_options *o = self;
    nrl_tensor *logps, *weights, *each, *sum; /* [P] f32 each, sum [1] */
    NRL_TRY(nrl_batch_column(ctx, batch, "logps", &logps));
    NRL_TRY(nrl_batch_column(ctx, batch, "weights", &weights));
    NRL_TRY(nrl_op_binary(ctx, NRL_BINARY_MUL, logps, weights, &each));
    NRL_TRY(nrl_op_sum(ctx, each, &sum));
    return nrl_op_unary(ctx, NRL_UNARY_AFFINE, sum, -o->strength, 0, &sums[0]);
}

static const nrl_algorithm @NAME@ = {
    NRL_PLUGIN(NRL_KIND_ALGORITHM, nrl_algorithm, @NAME@_options, @NAME@_rows, "@NAME@", "0.1",
               "one line for `nrl plugins`"),
    .needs = @NAME@_needs,
    .n_terms = 1,
    .tokenwise = true, /* the loss is a sum over rows, so any part of a batch can be computed separately */
    .weight = @NAME@_weight,
    .loss = @NAME@_loss,
};
NRL_EXPORT(@NAME@)
