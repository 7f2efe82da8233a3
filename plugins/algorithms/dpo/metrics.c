/*
 * metrics.c - TRL's metrics of a preference run: means over the pairs of the global batch.
 */
#include "dpo.h"

const nrl_metric dpo_metrics[] = {
    {"rewards/chosen", "1", NRL_REDUCE_MEAN, NRL_BETTER_LARGER},
    {"rewards/rejected", "1", NRL_REDUCE_MEAN, NRL_BETTER_SMALLER},
    {"rewards/margins", "1", NRL_REDUCE_MEAN, NRL_BETTER_LARGER},
    {"rewards/accuracies", "1", NRL_REDUCE_MEAN, NRL_BETTER_LARGER}, /* equal rewards count as wrong, as in TRL */
    {"logps/chosen", "nats", NRL_REDUCE_MEAN, NRL_BETTER_LARGER},
    {"logps/rejected", "nats", NRL_REDUCE_MEAN, NRL_BETTER_SMALLER},
    {"nll_loss", "nats", NRL_REDUCE_MEAN, NRL_BETTER_SMALLER}, /* of the token mean, if the losses have one */
    {0},
};

static void add(dpo_pairs *p, uint32_t index, nrl_expr sum, double weight)
{
    if (p->e.status == NRL_OK) p->e.status = nrl_metric_add(p->e.ctx, index, sum.tensor, weight);
}

/* The first loss defines the reward. */
static nrl_expr reward(const dpo *d, dpo_pairs *p, const dpo_side *side)
{
    return e_detach(d->members[0].loss->reward(p, side));
}

static nrl_expr logps(const dpo *d, const dpo_side *side)
{
    nrl_expr l = e_detach(side->logp);
    return d->members[0].loss->logps_are_means ? e_div(l, side->length) : l;
}

nrl_status dpo_report(const dpo *d, const nrl_batch *batch, dpo_pairs *p)
{
    double n = (double)p->n;
    nrl_expr chosen = reward(d, p, &p->chosen), rejected = reward(d, p, &p->rejected);
    add(p, 0, e_sum(chosen), n);
    add(p, 1, e_sum(rejected), n);
    add(p, 2, e_sum(e_sub(chosen, rejected)), n);
    add(p, 3, e_sum(e_greater(chosen, rejected)), n);
    add(p, 4, e_sum(logps(d, &p->chosen)), n);
    add(p, 5, e_sum(logps(d, &p->rejected)), n);
    nrl_expr nll = p->answer_nll.tensor ? p->answer_nll : p->chosen_nll;
    if (nll.tensor) add(p, 6, e_detach(nll), dpo_chosen_count(batch, !p->answer_nll.tensor));
    return p->e.status;
}

nrl_expr dpo_reward_sum(dpo_pairs *p)
{
    const double beta = p->o->beta;
    return e_sum(e_add(scaled(e_detach(p->chosen.ratio), beta), scaled(e_detach(p->rejected.ratio), beta)));
}
