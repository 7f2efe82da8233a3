/*
 * losses.c - the losses, each a function of one pair's values; the table at the end lists them.
 * Every function returns [B]; dpo.c sums, the core divides by the pairs of the global batch.
 *
 * In formulas: lc, lr log-probs of chosen and rejected under the policy, nc, nr their lengths;
 * a = lc - reference, b = lr - reference; D = score(a) - score(b), where score is the identity
 * unless f_divergence_type says otherwise; eps = label_smoothing.
 */
#include "dpo.h"
#include <math.h>

/* -(1-eps) ls(x) - eps ls(-x) */
static nrl_expr smoothed(dpo_pairs *p, nrl_expr x)
{
    double eps = p->o->label_smoothing;
    nrl_expr right = scaled(e_log_sigmoid(x), eps - 1);
    if (eps <= 0) return right;
    return e_add(right, scaled(e_log_sigmoid(e_neg(x)), -eps));
}

/* k (x of chosen) - k (x of rejected), divided by lengths first */
static nrl_expr mean_margin(dpo_pairs *p, nrl_expr chosen, nrl_expr rejected, double k)
{
    return scaled(e_sub(e_div(chosen, p->chosen.length), e_div(rejected, p->rejected.length)), k);
}

/* ---- losses of a policy against a reference ---- */

/* Rafailov et al. 2023. With eps in loss cdpo: Mitchell 2023. */
static nrl_expr pair_sigmoid(dpo_pairs *p)
{
    return smoothed(p, p->margin);
}

/* Chowdhury et al. 2024: unbiased if a share eps of the labels is flipped. */
static nrl_expr pair_robust(dpo_pairs *p)
{
    double eps = p->o->label_smoothing, k = 1 / (1 - 2 * eps);
    nrl_expr flipped = scaled(e_log_sigmoid(e_neg(p->margin)), eps * k);
    return e_add(scaled(e_log_sigmoid(p->margin), (eps - 1) * k), flipped);
}

/* Zhao et al. 2023 (SLiC). */
static nrl_expr pair_hinge(dpo_pairs *p)
{
    return e_relu(e_affine(p->margin, -1, 1));
}

/* Azar et al. 2023, with length-normalised ratios as in TRL. */
static nrl_expr pair_ipo(dpo_pairs *p)
{
    nrl_expr x = mean_margin(p, p->chosen.score, p->rejected.score, 1);
    return e_square(e_affine(x, 1, -0.5 / p->o->beta));
}

static nrl_expr pair_sigmoid_norm(dpo_pairs *p)
{
    return e_neg(e_log_sigmoid(mean_margin(p, p->chosen.score, p->rejected.score, p->o->beta)));
}

/* Ji et al. 2024, equation 16: KL from the policy's preference to the smoothed label's. */
static nrl_expr pair_exo(dpo_pairs *p)
{
    double eps = p->o->label_smoothing;
    nrl_expr x = p->margin, y = e_neg(x);
    nrl_expr right = e_mul(e_sigmoid(x), e_affine(e_log_sigmoid(x), 1, -log1p(-eps)));
    nrl_expr wrong = e_mul(e_sigmoid(y), e_affine(e_log_sigmoid(y), 1, -log(eps)));
    return e_add(right, wrong);
}

/* Chen et al. 2024. */
static nrl_expr pair_nca(dpo_pairs *p)
{
    nrl_expr x = scaled(p->chosen.ratio, p->o->beta), y = scaled(p->rejected.ratio, p->o->beta);
    nrl_expr pull = e_add(e_log_sigmoid(e_neg(x)), e_log_sigmoid(e_neg(y)));
    return e_add(e_neg(e_log_sigmoid(x)), scaled(pull, -0.5));
}

/* Jung et al. 2024; the shift is their running mean of rewards, 0 unless bco_shift. */
static nrl_expr pair_bco(dpo_pairs *p)
{
    double beta = p->o->beta;
    nrl_expr x = e_affine(p->chosen.ratio, beta, -p->shift);
    nrl_expr y = e_affine(p->rejected.ratio, -beta, p->shift);
    return e_neg(e_add(e_log_sigmoid(x), e_log_sigmoid(y)));
}

