/*
 * grpo.c - group relative policy optimization (Shao et al. 2024): for each prompt the policy samples a group of
 * completions, Lua functions or a model reward them, and completions that are better than the mean of their group
 * become more likely. Names and numbers are those of TRL's GRPOTrainer. Called by core/run for a chunk of target
 * positions at a time: the loss is a sum over rows.
 *
 * With the rewards r of a group and the ratio q = p(token) / p(token when it was sampled), the loss of a token is
 *     A = (r - mean(r)) / (std(r) + 1e-4)        std with n - 1, of the group or of the batch; none: not divided
 *     -min(min(q, delta) A, clamp(q, 1 - epsilon, 1 + epsilon_high) A) + beta (exp(d) - d - 1),  d = log p_ref - log p
 * and the loss of the step is a mean of these over all tokens (bnpo, dapo), a mean over completions of their means
 * (grpo), or a mean over completions of their sums divided by max_tokens (dr_grpo; Liu et al. 2025). With
 * importance_sampling: sequence, q is the same for all tokens of a completion, the geometric mean of theirs (GSPO;
 * Zheng et al. 2025). beta > 0 opens a reference model.
 *
 * The completions of a batch of prompts are divided into steps_per_generation parts; a step trains on one of them, and
 * all of them are trained on num_iterations times. Until the first step has changed the weights q is 1, except for the
 * rounding of the two forward passes.
 *
 * Legend: P target positions, S completions of a micro-batch.
 */
#include "rewards.h"
#include <math.h>
#include <nrl/expr.h>
#include <nrl/nrl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LOSS_DAPO = 0, LOSS_GRPO, LOSS_DR_GRPO, LOSS_BNPO, LOSS_CISPO, LOSS_SAPO };
enum { SCALE_GROUP = 0, SCALE_NONE, SCALE_BATCH };
enum { SAMPLING_TOKEN = 0, SAMPLING_SEQUENCE };
static const double EPSILON = 0.2, SAPO_NEGATIVE = 1.05; /* defaults */

typedef struct {
    const char *reward, *reward_model;
    const nrl_node *reward_weights;
    int64_t loss, scale_rewards, group_size, max_tokens, top_k;
    int64_t importance_sampling, steps_per_generation, num_iterations;
    double beta, epsilon, epsilon_high, delta, temperature, top_p, min_p;
    double sapo_temperature_pos, sapo_temperature_neg;
    bool mask_truncated;
} grpo_options;

typedef struct {
    grpo_options options;
    rewards *rewards;
    nrl_metric *metrics;    /* grpo_metrics, and two rows for each reward with a name */
    nrl_rollout_kept *kept; /* the completions of the current batch; NULL = none */
    bool is_used_up;        /* this step is the last one that needs them */
} grpo_state;

