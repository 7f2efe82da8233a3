/*
 * grpo.c - group relative policy optimization (Shao et al. 2024): for each prompt the policy samples a group of
 * completions, a Lua function rewards them, and completions that are better than the mean of their group become more
 * likely. Names and numbers are those of TRL's GRPOTrainer. Called by core/run for a chunk of target positions at a
 * time: the loss is a sum over rows.
 *
 * With the rewards r of a group and the ratio q = p(token) / p(token when it was sampled), the loss of a token is
 *     A = (r - mean(r)) / (std(r) + 1e-4)        std with n - 1; not divided with scale_rewards: none
 *     -min(q A, clamp(q, 1 - epsilon, 1 + epsilon_high) A) + beta (exp(d) - d - 1),  d = log p_ref - log p
 * and the loss of the step is a mean of these over all tokens (dapo), a mean over completions of their means (grpo),
 * or a mean over completions of their sums divided by max_tokens (dr_grpo; Liu et al. 2025). Each completion is used
 * for one update, so q is 1 but for the rounding of the two forward passes, and for epsilon what drifts beyond it is
 * left out. beta > 0 opens a reference model.
 *
 * Legend: P target positions.
 */
#include "reward.h"
#include <math.h>
#include <nrl/expr.h>
#include <nrl/nrl.h>
#include <stdlib.h>

enum { LOSS_DAPO = 0, LOSS_GRPO, LOSS_DR_GRPO };
enum { SCALE_GROUP = 0, SCALE_NONE };

typedef struct {
    const char *reward;
    int64_t loss, scale_rewards, group_size, max_tokens, top_k;
    double beta, epsilon, epsilon_high, temperature, top_p, min_p;
    bool mask_truncated;
} grpo_options;

typedef struct {
    grpo_options options;
    reward_script *script;
} grpo_state;

static const nrl_option grpo_rows[] = {
    {"reward", NULL, NULL, "Lua file that returns a function of a sample, which returns its reward", 0, 0,
     NRL_OFFSET(grpo_options, reward, const char *), NRL_TYPE_PATH},
    NRL_OPT_INT(grpo_options, group_size, "8", 2, 4096, "completions of each prompt, which are compared"),
    NRL_OPT_INT(grpo_options, max_tokens, "256", 1, INT32_MAX, "new tokens of a completion, at most"),
    NRL_OPT_ENUM(grpo_options, loss, "dapo", "dapo|grpo|dr_grpo",
                 "dapo: mean over tokens; grpo: over completions' means; dr_grpo: over their sums / max_tokens"),
    NRL_OPT_F64(grpo_options, beta, "0.0", 0, 1e6, "weight of the KL divergence from a reference; 0: no reference"),
    NRL_OPT_F64(grpo_options, epsilon, "0.2", 0, 1,
                "a token whose probability fell by more than this share since it was sampled gets no gradient"),
    NRL_OPT_F64(grpo_options, epsilon_high, "", 0, 1e6, "the same for a probability that rose; unset: epsilon"),
    NRL_OPT_ENUM(grpo_options, scale_rewards, "group", "group|none",
                 "group: advantages are divided by the standard deviation of their group"),
    NRL_OPT_BOOL(grpo_options, mask_truncated, "false", "leave out completions that reached max_tokens"),
    NRL_OPT_F64(grpo_options, temperature, "1.0", 1e-3, 1e3, "of sampling; the loss has log-probs at 1"),
    NRL_OPT_F64(grpo_options, top_p, "1.0", 1e-6, 1, "sample from the smallest set of tokens with this probability"),
    NRL_OPT_INT(grpo_options, top_k, "0", 0, INT32_MAX, "sample from this many most likely tokens; 0: all"),
    NRL_OPT_F64(grpo_options, min_p, "0.0", 0, 1,
                "drop tokens whose probability is below this share of the most likely one's"),
};

enum {
    METRIC_REWARD = 0,
    METRIC_STD,
    METRIC_EQUAL,
    METRIC_LENGTH,
    METRIC_FINISHED,
    METRIC_KL,
    METRIC_CLIPPED,
    N_METRICS
};

