/*
 * mine.c - an algorithm outside of the tree, which only uses the installed headers.
 */
#include <nrl/nrl.h>

typedef struct {
    double strength;
} mine_options;

static const nrl_option mine_rows[] = {
    NRL_OPT_F64(mine_options, strength, "1.0", 0, 10, "strength of the loss"),
};

static const char *const mine_needs[] = {"logps", NULL};

static void mine_weight(void *self, const nrl_batch *batch, double *weight)
{
    (void)self;
    weight[0] = nrl_batch_count(batch, "answer_tokens");
}

static nrl_status mine_loss(void *self, nrl_ctx *ctx, const nrl_batch *batch, nrl_tensor **sums)
{
    const mine_options *o = self;
    nrl_tensor *logps, *sum; /* [P] f32, [1] f32 */
    NRL_TRY(nrl_batch_column(ctx, batch, "logps", &logps));
    NRL_TRY(nrl_op_sum(ctx, logps, &sum));
    return nrl_op_unary(ctx, NRL_UNARY_AFFINE, sum, -o->strength, 0, &sums[0]);
}

static const nrl_algorithm mine = {
    NRL_PLUGIN(NRL_KIND_ALGORITHM, nrl_algorithm, mine_options, mine_rows, "mine", "1.0", "an algorithm from outside"),
    .needs = mine_needs,
    .n_terms = 1,
    .weight = mine_weight,
    .loss = mine_loss,
};
NRL_EXPORT(mine)
