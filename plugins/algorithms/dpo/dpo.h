/*
 * dpo.h - shared by the files of this plugin. Reading order: losses.c (the table of losses),
 * pairs.c (from log-probs of target positions to numbers a pair), options.c, metrics.c, dpo.c (the
 * plugin).
 *
 * Legend: P target positions, S segments, B pairs. Natural logs. ls = log sigmoid, s = sigmoid.
 */
#ifndef DPO_DPO_H
#define DPO_DPO_H
#include <nrl/expr.h>
#include <nrl/nrl.h>

enum { DPO_MAX_LOSSES = 8 };

enum { DPO_REVERSE_KL = 0, DPO_FORWARD_KL, DPO_JS, DPO_ALPHA };

typedef struct {
    const nrl_node *loss, *loss_weights;
    double beta, label_smoothing;
    int64_t f_divergence_type;
    double f_alpha_divergence_coef;
    double ld_alpha;
    bool use_weighting;
    double discopop_tau, simpo_gamma, alpha, cpo_alpha;
    bool bco_shift;
    int64_t aot_group;
} dpo_options;

/* One side of B pairs; each tensor is [B] f32. ref, ratio and score are unset if no loss reads a reference.
 * With ld_alpha, logp and ref are the length-desensitised sums. */
typedef struct {
    nrl_expr logp;   /* l: sum of the answer's log-probs under the policy */
    nrl_expr ref;    /* the same under the reference */
    nrl_expr length; /* n: answer tokens */
    nrl_expr ratio;  /* logp - ref */
    nrl_expr score;  /* the f-divergence's score of ratio */
} dpo_side;

/* The inputs of a loss formula. */
typedef struct {
    nrl_exprs e;
    const dpo_options *o;
    int64_t n; /* B */
    dpo_side chosen, rejected;
    nrl_expr margin;     /* beta (score of chosen - score of rejected) */
    nrl_expr weight;     /* WPO weights, without gradient; unset = 1 */
    nrl_expr answer_nll; /* [1] -sum of the chosen answers' log-probs; unset unless a loss needs it */
    nrl_expr chosen_nll; /* [1] the same, including the prompt's tokens */
    double shift;        /* bco_pair's running mean of rewards */
} dpo_pairs;

/* k x */
static inline nrl_expr scaled(nrl_expr x, double k)
{
    return e_affine(x, k, 0);
}

/* Which token mean a loss adds to its pair mean. */
typedef enum { DPO_NO_TOKENS = 0, DPO_ANSWER_TOKENS, DPO_CHOSEN_TOKENS } dpo_tokens;

/* Options that not every loss reads, as bits; setting one that no chosen loss reads is an error. */
enum {
    DPO_USES_SMOOTHING = 1 << 0,
    DPO_USES_F = 1 << 1,
    DPO_USES_LD = 1 << 2,
    DPO_USES_WEIGHTING = 1 << 3,
    DPO_USES_TAU = 1 << 4,
    DPO_USES_GAMMA = 1 << 5,
    DPO_USES_ALPHA = 1 << 6,
    DPO_USES_CPO_ALPHA = 1 << 7,
    DPO_USES_SHIFT = 1 << 8,
    DPO_USES_GROUP = 1 << 9
};

typedef struct {
    const char *name;
    nrl_expr (*pair_loss)(dpo_pairs *p);                    /* [B]; NULL = the loss is only a token mean */
    nrl_expr (*reward)(dpo_pairs *p, const dpo_side *side); /* [B], for the metrics */
    double (*start)(const dpo_options *o);                  /* the loss at policy = reference; NULL = unknown */
    uint32_t uses;
    bool needs_reference; /* pair_loss reads ref */
    bool logps_are_means; /* TRL logs l / n for this loss instead of l */
    dpo_tokens tokens;
} dpo_loss;

extern const dpo_loss dpo_losses[];
extern const size_t dpo_n_losses;

/* ---- options.c ---- */

enum { DPO_N_ROWS = 14 };
extern const nrl_option dpo_rows[DPO_N_ROWS];

/* The losses that an instance adds up. */
typedef struct {
    const dpo_loss *loss;
    double weight;
} dpo_member;

nrl_status dpo_check(const void *options);
/* Reads loss and loss_weights, which dpo_check has accepted; returns the number of members. */
int dpo_members(const dpo_options *o, dpo_member members[DPO_MAX_LOSSES]);

/* ---- the instance ---- */

typedef struct {
    dpo_options o;
    dpo_member members[DPO_MAX_LOSSES];
    int n_members;
    bool reference, weighting, desensitised;
    double answer_weight, chosen_weight; /* of the two token means */
    const char *needs[8];
    double reward_sum, reward_count; /* bco_shift: sum and number of all rewards seen so far */
    /* host memory that grows to the largest batch */
    int32_t *sides;   /* [2 B] segments of the chosen, then of the rejected */
    float *row_scale; /* [P] ld_alpha: 1 in the part that both answers share, else ld_alpha */
    int64_t sides_room, rows_room;
} dpo;

/* ---- pairs.c ---- */

/* From the batch's columns to the inputs of the formulas. */
nrl_status dpo_pairs_make(dpo *d, nrl_ctx *ctx, const nrl_batch *batch, dpo_pairs *p);
/* y[i] = values of x in ascending order within each run of `group` pairs (equal values in pair order). */
nrl_expr dpo_sorted(dpo_pairs *p, nrl_expr x);
/* Answer tokens of the chosen sides, or all target positions with the prompt. */
double dpo_chosen_count(const nrl_batch *batch, bool with_prompt);

/* ---- metrics.c ---- */

extern const nrl_metric dpo_metrics[];
nrl_status dpo_report(const dpo *d, const nrl_batch *batch, dpo_pairs *p);
/* [1] sum over both sides of all rewards of bco_pair, beta (logp - ref), without gradient. */
nrl_expr dpo_reward_sum(dpo_pairs *p);

#endif