/* Wu et al. 2024, with win probabilities of 1 and 0. */
static nrl_expr pair_sppo_hard(dpo_pairs *p)
{
    double half = 0.5 / p->o->beta;
    return e_add(e_square(e_affine(p->chosen.ratio, 1, -half)), e_square(e_affine(p->rejected.ratio, 1, half)));
}

/* D'Oosterlinck et al. 2024: raises chosen, lowers rejected. 1 - s(x) is computed as s(-x). */
static nrl_expr pair_apo_zero(dpo_pairs *p)
{
    return e_add(e_sigmoid(scaled(p->chosen.ratio, -p->o->beta)), e_sigmoid(scaled(p->rejected.ratio, p->o->beta)));
}

/* The same authors: lowers both, rejected more. */
static nrl_expr pair_apo_down(dpo_pairs *p)
{
    nrl_expr x = e_sub(p->rejected.ratio, p->chosen.ratio);
    return e_add(e_sigmoid(scaled(p->chosen.ratio, p->o->beta)), e_sigmoid(scaled(x, p->o->beta)));
}

/* Lu et al. 2024. exp(-x) w is computed as exp(ls(x/tau) - x), which cannot overflow for tau <= 1. */
static nrl_expr pair_discopop(dpo_pairs *p)
{
    double tau = p->o->discopop_tau;
    nrl_expr x = p->margin;
    nrl_expr logistic = e_mul(e_log_sigmoid(x), e_sigmoid(scaled(x, -1 / tau)));
    return e_sub(e_exp(e_sub(e_log_sigmoid(scaled(x, 1 / tau)), x)), logistic);
}

/* Melnyk et al. 2024: margins of the policy against margins of the reference, as distributions over the
 * pairs of a group. */
static nrl_expr pair_aot(dpo_pairs *p)
{
    nrl_expr policy = dpo_sorted(p, e_sub(p->chosen.logp, p->rejected.logp));
    nrl_expr reference = dpo_sorted(p, e_sub(p->chosen.ref, p->rejected.ref));
    return smoothed(p, scaled(e_sub(policy, reference), p->o->beta));
}

static nrl_expr pair_aot_unpaired(dpo_pairs *p)
{
    nrl_expr delta = e_sub(dpo_sorted(p, p->chosen.ratio), dpo_sorted(p, p->rejected.ratio));
    return smoothed(p, scaled(delta, p->o->beta));
}

/* ---- losses without a reference ---- */

/* Xu et al. 2024 (CPO). */
static nrl_expr pair_cpo(dpo_pairs *p)
{
    return smoothed(p, scaled(e_sub(p->chosen.logp, p->rejected.logp), p->o->beta));
}

static nrl_expr pair_cpo_hinge(dpo_pairs *p)
{
    return e_relu(e_affine(e_sub(p->chosen.logp, p->rejected.logp), -p->o->beta, 1));
}

static nrl_expr pair_cpo_ipo(dpo_pairs *p)
{
    nrl_expr x = mean_margin(p, p->chosen.logp, p->rejected.logp, 1);
    return e_square(e_affine(x, 1, -0.5 / p->o->beta));
}

/* Meng et al. 2024. */
static nrl_expr pair_simpo(dpo_pairs *p)
{
    nrl_expr x = mean_margin(p, p->chosen.logp, p->rejected.logp, p->o->beta);
    return smoothed(p, e_affine(x, 1, -p->o->simpo_gamma));
}

/* (1 - exp(-alpha q)) / alpha with q = l / n; q at alpha = 0. Gupta et al. 2025. */
static nrl_expr alpha_reward(dpo_pairs *p, const dpo_side *side)
{
    double alpha = p->o->alpha;
    nrl_expr q = e_div(side->logp, side->length);
    if (fabs(alpha) < 1e-12) return q;
    return scaled(e_expm1(scaled(q, -alpha)), -1 / alpha);
}

