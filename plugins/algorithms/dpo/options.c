/*
 * options.c - the options of dpo and the rules between them. Names and defaults are TRL's, with two
 * differences: setting an option that none of the chosen losses reads is an error instead of ignored,
 * and TRL's separate config classes (DPO, CPO, ORPO) are one list of losses here.
 */
#include "dpo.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

const nrl_option dpo_rows[DPO_N_ROWS] = {
    NRL_OPT_NODE(dpo_options, loss, "sigmoid",
                 "a loss, or a list of losses to add: sigmoid, cdpo, robust, hinge, ipo, sigmoid_norm, exo_pair, "
                 "nca_pair, bco_pair, sppo_hard, apo_zero, apo_down, discopop, aot, aot_unpaired, sft; without a "
                 "reference: cpo, cpo_hinge, cpo_ipo, simpo, alphapo, orpo"),
    NRL_OPT_NODE(dpo_options, loss_weights, "", "weights of the entries of loss; unset: all 1"),
    NRL_OPT_F64(dpo_options, beta, "0.1", 0, 1e6,
                "strength of the penalty for deviating from the reference, above 0. orpo: weight of the odds ratio"),
    NRL_OPT_F64(dpo_options, label_smoothing, "0.0", 0, 0.5,
                "assumed share of pairs with swapped labels; cdpo, robust, exo_pair, aot, "
                "aot_unpaired, cpo, simpo, alphapo"),
    NRL_OPT_ENUM(dpo_options, f_divergence_type, "reverse_kl", "reverse_kl|forward_kl|js_divergence|alpha_divergence",
                 "divergence from the reference (Wang et al. 2023); sigmoid, cdpo, robust, hinge, ipo, sigmoid_norm, "
                 "exo_pair, discopop"),
    NRL_OPT_F64(dpo_options, f_alpha_divergence_coef, "0.5", -100, 100, "alpha of alpha_divergence; 1 is reverse_kl"),
    NRL_OPT_F64(dpo_options, ld_alpha, "1.0", 0, 1,
                "weight of an answer's tokens beyond the length of the pair's shorter answer "
                "(Liu et al. 2024)"),
    NRL_OPT_BOOL(dpo_options, use_weighting, "false",
                 "weight pairs by their probability under the policy (Zhou et al. 2024, WPO); not for losses of "
                 "token means"),
    NRL_OPT_F64(dpo_options, discopop_tau, "0.05", 1e-6, 1, "temperature of discopop's blend"),
    NRL_OPT_F64(dpo_options, simpo_gamma, "0.5", -1e6, 1e6, "target margin of simpo and alphapo"),
    NRL_OPT_F64(dpo_options, alpha, "0.0", -10, 10, "alphapo: curvature of its reward; 0 is simpo"),
    NRL_OPT_F64(dpo_options, cpo_alpha, "1.0", 0, 1e6, "weight of -log p of the chosen answer's tokens in cpo losses"),
    NRL_OPT_BOOL(dpo_options, bco_shift, "false",
                 "bco_pair: shift rewards by the mean of all earlier rewards (Jung et al. 2024; TRL 1.16 does not)"),
    NRL_OPT_INT(dpo_options, aot_group, "8", 1, 65536,
                "pairs that aot and aot_unpaired sort together; they share a micro-batch"),
};

static const dpo_loss *find(const char *name)
{
    for (size_t i = 0; i < dpo_n_losses; i++)
        if (!strcmp(dpo_losses[i].name, name)) return &dpo_losses[i];
    return NULL;
}

/* Entry i of a list, or the node itself if it is a single value. */
static const nrl_node *entry(const nrl_node *node, size_t i)
{
    return nrl_node_kind(node) == NRL_NODE_LIST ? nrl_node_at(node, i) : node;
}

static size_t entries(const nrl_node *node)
{
    return nrl_node_kind(node) == NRL_NODE_LIST ? nrl_node_size(node) : node != NULL;
}

static nrl_status check_loss(const dpo_options *o)
{
    size_t n = entries(o->loss);
    if (n < 1 || n > DPO_MAX_LOSSES)
        return nrl_fail(NRL_ERR_CONFIG, "loss: got a list of %zu; expected a loss or a list of 1 to %d losses", n,
                        DPO_MAX_LOSSES);
    for (size_t i = 0; i < n; i++) {
        const char *name = nrl_node_string(entry(o->loss, i), NULL);
        if (!name) return nrl_fail(NRL_ERR_CONFIG, "loss: expected the name of a loss or a list of names");
        if (!find(name))
            return nrl_fail(NRL_ERR_CONFIG, "loss: unknown loss '%s'\nhint: `nrl describe dpo` lists the losses", name);
        for (size_t k = 0; k < i; k++)
            if (!strcmp(name, nrl_node_string(entry(o->loss, k), "")))
                return nrl_fail(NRL_ERR_CONFIG, "loss: '%s' is listed twice\nhint: use loss_weights", name);
    }
    return NRL_OK;
}

