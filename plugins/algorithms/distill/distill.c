/*
 * distill.c - knowledge distillation: the policy learns the distribution of a frozen teacher with the same vocabulary
 * (Hinton et al. 2015), beside the answers of the data, or on completions of its own (on-policy distillation, GKD:
 * Agarwal et al. 2024). Called by core/run for a chunk of target positions at a time: every loss here is a sum over
 * rows, and the logits of a whole batch never exist.
 *
 * With the teacher's p and the policy's q at a temperature T, the loss of a row is
 *     kd_ratio T^2 D + (1 - kd_ratio) (-log q(target) at temperature 1)
 * where D is KL(p || q) (forward: the policy covers what the teacher does), KL(q || p) (reverse: the policy avoids what
 * the teacher does not do; Gu et al. 2024), or the generalized Jensen-Shannon divergence
 *     beta KL(p || m) + (1 - beta) KL(q || m)    with m = beta p + (1 - beta) q
 * T^2 keeps the size of the gradient independent of T.
 *
 * Legend: P target positions, V vocabulary.
 */
#include <math.h>
#include <nrl/expr.h>
#include <nrl/nrl.h>
#include <nrl/rollout.h>
#include <stdlib.h>

enum { FORWARD_KL = 0, REVERSE_KL, JSD };
static const double BETA = 0.5; /* defaults */
enum { MAX_TOKENS = 128 };

typedef struct {
    int64_t divergence; /* FORWARD_KL, REVERSE_KL or JSD */
    double temperature, kd_ratio, beta;
    double on_policy;
    int64_t max_tokens, top_k;
    double sample_temperature, top_p;
} distill_options;

typedef struct {
    distill_options options;
    bool is_on_policy; /* the current step */
} distill_state;

static const nrl_option distill_rows[] = {
    NRL_OPT_ENUM(distill_options, divergence, "forward_kl", "forward_kl|reverse_kl|jsd",
                 "forward_kl: KL(teacher || policy); reverse_kl: KL(policy || teacher); jsd: interpolates between "
                 "the two, see beta"),
    NRL_OPT_F64(distill_options, temperature, "1.0", 1e-3, 1e3,
                "divides the logits of both models in the divergence; the divergence is multiplied by its square"),
    NRL_OPT_F64(distill_options, kd_ratio, "0.5", 0, 1,
                "weight of the divergence; 1 - kd_ratio is the weight of the cross-entropy with the answers"),
    NRL_OPT_F64(distill_options, beta, "0.5", 1e-3, 0.999,
                "share of the teacher in the mixture of divergence: jsd; near 0 it is similar to forward_kl, near 1 "
                "to reverse_kl"),
    NRL_OPT_F64(distill_options, on_policy, "0.0", 0, 1,
                "share of the steps that train on completions sampled from the policy (lmbda of GKD)"),
    NRL_OPT_INT(distill_options, max_tokens, "128", 1, INT32_MAX,
                "on_policy: maximum number of new tokens of a completion"),
    NRL_OPT_F64(distill_options, sample_temperature, "1.0", 0, 1e3,
                "on_policy: temperature of sampling; 0: the most likely token"),
    NRL_OPT_F64(distill_options, top_p, "1.0", 1e-6, 1,
                "on_policy: sample from the smallest set of tokens with at least this probability"),
    NRL_OPT_INT(distill_options, top_k, "0", 0, INT32_MAX,
                "on_policy: sample from this many most likely tokens; 0: all"),
};

enum { METRIC_KL = 0, METRIC_NLL, METRIC_LENGTH, METRIC_FINISHED, N_METRICS };

static const nrl_metric distill_metrics[N_METRICS + 1] = {
    [METRIC_KL] = {"kl", "nats", NRL_REDUCE_MEAN, NRL_BETTER_SMALLER},   /* the divergence without T^2 */
    [METRIC_NLL] = {"nll", "nats", NRL_REDUCE_MEAN, NRL_BETTER_SMALLER}, /* of the data's answers */
    [METRIC_LENGTH] = {"completions/length", "tokens", NRL_REDUCE_MEAN, NRL_BETTER_NONE},
    [METRIC_FINISHED] = {"completions/finished", "1", NRL_REDUCE_MEAN, NRL_BETTER_LARGER},
};

static nrl_status distill_check(const void *options)
{
    const distill_options *o = options;
    const char *unused = o->max_tokens != MAX_TOKENS  ? "max_tokens"
                         : o->sample_temperature != 1 ? "sample_temperature"
                         : o->top_p != 1              ? "top_p"
                         : o->top_k != 0              ? "top_k"
                                                      : NULL;
    if (o->on_policy == 0 && unused)
        return nrl_fail(
            NRL_ERR_CONFIG,
            "%s is set, but only steps with sampled completions use it; expected on_policy above 0 or no %s", unused,
            unused);
    if (o->beta != BETA && o->divergence != JSD)
        return nrl_fail(NRL_ERR_CONFIG,
                        "beta is %g, but only divergence: jsd uses it; expected divergence: jsd or no beta", o->beta);
    if (o->on_policy > 0 && o->kd_ratio < 1)
        return nrl_fail(NRL_ERR_CONFIG,
                        "on_policy is %g with kd_ratio %g: the cross-entropy with completions of the policy itself is "
                        "not useful\n"
                        "hint: kd_ratio: 1",
                        o->on_policy, o->kd_ratio);
    return NRL_OK;
}