static const nrl_option grpo_rows[] = {
    NRL_OPT_PATH(grpo_options, reward, "",
                 "Lua file that returns a function from a sample to its reward, or a table of such functions"),
    NRL_OPT_PATH(grpo_options, reward_model, "",
                 "a reward model; its score for a completion is the reward named 'model'"),
    NRL_OPT_NODE(grpo_options, reward_weights, "", "weights of the rewards in their sum, {NAME: number}; unset: 1"),
    NRL_OPT_INT(grpo_options, group_size, "8", 2, 4096, "number of completions per prompt, which form a group"),
    NRL_OPT_INT(grpo_options, max_tokens, "256", 1, INT32_MAX, "maximum number of new tokens of a completion"),
    NRL_OPT_INT(grpo_options, steps_per_generation, "1", 1, 1024,
                "number of steps over which the completions of a batch of prompts are divided"),
    NRL_OPT_INT(grpo_options, num_iterations, "1", 1, 1024, "number of times that each completion is trained on"),
    NRL_OPT_ENUM(
        grpo_options, loss, "dapo", "dapo|grpo|dr_grpo|bnpo|cispo|sapo",
        "averaging of token losses; dapo, bnpo, cispo: over tokens; grpo, sapo: over means of completions; "
        "dr_grpo: over sums of completions / max_tokens. cispo and sapo do not clip the ratio as the others do: "
        "see epsilon_high, sapo_temperature_pos"),
    NRL_OPT_ENUM(grpo_options, importance_sampling, "token", "token|sequence",
                 "token: one ratio per token; sequence: one ratio per completion, the geometric mean of its tokens "
                 "(GSPO)"),
    NRL_OPT_F64(grpo_options, beta, "0.0", 0, 1e6, "weight of the KL divergence from a reference; 0: no reference"),
    NRL_OPT_F64(grpo_options, epsilon, "0.2", 0, 1,
                "clipping: no gradient for a token whose probability has decreased by more than this share since it "
                "was sampled"),
    NRL_OPT_F64(
        grpo_options, epsilon_high, "", 1e-6, 1e6,
        "the same for increased probabilities; unset: epsilon. cispo: upper limit of the ratio, which is a weight "
        "without a gradient there"),
    NRL_OPT_F64(grpo_options, delta, "", 1e-6, 1e6,
                "upper limit of the ratio, also for negative advantages; unset: none"),
    NRL_OPT_F64(grpo_options, sapo_temperature_pos, "1.0", 1e-3, 1e3,
                "sapo: with advantage A, a token's loss is -4 A sigmoid(T (ratio - 1)) / T; T of positive advantages"),
    NRL_OPT_F64(grpo_options, sapo_temperature_neg, "1.05", 1e-3, 1e3, "the same for other advantages"),
    NRL_OPT_ENUM(grpo_options, scale_rewards, "group", "group|none|batch",
                 "divide advantages by the standard deviation of the rewards of their group or of the batch"),
    NRL_OPT_BOOL(grpo_options, mask_truncated, "false", "exclude completions that reached max_tokens from the loss"),
    NRL_OPT_F64(grpo_options, temperature, "1.0", 1e-3, 1e3,
                "temperature of sampling; the loss uses log-probs at temperature 1"),
    NRL_OPT_F64(grpo_options, top_p, "1.0", 1e-6, 1, "sample from the smallest set of tokens with this probability"),
    NRL_OPT_INT(grpo_options, top_k, "0", 0, INT32_MAX, "sample from this many most likely tokens; 0: all"),
    NRL_OPT_F64(grpo_options, min_p, "0.0", 0, 1,
                "exclude tokens whose probability is below this share of the largest probability"),
};

enum {
    METRIC_REWARD = 0,
    METRIC_STD,
    METRIC_EQUAL,
    METRIC_LENGTH,
    METRIC_SHORTEST,
    METRIC_LONGEST,
    METRIC_TRUNCATED,
    METRIC_ENTROPY,
    METRIC_KL,
    METRIC_CLIPPED_LOW,
    METRIC_CLIPPED_HIGH,
    METRIC_CLIPPED,
    METRIC_CISPO_CLIPPED,
    N_METRICS
};

static const nrl_metric grpo_metrics[N_METRICS + 1] = {
    [METRIC_REWARD] = {"reward", "1", NRL_REDUCE_MEAN, NRL_BETTER_LARGER},
    [METRIC_STD] = {"reward_std", "1", NRL_REDUCE_MEAN, NRL_BETTER_NONE}, /* of all completions of the batch */
    [METRIC_EQUAL] = {"frac_reward_zero_std", "1", NRL_REDUCE_MEAN, NRL_BETTER_NONE}, /* groups without a gradient */
    [METRIC_LENGTH] = {"completions/mean_length", "tokens", NRL_REDUCE_MEAN, NRL_BETTER_NONE},
    [METRIC_SHORTEST] = {"completions/min_length", "tokens", NRL_REDUCE_MIN, NRL_BETTER_NONE},
    [METRIC_LONGEST] = {"completions/max_length", "tokens", NRL_REDUCE_MAX, NRL_BETTER_NONE},
    [METRIC_TRUNCATED] = {"completions/clipped_ratio", "1", NRL_REDUCE_MEAN, NRL_BETTER_SMALLER},
    [METRIC_ENTROPY] = {"entropy", "nats", NRL_REDUCE_MEAN, NRL_BETTER_NONE},
    [METRIC_KL] = {"kl", "nats", NRL_REDUCE_MEAN, NRL_BETTER_NONE},
    [METRIC_CLIPPED_LOW] = {"clip_ratio/low_mean", "1", NRL_REDUCE_MEAN, NRL_BETTER_SMALLER},
    [METRIC_CLIPPED_HIGH] = {"clip_ratio/high_mean", "1", NRL_REDUCE_MEAN, NRL_BETTER_SMALLER},
    [METRIC_CLIPPED] = {"clip_ratio/region_mean", "1", NRL_REDUCE_MEAN, NRL_BETTER_SMALLER},
    [METRIC_CISPO_CLIPPED] = {"cispo_clip_ratio", "1", NRL_REDUCE_MEAN, NRL_BETTER_SMALLER},
};

