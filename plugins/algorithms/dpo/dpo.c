/*
 * dpo.c - preference optimization: raises the probability of chosen answers and lowers that of
 * rejected ones.
 *
 * A step's loss is a mean over pairs, plus a mean over tokens for losses that have one (sft, cpo,
 * orpo). So there are three terms, each with its own weight. A fourth term has weight 0, which keeps
 * it out of the loss; its sum carries the rewards of all ranks to step_end, for bco_pair's running
 * mean.
 */
#include "dpo.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TERM_PAIRS = 0, TERM_ANSWER_TOKENS, TERM_CHOSEN_TOKENS, TERM_REWARDS, N_TERMS };

/* ---- options ---- */

/* Rewards of the first loss are logged, so they need a reference if that loss does. */
static bool needs_reference(const dpo *d)
{
    bool any = !d->members[0].loss->pair_loss; /* sft: the logged rewards are log ratios, as in TRL */
    for (int i = 0; i < d->n_members; i++)
        any = any || d->members[i].loss->needs_reference;
    return any;
}

static void add_tokens(dpo *d, const dpo_member *m)
{
    double weight = m->weight * (m->loss->uses & DPO_USES_CPO_ALPHA ? d->o.cpo_alpha : 1);
    if (m->loss->tokens == DPO_ANSWER_TOKENS) d->answer_weight += weight;
    if (m->loss->tokens == DPO_CHOSEN_TOKENS) d->chosen_weight += weight;
}

static void list_needs(dpo *d)
{
    int n = 0;
    d->needs[n++] = "logps";
    if (d->reference) d->needs[n++] = "ref_logps";
    if (d->weighting) d->needs[n++] = "sum_p2";
    if (d->chosen_weight > 0) d->needs[n++] = "prompt_targets";
    d->needs[n] = NULL;
}

static nrl_status dpo_create(const void *options, void **self)
{
    dpo *d = calloc(1, sizeof *d);
    if (!d) return nrl_fail(NRL_ERR_MEMORY, "an instance of dpo");
    d->o = *(const dpo_options *)options;
    d->n_members = dpo_members(&d->o, d->members);
    d->weighting = d->o.use_weighting;
    d->desensitised = d->o.ld_alpha < 1;
    for (int i = 0; i < d->n_members; i++)
        add_tokens(d, &d->members[i]);
    d->reference = needs_reference(d);
    list_needs(d);
    *self = d;
    return NRL_OK;
}

static void dpo_destroy(void *self)
{
    dpo *d = self;
    free(d->sides);
    free(d->row_scale);
    free(d);
}

static const char *const *dpo_instance_needs(void *self)
{
    return ((const dpo *)self)->needs;
}

static int64_t dpo_group(void *self)
{
    const dpo *d = self;
    for (int i = 0; i < d->n_members; i++)
        if (d->members[i].loss->uses & DPO_USES_GROUP) return d->o.aot_group;
    return 1;
}

/* ---- a micro-batch ---- */

static void dpo_weight(void *self, const nrl_batch *batch, double *weight)
{
    const dpo *d = self;
    weight[TERM_PAIRS] = nrl_batch_count(batch, "pairs");
    weight[TERM_ANSWER_TOKENS] = d->answer_weight > 0 ? dpo_chosen_count(batch, false) : 0;
    weight[TERM_CHOSEN_TOKENS] = d->chosen_weight > 0 ? dpo_chosen_count(batch, true) : 0;
    weight[TERM_REWARDS] = 0;
}

/* [1] sum over pairs of the members' weighted losses; no tensor if no member has a pair loss. */
static nrl_expr pair_sum(const dpo *d, dpo_pairs *p)
{
    nrl_expr sum = e_tensor(&p->e, NULL);
    for (int i = 0; i < d->n_members; i++) {
        const dpo_member *m = &d->members[i];
        if (!m->loss->pair_loss) continue;
        nrl_expr each = m->loss->pair_loss(p);
        if (p->weight.tensor) each = e_mul(each, p->weight);
        if (m->weight != 1) each = scaled(each, m->weight);
        sum = sum.tensor ? e_add(sum, each) : each;
    }
    return sum.tensor ? e_sum(sum) : sum;
}

static nrl_status or_zero(nrl_exprs *e, nrl_expr sum, nrl_tensor **out)
{
    return e_store(sum.tensor ? sum : e_number(e, 0), out);
}

static nrl_status dpo_loss_of(void *self, nrl_ctx *ctx, const nrl_batch *batch, nrl_tensor **sums)
{
    dpo *d = self;
    dpo_pairs p;
    NRL_TRY(dpo_pairs_make(d, ctx, batch, &p));
    const nrl_expr none = e_tensor(&p.e, NULL);
    nrl_expr pairs = pair_sum(d, &p);
    nrl_expr answer = p.answer_nll.tensor ? scaled(p.answer_nll, d->answer_weight) : none;
    nrl_expr chosen = p.chosen_nll.tensor ? scaled(p.chosen_nll, d->chosen_weight) : none;
    nrl_expr rewards = d->o.bco_shift ? dpo_reward_sum(&p) : none;
    NRL_TRY(dpo_report(d, batch, &p));
    NRL_TRY(or_zero(&p.e, pairs, &sums[TERM_PAIRS]));
    NRL_TRY(or_zero(&p.e, answer, &sums[TERM_ANSWER_TOKENS]));
    NRL_TRY(or_zero(&p.e, chosen, &sums[TERM_CHOSEN_TOKENS]));
    return or_zero(&p.e, rewards, &sums[TERM_REWARDS]);
}

/* ---- between steps ---- */

static nrl_status dpo_step_end(void *self, const double *sums, const double *weights)
{
    dpo *d = self;
    if (!d->o.bco_shift || !isfinite(sums[TERM_REWARDS])) return NRL_OK;
    d->reward_sum += sums[TERM_REWARDS];
    d->reward_count += 2 * weights[TERM_PAIRS];
    return NRL_OK;
}

static nrl_status dpo_state(void *self, nrl_state_io *state_io)
{
    dpo *d = self;
    if (!d->o.bco_shift) return NRL_OK;
    NRL_TRY(nrl_state_io_f64(state_io, "reward_sum", &d->reward_sum, 1));
    return nrl_state_io_f64(state_io, "reward_count", &d->reward_count, 1);
}

static double dpo_start_loss(void *self)
{
    const dpo *d = self;
    double sum = 0;
    if (d->weighting) return (double)NAN; /* its weights depend on the policy */
    for (int i = 0; i < d->n_members; i++) {
        const dpo_member *m = &d->members[i];
        sum += m->loss->start ? m->weight * m->loss->start(&d->o) : (double)NAN;
    }
    return sum;
}

/* Everything that some instance may need; dpo_instance_needs returns what this instance needs. */
static const char *const dpo_needs[] = {"logps", "ref_logps", NULL};

static const nrl_algorithm dpo_table = {
    NRL_PLUGIN(NRL_KIND_ALGORITHM, nrl_algorithm, dpo_options, dpo_rows, "dpo", "0.1",
               "preference optimization: DPO and its family"),
    .plugin.check = dpo_check,
    .needs = dpo_needs,
    .metrics = dpo_metrics,
    .n_terms = N_TERMS,
    .example_kind = 1,
    .create = dpo_create,
    .destroy = dpo_destroy,
    .weight = dpo_weight,
    .loss = dpo_loss_of,
    .step_end = dpo_step_end,
    .state = dpo_state,
    .instance_needs = dpo_instance_needs,
    .initial_loss = dpo_start_loss,
    .group = dpo_group,
};
NRL_EXPORT(dpo_table)