static nrl_status distill_create(const void *options, void **self)
{
    distill_state *s = calloc(1, sizeof *s);
    if (!s) return nrl_fail(NRL_ERR_MEMORY, "no memory for the state of distill");
    s->options = *(const distill_options *)options;
    *self = s;
    return NRL_OK;
}

static void distill_destroy(void *self)
{
    free(self);
}

/* One step in 1 / on_policy, as GKD does: all ranks decide alike. Evaluations compare on the answers of the data. */
static nrl_status distill_rollout(void *self, nrl_rollout *r)
{
    distill_state *s = self;
    const distill_options *o = &s->options;
    nrl_rollout_info info = {.size = sizeof info};
    nrl_rollout_info_fill(r, &info);
    s->is_on_policy = info.trains && nrl_rollout_uniform(r, 0) < o->on_policy;
    if (!s->is_on_policy) return NRL_OK;
    const nrl_rollout_options options = {.size = sizeof options,
                                         .n = 1,
                                         .max_tokens = o->max_tokens,
                                         .temperature = o->sample_temperature,
                                         .top_p = o->top_p,
                                         .top_k = o->top_k};
    NRL_TRY(nrl_rollout_generate(r, &options));
    nrl_rollout_info_fill(r, &info);
    for (int64_t i = 0; i < info.n_sequences; i++) {
        nrl_rollout_sequence q = {.size = sizeof q};
        nrl_rollout_sequence_fill(r, i, &q);
        NRL_TRY(nrl_rollout_report(r, i, &distill_metrics[METRIC_LENGTH], (double)q.n_completion, 1));
        NRL_TRY(nrl_rollout_report(r, i, &distill_metrics[METRIC_FINISHED], q.is_finished, 1));
    }
    return nrl_rollout_replace(r, NULL, 0);
}

static void distill_weight(void *self, const nrl_batch *batch, double *weight)
{
    (void)self;
    weight[0] = nrl_batch_count(batch, "answer_tokens");
}

/* [P,V] log-probs at the temperature. */
static nrl_expr log_probs(nrl_exprs *e, const nrl_batch *batch, const char *column, double temperature)
{
    nrl_expr logits = e_column(e, batch, column);
    return e_apply(nrl_op_log_softmax, temperature != 1 ? e_affine(logits, 1 / temperature, 0) : logits);
}

/* [P] sum_v a_v (log a_v - log b_v) */
static nrl_expr kl(nrl_expr log_a, nrl_expr log_b)
{
    nrl_expr a = e_exp(log_a);
    return e_apply(nrl_op_sum_columns, e_mul(a, e_sub(log_a, log_b)));
}

/* [P] with log m = log(beta p + (1 - beta) q) = y - log sigmoid(y - x), where x = log(beta p), y = log((1 - beta) q) */
static nrl_expr jsd(nrl_expr log_p, nrl_expr log_q, double beta)
{
    nrl_expr y = e_affine(log_q, 1, log1p(-beta));
    nrl_expr log_m = e_sub(y, e_log_sigmoid(e_sub(y, e_affine(log_p, 1, log(beta)))));
    return e_add(e_affine(kl(log_p, log_m), beta, 0), e_affine(kl(log_q, log_m), 1 - beta, 0));
}

/* [1] sign * the sum of w_i x_i */
static nrl_expr weighted_sum(nrl_expr x, const nrl_batch *batch, double sign)
{
    return e_affine(e_sum(e_mul(x, e_column(x.of, batch, "weights"))), sign, 0);
}

static nrl_status report(nrl_expr sum, const nrl_batch *batch, uint32_t metric)
{
    nrl_tensor *value;
    NRL_TRY(e_store(e_detach(sum), &value));
    return nrl_metric_add(sum.of->ctx, metric, value, nrl_batch_count(batch, "answer_tokens"));
}

static nrl_status distill_loss(void *self, nrl_ctx *ctx, const nrl_batch *batch, nrl_tensor **sums)
{
    const distill_state *s = self;
    const distill_options *o = &s->options;
    nrl_exprs e = {ctx, NRL_OK};
    nrl_expr logps = e_column(&e, batch, "logps");
    nrl_expr policy = log_probs(&e, batch, "logits", o->temperature);
    nrl_expr teacher = log_probs(&e, batch, "teacher_logits", o->temperature);
    nrl_expr each = o->divergence == FORWARD_KL   ? kl(teacher, policy)
                    : o->divergence == REVERSE_KL ? kl(policy, teacher)
                                                  : jsd(teacher, policy, o->beta);
    nrl_expr divergence = weighted_sum(each, batch, 1), nll = weighted_sum(logps, batch, -1);
    NRL_TRY(report(divergence, batch, METRIC_KL));
    if (!s->is_on_policy) NRL_TRY(report(nll, batch, METRIC_NLL));
    divergence = e_affine(divergence, o->kd_ratio * o->temperature * o->temperature, 0);
    return e_store(e_add(divergence, e_affine(nll, 1 - o->kd_ratio, 0)), &sums[0]);
}

static const char *const distill_needs[] = {"logps", "logits", "teacher_logits", NULL};

static const nrl_algorithm distill = {
    NRL_PLUGIN(NRL_KIND_ALGORITHM, nrl_algorithm, distill_options, distill_rows, "distill", "0.2",
               "knowledge distillation from the logits of a teacher, also on-policy"),
    .plugin.check = distill_check,
    .needs = distill_needs,
    .metrics = distill_metrics,
    .n_terms = 1,
    .tokenwise = true,
    .create = distill_create,
    .destroy = distill_destroy,
    .weight = distill_weight,
    .loss = distill_loss,
    .rollout = distill_rollout,
};
NRL_EXPORT(distill)