/* ---- life ---- */

static nrl_status grpo_check(const void *options)
{
    const grpo_options *o = options;
    const char *loss = o->loss == LOSS_CISPO ? "cispo" : "sapo";
    const bool clips = o->loss != LOSS_CISPO && o->loss != LOSS_SAPO;
    if (o->loss == LOSS_CISPO && o->epsilon_high == 0)
        return nrl_fail(NRL_ERR_CONFIG, "loss: cispo needs epsilon_high, the upper limit of the ratio\n"
                                        "hint: epsilon_high: 5 (ScaleRL)");
    if (o->loss == LOSS_CISPO && o->importance_sampling == SAMPLING_SEQUENCE)
        return nrl_fail(NRL_ERR_CONFIG, "loss: cispo has one ratio per token; expected importance_sampling: token");
    if (!clips && (o->epsilon != EPSILON || o->delta > 0 || (o->loss == LOSS_SAPO && o->epsilon_high > 0)))
        return nrl_fail(NRL_ERR_CONFIG, "%s: loss %s does not use it",
                        o->epsilon != EPSILON ? "epsilon"
                        : o->delta > 0        ? "delta"
                                              : "epsilon_high",
                        loss);
    if (o->loss != LOSS_SAPO && (o->sapo_temperature_pos != 1 || o->sapo_temperature_neg != SAPO_NEGATIVE))
        return nrl_fail(NRL_ERR_CONFIG, "sapo_temperature_pos and sapo_temperature_neg: only loss sapo uses them");
    if (*o->reward || *o->reward_model) return NRL_OK;
    return nrl_fail(NRL_ERR_CONFIG,
                    "there is no reward; expected reward (a Lua file) or reward_model (the directory of a reward "
                    "model)");
}

static void grpo_destroy(void *self)
{
    grpo_state *s = self;
    for (int k = N_METRICS; s->metrics && s->metrics[k].name; k++)
        free((char *)s->metrics[k].name);
    free(s->metrics);
    nrl_rollout_kept_free(s->kept);
    rewards_destroy(s->rewards);
    free(s);
}

/* "rewards/NAME/mean" and "rewards/NAME/std", the latter of all completions of the batch. */
static nrl_status make_metrics(grpo_state *s)
{
    const int32_t n = rewards_n_named(s->rewards);
    s->metrics = calloc((size_t)(N_METRICS + 2 * n + 1), sizeof *s->metrics);
    bool made = s->metrics;
    if (made) memcpy(s->metrics, grpo_metrics, N_METRICS * sizeof *s->metrics);
    for (int32_t k = 0; k < 2 * n && made; k++) {
        char *name = malloc(REWARD_NAME + 16);
        made = name;
        if (made)
            snprintf(name, REWARD_NAME + 16, "rewards/%s/%s", rewards_name(s->rewards, k / 2), k % 2 ? "std" : "mean");
        s->metrics[N_METRICS + k] =
            (nrl_metric){name, "1", NRL_REDUCE_MEAN, k % 2 ? NRL_BETTER_NONE : NRL_BETTER_LARGER};
    }
    return made ? NRL_OK : nrl_fail(NRL_ERR_MEMORY, "no memory for the metrics of grpo");
}

