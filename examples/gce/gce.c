/*
 * gce.c - generalized cross entropy (Zhang and Sabuncu 2018) on answer tokens: (1 - p^q) / q. It
 * lies between the plain loss (q towards 0) and 1 - p (q = 1), which is less sensitive to wrong
 * labels. An algorithm outside of the tree: it is built against an installed nrl and selected by
 * its name.
 */
#include <nrl/expr.h>
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

/* (1 - p^q) / q = -expm1(q log p) / q, which is also exact for p near 1 */
static nrl_status gce_loss(void *self, nrl_ctx *ctx, const nrl_batch *batch, nrl_tensor **sums)
{
    const gce_options *o = self;
    nrl_exprs e = {ctx, NRL_OK};
    nrl_expr logps = e_column(&e, batch, "logps"), weights = e_column(&e, batch, "weights"); /* [P] */
    nrl_expr p = e_exp(e_detach(logps)), each = e_affine(e_expm1(e_affine(logps, o->q, 0)), -1 / o->q, 0);
    nrl_tensor *sum_p;
    NRL_TRY(e_store(e_sum(e_mul(p, weights)), &sum_p));
    NRL_TRY(nrl_metric_add(ctx, 0, sum_p, nrl_batch_count(batch, "answer_tokens")));
    return e_store(e_sum(e_mul(each, weights)), &sums[0]);
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
