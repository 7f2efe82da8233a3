/*
 * gce.c - generalized cross entropy (Zhang and Sabuncu 2018) on answer tokens: (1 - p^q) / q. It
 * lies between the plain loss (q towards 0) and 1 - p (q = 1), which is less sensitive to wrong
 * labels. An algorithm outside of the tree: it is built against an installed nrl and selected by
 * its name.
 */
#include <nrl/nrl.h>

typedef struct {
    double q;
} gce_options;

static const nrl_option gce_rows[] = {
    NRL_OPT_F64(gce_options, q, "0.7", 1e-3, 1, "0.001: nearly -log p; 1: 1 - p"),
};

static const nrl_metric gce_metrics[] = {
    {"mean_p", "1", NRL_REDUCE_MEAN, NRL_BETTER_LARGER}, /* probability of an answer token */
    {0},
};

static void gce_weight(void *self, const nrl_batch *batch, double *weight)
{
    (void)self;
    weight[0] = nrl_batch_count(batch, "answer_tokens");
}

/* sum over rows of x * weight; [P] to [1] */
static nrl_status gce_weighted_sum(nrl_ctx *ctx, nrl_tensor *x, nrl_tensor *weights, nrl_tensor **sum)
{
    nrl_tensor *each;
    NRL_TRY(nrl_op_binary(ctx, NRL_BINARY_MUL, x, weights, &each));
    return nrl_op_sum(ctx, each, sum);
}

static nrl_status gce_report(nrl_ctx *ctx, const nrl_batch *batch, nrl_tensor *logps, nrl_tensor *weights)
{
    nrl_tensor *constant, *p, *sum;
    NRL_TRY(nrl_op_detach(ctx, logps, &constant));
    NRL_TRY(nrl_op_unary(ctx, NRL_UNARY_EXP, constant, 0, 0, &p));
    NRL_TRY(gce_weighted_sum(ctx, p, weights, &sum));
    return nrl_metric_add(ctx, 0, sum, nrl_batch_count(batch, "answer_tokens"));
}

/* (1 - p^q) / q = -expm1(q log p) / q, which is also exact for p near 1 */
static nrl_status gce_loss(void *self, nrl_ctx *ctx, const nrl_batch *batch, nrl_tensor **sums)
{
    const gce_options *o = self;
    nrl_tensor *logps, *weights, *scaled, *each, *sum; /* [P] f32 each, sum [1] */
    NRL_TRY(nrl_batch_column(ctx, batch, "logps", &logps));
    NRL_TRY(nrl_batch_column(ctx, batch, "weights", &weights));
    NRL_TRY(gce_report(ctx, batch, logps, weights));
    NRL_TRY(nrl_op_unary(ctx, NRL_UNARY_AFFINE, logps, o->q, 0, &scaled));
    NRL_TRY(nrl_op_unary(ctx, NRL_UNARY_EXPM1, scaled, 0, 0, &each));
    NRL_TRY(gce_weighted_sum(ctx, each, weights, &sum));
    return nrl_op_unary(ctx, NRL_UNARY_AFFINE, sum, -1 / o->q, 0, &sums[0]);
}

static const char *const gce_needs[] = {"logps", NULL};

static const nrl_algorithm gce = {
    NRL_PLUGIN(NRL_KIND_ALGORITHM, nrl_algorithm, gce_options, gce_rows, "gce", "1.0",
               "generalized cross entropy on answer tokens"),
    .needs = gce_needs,
    .metrics = gce_metrics,
    .n_terms = 1,
    .tokenwise = true,
    .weight = gce_weight,
    .loss = gce_loss,
};
NRL_EXPORT(gce)