static nrl_expr pair_alphapo(dpo_pairs *p)
{
    nrl_expr x = e_sub(alpha_reward(p, &p->chosen), alpha_reward(p, &p->rejected));
    return smoothed(p, e_affine(x, p->o->beta, -p->o->simpo_gamma));
}

/* log(q / (1 - q)) of q = exp(l / n). A mean log-prob of 0 has infinite odds, so it is clamped to -1e-6,
 * about the spacing of f32 below 1. */
static nrl_expr log_odds(const dpo_side *side)
{
    nrl_expr q = e_div(side->logp, side->length);
    q = e_clamp(q, -INFINITY, -1e-6);
    return e_sub(q, e_log(e_neg(e_expm1(q))));
}

/* Hong et al. 2024. */
static nrl_expr pair_orpo(dpo_pairs *p)
{
    nrl_expr x = e_sub(log_odds(&p->chosen), log_odds(&p->rejected));
    return scaled(e_log_sigmoid(x), -p->o->beta);
}

/* ---- rewards, as TRL logs them: from the log ratio, whatever the f-divergence ---- */

static nrl_expr reward_ratio(dpo_pairs *p, const dpo_side *side)
{
    return scaled(side->ratio, p->o->beta);
}

static nrl_expr reward_sum(dpo_pairs *p, const dpo_side *side)
{
    return scaled(side->logp, p->o->beta);
}

static nrl_expr reward_mean(dpo_pairs *p, const dpo_side *side)
{
    return scaled(e_div(side->logp, side->length), p->o->beta);
}

static nrl_expr reward_alpha(dpo_pairs *p, const dpo_side *side)
{
    return scaled(alpha_reward(p, side), p->o->beta);
}

/* ---- the loss at a = b = 0 ---- */

static double start_ln2(const dpo_options *o)
{
    (void)o;
    return M_LN2;
}

static double start_2ln2(const dpo_options *o)
{
    (void)o;
    return 2 * M_LN2;
}

static double start_1(const dpo_options *o)
{
    (void)o;
    return 1;
}

static double start_ipo(const dpo_options *o)
{
    return 0.25 / (o->beta * o->beta);
}

static double start_exo(const dpo_options *o)
{
    return -M_LN2 - 0.5 * (log1p(-o->label_smoothing) + log(o->label_smoothing));
}

static double start_sppo_hard(const dpo_options *o)
{
    return 0.5 / (o->beta * o->beta);
}

static double start_discopop(const dpo_options *o)
{
    (void)o;
    return 0.5 * M_LN2 + 0.5;
}

/* ---- the list ---- */

enum {
    USES_ALL = DPO_USES_LD | DPO_USES_WEIGHTING,
    USES_SCORES = USES_ALL | DPO_USES_F,
    USES_SORTS = DPO_USES_LD | DPO_USES_SMOOTHING | DPO_USES_GROUP
};

#define REFERENCE .reward = reward_ratio, .needs_reference = true
#define OF_MEANS .reward = reward_mean, .logps_are_means = true