static nrl_status grpo_create(const void *options, void **self)
{
    grpo_state *s = calloc(1, sizeof *s);
    if (!s) return nrl_fail(NRL_ERR_MEMORY, "no memory for the state of grpo");
    s->options = *(const grpo_options *)options;
    const grpo_options *o = &s->options;
    if (o->epsilon_high == 0) s->options.epsilon_high = o->epsilon;
    nrl_status st = rewards_create(o->reward, o->reward_model, o->reward_weights, &s->rewards);
    if (st == NRL_OK) st = make_metrics(s);
    if (st == NRL_OK)
        *self = s;
    else
        grpo_destroy(s);
    return st;
}

static nrl_status grpo_open(void *self, const nrl_algorithm_run *run)
{
    grpo_state *s = self;
    const int64_t parts = s->options.steps_per_generation;
    const int64_t prompts = nrl_node_int(nrl_node_find(nrl_node_find(run->config, "train"), "global_batch"), parts);
    if (prompts < parts)
        nrl_warn("algorithm.steps_per_generation is %lld, but a batch has %lld prompt%s (train.global_batch): %lld of "
                 "every %lld steps have nothing to train on",
                 (long long)parts, (long long)prompts, prompts == 1 ? "" : "s", (long long)(parts - prompts),
                 (long long)parts);
    return rewards_open_model(s->rewards, run);
}

static const nrl_metric *grpo_instance_metrics(void *self)
{
    return ((const grpo_state *)self)->metrics;
}

static int64_t grpo_updates(void *self)
{
    const grpo_options *o = &((const grpo_state *)self)->options;
    return o->steps_per_generation * o->num_iterations;
}

static bool grpo_couples(void *self)
{
    return ((const grpo_state *)self)->options.importance_sampling == SAMPLING_SEQUENCE;
}

/* Numbers of each completion: the reward, and each reward with a name. */
static int64_t n_values(const grpo_state *s)
{
    return 1 + rewards_n_named(s->rewards);
}

static nrl_status grpo_state_io(void *self, nrl_state_io *io)
{
    grpo_state *s = self;
    if (grpo_updates(self) == 1) return NRL_OK;
    if (s->is_used_up) {
        nrl_rollout_kept_free(s->kept);
        s->kept = NULL;
    }
    NRL_TRY(nrl_rollout_kept_io(&s->kept, io));
    if (!s->kept || nrl_rollout_kept_n_values(s->kept) == n_values(s)) return NRL_OK;
    return nrl_fail(
        NRL_ERR_CONFIG,
        "the completions of the checkpoint have %lld rewards, but the config has %lld; expected the rewards of the "
        "checkpoint, or a checkpoint between two batches",
        (long long)nrl_rollout_kept_n_values(s->kept) - 1, (long long)n_values(s) - 1);
}

static const char *const *grpo_instance_needs(void *self)
{
    static const char *const with[] = {"logps", "entropy", "ref_logps", NULL}, *const without[] = {"logps", "entropy",
                                                                                                   NULL};
    return ((const grpo_state *)self)->options.beta > 0 ? with : without;
}

/* ---- completions, rewards, advantages ---- */

/* A value is NaN where the functions of rewards have returned nil: it has no part in means and deviations, as in TRL. A
 * completion without any reward has the advantage 0. */

/* What a step needs to know of all ranks' completions. */
typedef struct {
    double std[1 + REWARDS_MAX];    /* of the values of the batch: the reward, and each reward with a name */
    double n_tokens, n_part_tokens; /* that are trained on: of the batch, and of this step */
} batch_counts;

static double weight_of(const grpo_options *o, bool is_finished)
{
    return o->mask_truncated && !is_finished ? 0 : 1;
}