static nrl_status check_weights(const dpo_options *o)
{
    size_t n = entries(o->loss), given = entries(o->loss_weights);
    double sum = 0;
    if (!o->loss_weights) return NRL_OK;
    if (given != n) return nrl_fail(NRL_ERR_CONFIG, "loss_weights: got %zu weights for %zu losses", given, n);
    for (size_t i = 0; i < n; i++) {
        double w = nrl_node_f64(entry(o->loss_weights, i), NAN);
        if (!(w >= 0 && w <= 1e6))
            return nrl_fail(NRL_ERR_CONFIG, "loss_weights: entry %zu is not a number from 0 to 1e6", i + 1);
        sum += w;
    }
    return sum > 0 ? NRL_OK : nrl_fail(NRL_ERR_CONFIG, "loss_weights: all weights are 0, so nothing would be trained");
}

int dpo_members(const dpo_options *o, dpo_member members[DPO_MAX_LOSSES])
{
    size_t n = entries(o->loss);
    for (size_t i = 0; i < n; i++) {
        members[i].loss = find(nrl_node_string(entry(o->loss, i), ""));
        members[i].weight = o->loss_weights ? nrl_node_f64(entry(o->loss_weights, i), 1) : 1;
    }
    return (int)n;
}

static void append(char *text, size_t room, const char *word)
{
    size_t used = strlen(text);
    snprintf(text + used, room - used, "%s%s", used ? ", " : "", word);
}

/* Fails if an option differs from its default but no member reads it. */
static nrl_status unread(const dpo_member *members, int n, const char *option, uint32_t bit)
{
    char chosen[256] = "", readers[256] = "";
    for (int i = 0; i < n; i++)
        append(chosen, sizeof chosen, members[i].loss->name);
    for (size_t i = 0; i < dpo_n_losses; i++)
        if (dpo_losses[i].uses & bit) append(readers, sizeof readers, dpo_losses[i].name);
    return nrl_fail(NRL_ERR_CONFIG, "%s: loss %s does not use it\nhint: losses that use it: %s", option, chosen,
                    readers);
}

static nrl_status check_used(const dpo_options *o, const dpo_member *members, int n)
{
    const struct {
        const char *name;
        bool set;
        uint32_t bit;
    } rules[] = {
        {"label_smoothing", o->label_smoothing > 0, DPO_USES_SMOOTHING},
        {"f_divergence_type", o->f_divergence_type != DPO_REVERSE_KL, DPO_USES_F},
        {"ld_alpha", o->ld_alpha < 1, DPO_USES_LD},
        {"use_weighting", o->use_weighting, DPO_USES_WEIGHTING},
        {"discopop_tau", o->discopop_tau != 0.05, DPO_USES_TAU},
        {"simpo_gamma", o->simpo_gamma != 0.5, DPO_USES_GAMMA},
        {"alpha", o->alpha != 0, DPO_USES_ALPHA},
        {"cpo_alpha", o->cpo_alpha != 1, DPO_USES_CPO_ALPHA},
        {"bco_shift", o->bco_shift, DPO_USES_SHIFT},
        {"aot_group", o->aot_group != 8, DPO_USES_GROUP},
    };
    uint32_t used = 0;
    for (int i = 0; i < n; i++)
        used |= members[i].loss->uses;
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (rules[i].set && !(used & rules[i].bit)) return unread(members, n, rules[i].name, rules[i].bit);
    return NRL_OK;
}

/* A WPO weight or a length-desensitised sum in only some members would mix two runs into one. */
static nrl_status check_pairs(const dpo_options *o, const dpo_member *members, int n)
{
    for (int i = 0; i < n; i++) {
        const dpo_loss *l = members[i].loss;
        if (!l->pair_loss) continue;
        if (o->use_weighting && !(l->uses & DPO_USES_WEIGHTING))
            return nrl_fail(NRL_ERR_CONFIG, "use_weighting: loss %s does not support weighted pairs", l->name);
        if (o->ld_alpha < 1 && !(l->uses & DPO_USES_LD))
            return nrl_fail(NRL_ERR_CONFIG, "ld_alpha: loss %s does not use it", l->name);
    }
    return NRL_OK;
}

static nrl_status check_values(const dpo_options *o, const dpo_member *members, int n)
{
    if (!(o->beta > 0)) return nrl_fail(NRL_ERR_CONFIG, "beta: got 0; expected a number above 0");
    if (o->f_alpha_divergence_coef != 0.5 && o->f_divergence_type != DPO_ALPHA)
        return nrl_fail(NRL_ERR_CONFIG,
                        "f_alpha_divergence_coef: has no effect without f_divergence_type: alpha_divergence");
    for (int i = 0; i < n; i++) {
        const char *name = members[i].loss->name;
        if (!strcmp(name, "robust") && o->label_smoothing >= 0.5)
            return nrl_fail(
                NRL_ERR_CONFIG,
                "label_smoothing: got %g; expected below 0.5, because loss robust divides by 1 - 2 label_smoothing",
                o->label_smoothing);
        if (!strcmp(name, "exo_pair") && o->label_smoothing <= 0)
            return nrl_fail(NRL_ERR_CONFIG,
                            "label_smoothing: got 0; expected above 0, because loss exo_pair takes its logarithm\n"
                            "hint: the authors of exo_pair use 1e-3");
    }
    return NRL_OK;
}

nrl_status dpo_check(const void *options)
{
    const dpo_options *o = options;
    dpo_member members[DPO_MAX_LOSSES];
    NRL_TRY(check_loss(o));
    NRL_TRY(check_weights(o));
    int n = dpo_members(o, members);
    NRL_TRY(check_used(o, members, n));
    NRL_TRY(check_pairs(o, members, n));
    return check_values(o, members, n);
}