static const nrl_metric grpo_metrics[N_METRICS + 1] = {
    [METRIC_REWARD] = {"reward", "1", NRL_REDUCE_MEAN, NRL_BETTER_LARGER},
    [METRIC_STD] = {"reward_std", "1", NRL_REDUCE_MEAN, NRL_BETTER_NONE},     /* in a group */
    [METRIC_EQUAL] = {"reward_equal", "1", NRL_REDUCE_MEAN, NRL_BETTER_NONE}, /* share of groups that teach nothing */
    [METRIC_LENGTH] = {"completions/length", "tokens", NRL_REDUCE_MEAN, NRL_BETTER_NONE},
    [METRIC_FINISHED] = {"completions/finished", "1", NRL_REDUCE_MEAN, NRL_BETTER_LARGER},
    [METRIC_KL] = {"kl", "nats", NRL_REDUCE_MEAN, NRL_BETTER_NONE},
    [METRIC_CLIPPED] = {"clipped", "1", NRL_REDUCE_MEAN, NRL_BETTER_SMALLER},
};

/* ---- life ---- */

static nrl_status grpo_create(const void *options, void **self)
{
    grpo_state *s = calloc(1, sizeof *s);
    if (!s) return nrl_fail(NRL_ERR_MEMORY, "no memory for the state of grpo");
    s->options = *(const grpo_options *)options;
    if (s->options.epsilon_high == 0) s->options.epsilon_high = s->options.epsilon;
    nrl_status st = reward_open(s->options.reward, &s->script);
    if (st == NRL_OK)
        *self = s;
    else
        free(s);
    return st;
}

static void grpo_destroy(void *self)
{
    grpo_state *s = self;
    reward_close(s->script);
    free(s);
}

/* Another reward is another objective: a run that goes on with it says so. */
static nrl_status grpo_state_io(void *self, nrl_state_io *io)
{
    const grpo_state *s = self;
    const int64_t is = (int64_t)reward_hash(s->script);
    int64_t was = is;
    NRL_TRY(nrl_state_io_i64(io, "reward", &was, 1));
    if (was != is)
        nrl_warn("algorithm.reward: '%s' is not the file that the checkpoint was trained with", s->options.reward);
    return NRL_OK;
}

static const char *const *grpo_instance_needs(void *self)
{
    static const char *const with[] = {"logps", "ref_logps", NULL}, *const without[] = {"logps", NULL};
    return ((const grpo_state *)self)->options.beta > 0 ? with : without;
}

/* ---- completions, rewards, advantages ---- */

/* Advantages of one group from its rewards. */
static nrl_status compare_group(const grpo_options *o, const double *rewards, int64_t n, float *advantages)
{
    double mean = 0, square = 0;
    for (int64_t k = 0; k < n; k++)
        mean += rewards[k] / (double)n;
    for (int64_t k = 0; k < n; k++)
        square += (rewards[k] - mean) * (rewards[k] - mean);
    const double std = n > 1 ? sqrt(square / (double)(n - 1)) : 0;
    for (int64_t k = 0; k < n; k++)
        advantages[k] = (float)((rewards[k] - mean) / (o->scale_rewards == SCALE_GROUP ? std + 1e-4 : 1));
    if (n < 2) return NRL_OK;
    NRL_TRY(nrl_metric_report_f64(&grpo_metrics[METRIC_STD], std, 1));
    return nrl_metric_report_f64(&grpo_metrics[METRIC_EQUAL], square == 0, 1);
}

static nrl_status look_at(grpo_state *s, const nrl_rollout *r, int64_t i, double *reward, float *scale, float *weight)
{
    const grpo_options *o = &s->options;
    nrl_rollout_sequence q = {.size = sizeof q};
    nrl_rollout_sequence_fill(r, i, &q);
    NRL_TRY(reward_of(s->script, r, i, reward));
    NRL_TRY(nrl_metric_report_f64(&grpo_metrics[METRIC_REWARD], *reward, 1));
    NRL_TRY(nrl_metric_report_f64(&grpo_metrics[METRIC_LENGTH], (double)q.n_completion, 1));
    NRL_TRY(nrl_metric_report_f64(&grpo_metrics[METRIC_FINISHED], q.is_finished, 1));
    *weight = o->mask_truncated && !q.is_finished ? 0 : 1;
    *scale = o->loss == LOSS_DAPO   ? 1.0f
             : o->loss == LOSS_GRPO ? (float)(1 / (double)q.n_completion)
                                    : (float)(1 / (double)o->max_tokens);
    return NRL_OK;
}