static double batch_std(const nrl_rollout_kept *kept, int64_t k)
{
    const int64_t n = nrl_rollout_kept_n(kept);
    nrl_rollout_kept_sequence q = {.size = sizeof q};
    double mean = 0, square = 0;
    int64_t known = 0;
    for (int64_t i = 0; i < n; i++) {
        nrl_rollout_kept_fill(kept, i, &q);
        known += !isnan(q.values[k]);
    }
    for (int64_t i = 0; i < n; i++) {
        nrl_rollout_kept_fill(kept, i, &q);
        mean += isnan(q.values[k]) ? 0 : q.values[k] / (double)known;
    }
    for (int64_t i = 0; i < n; i++) {
        nrl_rollout_kept_fill(kept, i, &q);
        square += isnan(q.values[k]) ? 0 : (q.values[k] - mean) * (q.values[k] - mean);
    }
    return known > 1 ? sqrt(square / (double)(known - 1)) : 0;
}

static batch_counts count_batch(const grpo_state *s, int64_t part)
{
    nrl_rollout_kept_sequence q = {.size = sizeof q};
    batch_counts c = {0};
    for (int64_t i = 0; i < nrl_rollout_kept_n(s->kept); i++) {
        nrl_rollout_kept_fill(s->kept, i, &q);
        const double tokens = weight_of(&s->options, q.is_finished) * (double)q.n_completion;
        c.n_tokens += tokens;
        c.n_part_tokens += q.part == part ? tokens : 0;
    }
    for (int64_t k = 0; k < n_values(s); k++)
        c.std[k] = batch_std(s->kept, k);
    return c;
}

/* Rewards that differ by the rounding of their mean alone are equal; the bound is TRL's. */
static const double NO_STD = 1e-8;

/* Advantages of the group that begins with sequence `first` from the values of its completions. */
static nrl_status compare_group(const grpo_state *s, const batch_counts *c, const nrl_rollout *r, int64_t first,
                                const double *values, int64_t n, float *advantages)
{
    const grpo_options *o = &s->options;
    const int64_t stride = n_values(s);
    double mean = 0, square = 0;
    int64_t known = 0;
    for (int64_t k = 0; k < n; k++)
        known += !isnan(values[k * stride]);
    for (int64_t k = 0; k < n; k++)
        mean += isnan(values[k * stride]) ? 0 : values[k * stride] / (double)known;
    for (int64_t k = 0; k < n; k++)
        square += isnan(values[k * stride]) ? 0 : (values[k * stride] - mean) * (values[k * stride] - mean);
    const double of_group = known > 1 ? sqrt(square / (double)(known - 1)) : 0;
    const double std = o->scale_rewards == SCALE_BATCH ? c->std[0] : of_group;
    for (int64_t k = 0; k < n; k++)
        advantages[k] = isnan(values[k * stride])
                            ? 0
                            : (float)((values[k * stride] - mean) / (o->scale_rewards == SCALE_NONE ? 1 : std + 1e-4));
    const bool is_equal = known > 1 && of_group <= NO_STD;
    return n > 1 ? nrl_rollout_report(r, first, &grpo_metrics[METRIC_EQUAL], is_equal, 1) : NRL_OK;
}

/* The columns of a step, in the order of grpo_columns. */
enum { COLUMN_ADVANTAGES = 0, COLUMN_SCALES, COLUMN_SHARES, COLUMN_WEIGHTS, N_COLUMNS };
static const char *const grpo_columns[] = {"advantages", "scales", "shares", "weights", NULL};

