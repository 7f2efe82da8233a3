/*
 * distill.c - knowledge distillation: the policy learns the distribution of a frozen teacher with the same vocabulary
 * (Hinton et al. 2015), beside the answers themselves. Called by core/run for a chunk of target positions at a time:
 * every loss here is a sum over rows, and the logits of a whole batch never exist.
 *
 * With the teacher's p and the policy's q at a temperature T, the loss of a row is
 *     kd_ratio T^2 KL + (1 - kd_ratio) (-log q(target) at temperature 1)
 * where KL is KL(p || q) (forward: the policy covers what the teacher does) or KL(q || p) (reverse: the policy avoids
 * what the teacher does not do; Gu et al. 2024). T^2 keeps the size of the gradient independent of T.
 *
 * Legend: P target positions, V vocabulary.
 */
#include <nrl/nrl.h>

enum { FORWARD_KL = 0, REVERSE_KL };

typedef struct {
    int64_t divergence; /* FORWARD_KL or REVERSE_KL */
    double temperature, kd_ratio;
} distill_options;

static const nrl_option distill_rows[] = {
    NRL_OPT_ENUM(distill_options, divergence, "forward_kl", "forward_kl|reverse_kl",
                 "forward_kl: KL(teacher || policy); reverse_kl: KL(policy || teacher)"),
    NRL_OPT_F64(distill_options, temperature, "1.0", 1e-3, 1e3,
                "divides the logits of both models in the divergence, which is multiplied by its square"),
    NRL_OPT_F64(distill_options, kd_ratio, "0.5", 0, 1,
                "weight of the divergence; 1 - kd_ratio is the weight of the cross-entropy with the answers"),
};

enum { METRIC_KL = 0, METRIC_NLL, N_METRICS };

static const nrl_metric distill_metrics[N_METRICS + 1] = {
    [METRIC_KL] = {"kl", "nats", NRL_REDUCE_MEAN, NRL_BETTER_SMALLER}, /* without T^2 */
    [METRIC_NLL] = {"nll", "nats", NRL_REDUCE_MEAN, NRL_BETTER_SMALLER},
};

static void distill_weight(void *self, const nrl_batch *batch, double *weight)
{
    (void)self;
    weight[0] = nrl_batch_count(batch, "answer_tokens");
}

/* [P,V] log-probs at the temperature. */
static nrl_status log_probs(nrl_ctx *ctx, const nrl_batch *batch, const char *column, double temperature,
                            nrl_tensor **y)
{
    nrl_tensor *logits;
    NRL_TRY(nrl_batch_column(ctx, batch, column, &logits));
    if (temperature != 1) NRL_TRY(nrl_op_unary(ctx, NRL_UNARY_AFFINE, logits, 1 / temperature, 0, &logits));
    return nrl_op_log_softmax(ctx, logits, y);
}

/* [P] sum_v a_v (log a_v - log b_v) */
static nrl_status divergence(nrl_ctx *ctx, nrl_tensor *log_a, nrl_tensor *log_b, nrl_tensor **kl)
{
    nrl_tensor *a, *ratio;
    NRL_TRY(nrl_op_unary(ctx, NRL_UNARY_EXP, log_a, 0, 0, &a));
    NRL_TRY(nrl_op_binary(ctx, NRL_BINARY_SUB, log_a, log_b, &ratio));
    NRL_TRY(nrl_op_binary(ctx, NRL_BINARY_MUL, a, ratio, &ratio));
    return nrl_op_sum_columns(ctx, ratio, kl);
}

/* The sum of w_i x_i, which is also reported. */
static nrl_status weighted_sum(nrl_ctx *ctx, const nrl_batch *batch, nrl_tensor *x, uint32_t metric, double sign,
                               nrl_tensor **sum)
{
    nrl_tensor *weights, *each, *value;
    NRL_TRY(nrl_batch_column(ctx, batch, "weights", &weights));
    NRL_TRY(nrl_op_binary(ctx, NRL_BINARY_MUL, x, weights, &each));
    NRL_TRY(nrl_op_sum(ctx, each, &each));
    NRL_TRY(nrl_op_unary(ctx, NRL_UNARY_AFFINE, each, sign, 0, sum));
    NRL_TRY(nrl_op_detach(ctx, *sum, &value));
    return nrl_metric_add(ctx, metric, value, nrl_batch_count(batch, "answer_tokens"));
}

static nrl_status distill_loss(void *self, nrl_ctx *ctx, const nrl_batch *batch, nrl_tensor **sums)
{
    const distill_options *o = self;
    nrl_tensor *logps, *policy, *teacher, *each, *kl, *nll;
    NRL_TRY(nrl_batch_column(ctx, batch, "logps", &logps));
    NRL_TRY(log_probs(ctx, batch, "logits", o->temperature, &policy));
    NRL_TRY(log_probs(ctx, batch, "teacher_logits", o->temperature, &teacher));
    if (o->divergence == FORWARD_KL)
        NRL_TRY(divergence(ctx, teacher, policy, &each));
    else
        NRL_TRY(divergence(ctx, policy, teacher, &each));
    NRL_TRY(weighted_sum(ctx, batch, each, METRIC_KL, 1, &kl));
    NRL_TRY(weighted_sum(ctx, batch, logps, METRIC_NLL, -1, &nll));
    NRL_TRY(nrl_op_unary(ctx, NRL_UNARY_AFFINE, kl, o->kd_ratio * o->temperature * o->temperature, 0, &kl));
    NRL_TRY(nrl_op_unary(ctx, NRL_UNARY_AFFINE, nll, 1 - o->kd_ratio, 0, &nll));
    return nrl_op_binary(ctx, NRL_BINARY_ADD, kl, nll, &sums[0]);
}

static const char *const distill_needs[] = {"logps", "logits", "teacher_logits", NULL};

static const nrl_algorithm distill = {
    NRL_PLUGIN(NRL_KIND_ALGORITHM, nrl_algorithm, distill_options, distill_rows, "distill", "0.1",
               "knowledge distillation from the logits of a teacher"),
    .needs = distill_needs,
    .metrics = distill_metrics,
    .n_terms = 1,
    .tokenwise = true,
    .weight = distill_weight,
    .loss = distill_loss,
};
NRL_EXPORT(distill)