/* An evaluation has one completion of each prompt, for eval_reward. */
static nrl_status grpo_rollout(void *self, nrl_rollout *r)
{
    grpo_state *s = self;
    const grpo_options *o = &s->options;
    nrl_rollout_info info = {.size = sizeof info};
    nrl_rollout_info_fill(r, &info);
    const nrl_rollout_options options = {.size = sizeof options,
                                         .n = info.trains ? o->group_size : 1,
                                         .max_tokens = o->max_tokens,
                                         .temperature = o->temperature,
                                         .top_p = o->top_p,
                                         .top_k = o->top_k,
                                         .min_p = o->min_p};
    NRL_TRY(nrl_rollout_generate(r, &options));
    nrl_rollout_info_fill(r, &info);
    const size_t n = (size_t)info.n_sequences;
    double *rewards = calloc(n + 1, sizeof *rewards);
    float *advantages = calloc(n + 1, sizeof *advantages), *scales = calloc(n + 1, sizeof *scales);
    float *weights = calloc(n + 1, sizeof *weights);
    nrl_status st =
        rewards && advantages && scales && weights ? NRL_OK : nrl_fail(NRL_ERR_MEMORY, "no memory for rewards");
    reward_begin(s->script, info.step);
    for (int64_t i = 0; i < info.n_sequences && st == NRL_OK; i++)
        st = look_at(s, r, i, &rewards[i], &scales[i], &weights[i]);
    for (int64_t i = 0; i < info.n_sequences && st == NRL_OK; i += options.n)
        st = compare_group(o, rewards + i, options.n, advantages + i);
    const nrl_rollout_column columns[] = {{"advantages", advantages}, {"scales", scales}, {"weights", weights}};
    if (st == NRL_OK) st = nrl_rollout_replace(r, columns, sizeof columns / sizeof *columns);
    free(rewards);
    free(advantages);
    free(scales);
    free(weights);
    return st;
}

/* ---- the loss ---- */

static void grpo_weight(void *self, const nrl_batch *batch, double *weight)
{
    const grpo_state *s = self;
    weight[0] = nrl_batch_count(batch, s->options.loss == LOSS_DAPO ? "answer_tokens" : "sequences");
}

static nrl_status report(nrl_expr each, const nrl_batch *batch, uint32_t metric)
{
    nrl_tensor *value;
    nrl_expr sum = e_sum(e_mul(e_detach(each), e_column(each.of, batch, "weights")));
    NRL_TRY(e_store(sum, &value));
    return nrl_metric_add(each.of->ctx, metric, value, nrl_batch_count(batch, "answer_tokens"));
}

static nrl_status grpo_loss(void *self, nrl_ctx *ctx, const nrl_batch *batch, nrl_tensor **sums)
{
    const grpo_options *o = &((const grpo_state *)self)->options;
    nrl_exprs e = {ctx, NRL_OK};
    nrl_expr logps = e_column(&e, batch, "logps"), advantages = e_column(&e, batch, "advantages"); /* [P] each */
    nrl_expr ratio = e_exp(e_sub(logps, e_column(&e, batch, "sampled_logps")));
    nrl_expr clamped = e_clamp(ratio, 1 - o->epsilon, 1 + o->epsilon_high);
    nrl_expr free_gain = e_mul(ratio, advantages), clamped_gain = e_mul(clamped, advantages);
    nrl_expr each = e_neg(e_min(free_gain, clamped_gain));
    NRL_TRY(report(e_greater(free_gain, clamped_gain), batch, METRIC_CLIPPED));
    if (o->beta > 0) {
        nrl_expr d = e_sub(e_column(&e, batch, "ref_logps"), logps);
        nrl_expr kl = e_sub(e_expm1(d), d);
        NRL_TRY(report(kl, batch, METRIC_KL));
        each = e_add(each, e_affine(kl, o->beta, 0));
    }
    nrl_expr weights = e_mul(e_column(&e, batch, "weights"), e_column(&e, batch, "scales"));
    return e_store(e_sum(e_mul(each, weights)), &sums[0]);
}

static const char *const grpo_needs[] = {"logps", "ref_logps", NULL};
static const char *const grpo_columns[] = {"advantages", "scales", "weights", NULL};

static const nrl_algorithm grpo = {
    NRL_PLUGIN(NRL_KIND_ALGORITHM, nrl_algorithm, grpo_options, grpo_rows, "grpo", "0.1",
               "reinforcement learning from rewards of a Lua function (GRPO)"),
    .needs = grpo_needs,
    .metrics = grpo_metrics,
    .n_terms = 1,
    .tokenwise = true,
    .create = grpo_create,
    .destroy = grpo_destroy,
    .weight = grpo_weight,
    .loss = grpo_loss,
    .state = grpo_state_io,
    .instance_needs = grpo_instance_needs,
    .rollout = grpo_rollout,
    .rollout_columns = grpo_columns,
    .best = &grpo_metrics[METRIC_REWARD],
};
NRL_EXPORT(grpo)