static nrl_status inspect(const grpo_state *s, const batch_counts *c, const nrl_rollout *r, int64_t i,
                          const double *values, float *const *columns)
{
    const grpo_options *o = &s->options;
    nrl_rollout_sequence q = {.size = sizeof q};
    nrl_rollout_sequence_fill(r, i, &q);
    const double length = (double)q.n_completion;
    for (int64_t k = 0; k < n_values(s); k++)
        if (!isnan(values[k]))
            NRL_TRY(nrl_rollout_report(r, i, k ? &s->metrics[N_METRICS + 2 * (k - 1)] : &grpo_metrics[METRIC_REWARD],
                                       values[k], 1));
    NRL_TRY(nrl_rollout_report(r, i, &grpo_metrics[METRIC_LENGTH], length, 1));
    NRL_TRY(nrl_rollout_report(r, i, &grpo_metrics[METRIC_SHORTEST], length, 1));
    NRL_TRY(nrl_rollout_report(r, i, &grpo_metrics[METRIC_LONGEST], length, 1));
    NRL_TRY(nrl_rollout_report(r, i, &grpo_metrics[METRIC_TRUNCATED], !q.is_finished, 1));
    columns[COLUMN_SHARES][i] = (float)(1 / length);
    columns[COLUMN_WEIGHTS][i] = (float)weight_of(o, q.is_finished);
    switch (o->loss) {
    case LOSS_GRPO:
    case LOSS_SAPO:
        columns[COLUMN_SCALES][i] = (float)(1 / length);
        break;
    case LOSS_DR_GRPO:
        columns[COLUMN_SCALES][i] = (float)(1 / (double)o->max_tokens);
        break;
    case LOSS_DAPO:
    case LOSS_CISPO: /* every token of the batch weighs the same, in whatever step it is */
        columns[COLUMN_SCALES][i] = 1;
        if (o->steps_per_generation > 1 && c->n_tokens > 0)
            columns[COLUMN_SCALES][i] = (float)(c->n_part_tokens * (double)o->steps_per_generation / c->n_tokens);
        break;
    default:
        columns[COLUMN_SCALES][i] = 1;
    }
    return NRL_OK;
}

static double *new_values(const grpo_state *s, const nrl_rollout_info *info)
{
    double *values = calloc((size_t)(info->n_sequences * n_values(s) + 1), sizeof *values);
    if (!values) (void)nrl_fail(NRL_ERR_MEMORY, "no memory for rewards");
    return values;
}

/* Generates the completions of a batch and their rewards. An evaluation has one of each prompt, for eval_reward. */
static nrl_status generate(grpo_state *s, nrl_rollout *r, nrl_rollout_info *info, double **values)
{
    const grpo_options *o = &s->options;
    const nrl_rollout_options options = {.size = sizeof options,
                                         .n = info->trains ? o->group_size : 1,
                                         .max_tokens = o->max_tokens,
                                         .temperature = o->temperature,
                                         .top_p = o->top_p,
                                         .top_k = o->top_k,
                                         .min_p = o->min_p};
    NRL_TRY(nrl_rollout_generate(r, &options));
    nrl_rollout_info_fill(r, info);
    *values = new_values(s, info);
    if (!*values) return NRL_ERR_MEMORY;
    NRL_TRY(rewards_compute(s->rewards, r, *values));
    return info->trains ? nrl_rollout_keep(r, *values, n_values(s), o->steps_per_generation, &s->kept) : NRL_OK;
}

/* The sequences of this step from those of the batch, and their rewards. */
static nrl_status take_part(grpo_state *s, nrl_rollout *r, int64_t part, nrl_rollout_info *info, double **values)
{
    nrl_rollout_sequence q = {.size = sizeof q};
    if (!s->kept)
        return nrl_fail(NRL_ERR_CONFIG, "the checkpoint has no completions, and step %lld is in the middle of a batch",
                        (long long)info->step + 1);
    NRL_TRY(nrl_rollout_take(r, s->kept, part));
    nrl_rollout_info_fill(r, info);
    free(*values);
    *values = new_values(s, info);
    if (!*values) return NRL_ERR_MEMORY;
    for (int64_t i = 0; i < info->n_sequences; i++) {
        nrl_rollout_sequence_fill(r, i, &q);
        memcpy(*values + i * n_values(s), q.values, (size_t)n_values(s) * sizeof **values);
    }
    return NRL_OK;
}