const dpo_loss dpo_losses[] = {
    /* -ls(beta D) */
    {"sigmoid", pair_sigmoid, REFERENCE, .start = start_ln2, .uses = USES_SCORES},
    /* -(1-eps) ls(beta D) - eps ls(-beta D) */
    {"cdpo", pair_sigmoid, REFERENCE, .start = start_ln2, .uses = USES_SCORES | DPO_USES_SMOOTHING},
    /* (-(1-eps) ls(beta D) + eps ls(-beta D)) / (1 - 2 eps) */
    {"robust", pair_robust, REFERENCE, .start = start_ln2, .uses = USES_SCORES | DPO_USES_SMOOTHING},
    /* max(0, 1 - beta D) */
    {"hinge", pair_hinge, REFERENCE, .start = start_1, .uses = USES_SCORES},
    /* (score(a)/nc - score(b)/nr - 1/(2 beta))^2 */
    {"ipo", pair_ipo, REFERENCE, .start = start_ipo, .uses = USES_SCORES},
    /* -ls(beta (score(a)/nc - score(b)/nr)) */
    {"sigmoid_norm", pair_sigmoid_norm, REFERENCE, .start = start_ln2, .uses = USES_SCORES},
    /* s(beta D) (ls(beta D) - log(1-eps)) + s(-beta D) (ls(-beta D) - log(eps)) */
    {"exo_pair", pair_exo, REFERENCE, .start = start_exo, .uses = USES_SCORES | DPO_USES_SMOOTHING},
    /* -ls(beta a) - ls(-beta a)/2 - ls(-beta b)/2 */
    {"nca_pair", pair_nca, REFERENCE, .start = start_2ln2, .uses = USES_ALL},
    /* -ls(beta a - shift) - ls(-(beta b - shift)) */
    {"bco_pair", pair_bco, REFERENCE, .start = start_2ln2, .uses = USES_ALL | DPO_USES_SHIFT},
    /* (a - 1/(2 beta))^2 + (b + 1/(2 beta))^2 */
    {"sppo_hard", pair_sppo_hard, REFERENCE, .start = start_sppo_hard, .uses = USES_ALL},
    /* 1 - s(beta a) + s(beta b) */
    {"apo_zero", pair_apo_zero, REFERENCE, .start = start_1, .uses = USES_ALL},
    /* s(beta a) + 1 - s(beta (a - b)) */
    {"apo_down", pair_apo_down, REFERENCE, .start = start_1, .uses = USES_ALL},
    /* x = beta D, w = s(x/tau): -ls(x) (1-w) + exp(-x) w */
    {"discopop", pair_discopop, REFERENCE, .start = start_discopop, .uses = USES_SCORES | DPO_USES_TAU},
    /* d = sort(lc - lr) - sort(reference's): -(1-eps) ls(beta d) - eps ls(-beta d) */
    {"aot", pair_aot, REFERENCE, .start = start_ln2, .uses = USES_SORTS},
    /* d = sort(a) - sort(b): -(1-eps) ls(beta d) - eps ls(-beta d) */
    {"aot_unpaired", pair_aot_unpaired, REFERENCE, .start = start_ln2, .uses = USES_SORTS},
    /* -log p, mean over all chosen answer tokens of the global batch */
    {"sft", .reward = reward_ratio, .tokens = DPO_ANSWER_TOKENS},
    /* x = beta (lc - lr): -(1-eps) ls(x) - eps ls(-x), + cpo_alpha times sft */
    {"cpo", pair_cpo, .reward = reward_sum, .tokens = DPO_ANSWER_TOKENS,
     .uses = DPO_USES_SMOOTHING | DPO_USES_CPO_ALPHA},
    /* max(0, 1 - beta (lc - lr)), + cpo_alpha times sft */
    {"cpo_hinge", pair_cpo_hinge, .reward = reward_sum, .tokens = DPO_ANSWER_TOKENS, .uses = DPO_USES_CPO_ALPHA},
    /* (lc/nc - lr/nr - 1/(2 beta))^2, + cpo_alpha times sft */
    {"cpo_ipo", pair_cpo_ipo, OF_MEANS, .tokens = DPO_ANSWER_TOKENS, .uses = DPO_USES_CPO_ALPHA},
    /* x = beta (lc/nc - lr/nr) - gamma: -(1-eps) ls(x) - eps ls(-x) */
    {"simpo", pair_simpo, OF_MEANS, .uses = DPO_USES_SMOOTHING | DPO_USES_GAMMA},
    /* simpo with (1 - exp(-alpha q))/alpha instead of q = l/n */
    {"alphapo", pair_alphapo, .reward = reward_alpha, .logps_are_means = true,
     .uses = DPO_USES_SMOOTHING | DPO_USES_GAMMA | DPO_USES_ALPHA},
    /* -beta ls(log odds of exp(lc/nc) - log odds of exp(lr/nr)), + -log p, mean over all chosen tokens
     * including the prompt */
    {"orpo", pair_orpo, OF_MEANS, .tokens = DPO_CHOSEN_TOKENS},
};
const size_t dpo_n_losses = sizeof dpo_losses / sizeof *dpo_losses;
