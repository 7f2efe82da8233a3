/*
 * follow.c - log-probs of a teacher: the policy learns to give each target the log-prob that the teacher gives it. The
 * loss is the sum of w (log p - log p_teacher)^2 / 2.
 */
#include <nrl/expr.h>
#include <nrl/nrl.h>

static void follow_weight(void *self, const nrl_batch *batch, double *weight)
{
    (void)self;
    weight[0] = nrl_batch_count(batch, "answer_tokens");
}

static nrl_status follow_loss(void *self, nrl_ctx *ctx, const nrl_batch *batch, nrl_tensor **sums)
{
    nrl_exprs e = {ctx, NRL_OK};
    (void)self;
    nrl_expr distance = e_sub(e_column(&e, batch, "logps"), e_column(&e, batch, "teacher_logps"));
    return e_store(e_affine(e_sum(e_mul(e_square(distance), e_column(&e, batch, "weights"))), 0.5, 0), &sums[0]);
}

static const char *const follow_needs[] = {"logps", "teacher_logps", NULL};

static const nrl_algorithm table = {
    NRL_PLUGIN_PLAIN(NRL_KIND_ALGORITHM, nrl_algorithm, "follow", "1.0", "learns the log-probs of a teacher"),
    .needs = follow_needs,
    .n_terms = 1,
    .tokenwise = true,
    .weight = follow_weight,
    .loss = follow_loss,
};
NRL_EXPORT(table)