static nrl_status set_columns(const grpo_state *s, const batch_counts *c, nrl_rollout *r, const nrl_rollout_info *info,
                              const double *values)
{
    const size_t n = (size_t)info->n_sequences;
    const int64_t group = info->trains ? s->options.group_size : 1, stride = n_values(s);
    float *all = calloc(N_COLUMNS * n + 1, sizeof *all), *of[N_COLUMNS];
    nrl_rollout_column columns[N_COLUMNS];
    nrl_status st = all ? NRL_OK : nrl_fail(NRL_ERR_MEMORY, "no memory for advantages");
    for (size_t k = 0; k < N_COLUMNS && st == NRL_OK; k++) {
        of[k] = all + k * n;
        columns[k] = (nrl_rollout_column){grpo_columns[k], of[k]};
    }
    for (int64_t i = 0; i < info->n_sequences && st == NRL_OK; i++)
        st = inspect(s, c, r, i, values + i * stride, of);
    for (int64_t i = 0; i < info->n_sequences && st == NRL_OK; i += group)
        st = compare_group(s, c, r, i, values + i * stride, group, of[COLUMN_ADVANTAGES] + i);
    if (st == NRL_OK) st = nrl_rollout_replace(r, columns, N_COLUMNS);
    free(all);
    return st;
}

static nrl_status grpo_rollout(void *self, nrl_rollout *r)
{
    grpo_state *s = self;
    nrl_rollout_info info = {.size = sizeof info};
    batch_counts counts = {0};
    double *values = NULL;
    nrl_rollout_info_fill(r, &info);
    nrl_status st = NRL_OK;
    if (!info.trains || info.update == 0) st = generate(s, r, &info, &values);
    if (st == NRL_OK && info.trains) {
        const int64_t part = info.update % s->options.steps_per_generation;
        st = take_part(s, r, part, &info, &values);
        s->is_used_up = info.update + 1 == grpo_updates(self);
        if (st == NRL_OK) counts = count_batch(s, part);
        for (int64_t k = 0; k < n_values(s) && st == NRL_OK; k++)
            st = nrl_rollout_report(r, -1, k ? &s->metrics[N_METRICS + 2 * k - 1] : &grpo_metrics[METRIC_STD],
                                    counts.std[k], 1);
    }
    if (st == NRL_OK) st = set_columns(s, &counts, r, &info, values);
    free(values);
    return st;
}

/* ---- the loss ---- */

/* Means over completions count those that mask_truncated excludes, as TRL does. */
static void grpo_weight(void *self, const nrl_batch *batch, double *weight)
{
    const int64_t loss = ((const grpo_state *)self)->options.loss;
    const bool by_token = loss == LOSS_DAPO || loss == LOSS_BNPO || loss == LOSS_CISPO;
    weight[0] = nrl_batch_count(batch, by_token ? "answer_tokens" : "examples");
}

static nrl_status report(nrl_expr each, nrl_expr weights, double of, uint32_t metric)
{
    nrl_tensor *value;
    NRL_TRY(e_store(e_sum(e_mul(e_detach(each), weights)), &value));
    return nrl_metric_add(each.of->ctx, metric, value, of);
}

/* A weight of the gradient of each token: the ratio up to a limit (MiniMax 2025). */
static nrl_status cispo(const grpo_options *o, nrl_expr ratio, nrl_expr advantages, nrl_expr logps, nrl_expr weights,
                        double n_ratios, nrl_expr *each)
{
    nrl_expr limit = e_number(ratio.of, o->epsilon_high), zero = e_number(ratio.of, 0);
    nrl_expr clipped = e_mul(e_greater(ratio, limit), e_greater(advantages, zero));
    *each = e_neg(e_mul(e_mul(e_detach(e_min(ratio, limit)), advantages), logps));
    return report(clipped, weights, n_ratios, METRIC_CISPO_CLIPPED);
}

/* A smooth gate in place of clipping (Gao et al. 2025). */
static nrl_expr sapo(const grpo_options *o, nrl_expr ratio, nrl_expr advantages)
{
    const double positive = o->sapo_temperature_pos, other = o->sapo_temperature_neg;
    nrl_expr is_positive = e_greater(advantages, e_number(ratio.of, 0));
    nrl_expr temperature = e_affine(is_positive, positive - other, other);
    nrl_expr gate = e_div(e_sigmoid(e_mul(temperature, e_affine(ratio, 1, -1))), temperature);
    return e_affine(e_mul(gate, advantages), -4, 0);
}

