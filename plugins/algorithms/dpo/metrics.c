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

static void add(dpo_pairs *p, uint32_t index, nrl_tensor *sum, double weight)
{
    if (p->e.st == NRL_OK) p->e.st = nrl_metric_add(p->e.ctx, index, sum, weight);
}

/* The first loss defines the reward. */
static nrl_tensor *reward(const dpo *d, dpo_pairs *p, const dpo_side *side)
{
    return detach(&p->e, d->members[0].loss->reward(p, side));
}

static nrl_tensor *logps(const dpo *d, dpo_pairs *p, const dpo_side *side)
{
    nrl_tensor *l = detach(&p->e, side->logp);
    return d->members[0].loss->logps_are_means ? over(&p->e, l, side->length) : l;
}

nrl_status dpo_report(const dpo *d, const nrl_batch *batch, dpo_pairs *p)
{
    expr *e = &p->e;
    double n = (double)p->n;
    nrl_tensor *chosen = reward(d, p, &p->chosen), *rejected = reward(d, p, &p->rejected);
    add(p, 0, total(e, chosen), n);
    add(p, 1, total(e, rejected), n);
    add(p, 2, total(e, minus(e, chosen, rejected)), n);
    add(p, 3, total(e, binary(e, NRL_BINARY_GREATER, chosen, rejected)), n);
    add(p, 4, total(e, logps(d, p, &p->chosen)), n);
    add(p, 5, total(e, logps(d, p, &p->rejected)), n);
    nrl_tensor *nll = p->answer_nll ? p->answer_nll : p->chosen_nll;
    if (nll) add(p, 6, detach(e, nll), dpo_chosen_count(batch, !p->answer_nll));
    return e->st;
}

nrl_tensor *dpo_reward_sum(const dpo *d, dpo_pairs *p)
{
    return total(&p->e, plus(&p->e, reward(d, p, &p->chosen), reward(d, p, &p->rejected)));
}