static nrl_status clip(const grpo_options *o, nrl_expr ratio, nrl_expr advantages, nrl_expr weights, double n_ratios,
                       nrl_expr *each)
{
    nrl_exprs *e = ratio.of;
    nrl_expr clamped = e_clamp(ratio, 1 - o->epsilon, 1 + o->epsilon_high);
    if (o->delta > 0) ratio = e_clamp(ratio, 0, o->delta);
    nrl_expr zero = e_number(e, 0);
    nrl_expr low = e_mul(e_greater(e_number(e, 1 - o->epsilon), ratio), e_greater(zero, advantages));
    nrl_expr high = e_mul(e_greater(ratio, e_number(e, 1 + o->epsilon_high)), e_greater(advantages, zero));
    *each = e_neg(e_min(e_mul(ratio, advantages), e_mul(clamped, advantages)));
    NRL_TRY(report(low, weights, n_ratios, METRIC_CLIPPED_LOW));
    NRL_TRY(report(high, weights, n_ratios, METRIC_CLIPPED_HIGH));
    return report(e_add(low, high), weights, n_ratios, METRIC_CLIPPED);
}

static nrl_status grpo_loss(void *self, nrl_ctx *ctx, const nrl_batch *batch, nrl_tensor **sums)
{
    const grpo_options *o = &((const grpo_state *)self)->options;
    const double n_tokens = nrl_batch_count(batch, "answer_tokens");
    nrl_exprs e = {ctx, NRL_OK};
    nrl_expr logps = e_column(&e, batch, "logps"), weights = e_column(&e, batch, "weights"); /* [P] each */
    nrl_expr scaled = e_mul(weights, e_column(&e, batch, "scales"));
    nrl_expr log_ratio = e_sub(logps, e_column(&e, batch, "sampled_logps"));
    /* [P], or [S] where a completion has one ratio */
    nrl_expr advantages = e_column(&e, batch, "advantages"), of_policy = scaled, clip_weights = weights;
    double n_ratios = n_tokens;
    if (o->importance_sampling == SAMPLING_SEQUENCE) {
        nrl_expr shares = e_column(&e, batch, "shares");
        log_ratio = e_segment_sum(e_mul(log_ratio, shares), batch);
        advantages = e_segment_sum(e_mul(advantages, shares), batch);
        of_policy = e_segment_sum(scaled, batch);
        clip_weights = e_segment_sum(e_mul(weights, shares), batch);
        n_ratios = nrl_batch_count(batch, "sequences");
    }
    nrl_expr ratio = e_exp(log_ratio), each;
    if (o->loss == LOSS_CISPO)
        NRL_TRY(cispo(o, ratio, advantages, logps, weights, n_tokens, &each));
    else if (o->loss == LOSS_SAPO)
        each = sapo(o, ratio, advantages);
    else
        NRL_TRY(clip(o, ratio, advantages, clip_weights, n_ratios, &each));
    nrl_expr loss = e_sum(e_mul(each, of_policy));
    NRL_TRY(report(e_column(&e, batch, "entropy"), weights, n_tokens, METRIC_ENTROPY));
    if (o->beta > 0) {
        nrl_expr d = e_sub(e_column(&e, batch, "ref_logps"), logps);
        nrl_expr kl = e_sub(e_expm1(d), d);
        NRL_TRY(report(kl, weights, n_tokens, METRIC_KL));
        loss = e_add(loss, e_sum(e_mul(e_affine(kl, o->beta, 0), scaled)));
    }
    return e_store(loss, &sums[0]);
}

static const char *const grpo_needs[] = {"logps", "entropy", "ref_logps", NULL};

static const nrl_algorithm grpo = {
    NRL_PLUGIN(NRL_KIND_ALGORITHM, nrl_algorithm, grpo_options, grpo_rows, "grpo", "0.1",
               "reinforcement learning from rewards of Lua functions or a model (GRPO)"),
    .plugin.check = grpo_check,
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
    .updates = grpo_updates,
    .couples = grpo_couples,
    .instance_metrics = grpo_instance_metrics,
    .open = grpo_open,
};
NRL_EXPORT(grpo)
