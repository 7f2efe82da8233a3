/*
 * silent.c - an algorithm whose loss fails and does not say why.
 */
#include <nrl/nrl.h>

static void silent_weight(void *self, const nrl_batch *batch, double *weight)
{
    (void)self, (void)batch;
    weight[0] = 1;
}

static nrl_status silent_loss(void *self, nrl_ctx *ctx, const nrl_batch *batch, nrl_tensor **sums)
{
    (void)self, (void)ctx, (void)batch, (void)sums;
    return NRL_ERR_PLUGIN;
}

static const char *const silent_needs[] = {"logps", NULL};

static const nrl_algorithm table = {
    NRL_PLUGIN_PLAIN(NRL_KIND_ALGORITHM, nrl_algorithm, "silent", "1.0", "fails without a text"),
    .needs = silent_needs,
    .n_terms = 1,
    .weight = silent_weight,
    .loss = silent_loss,
};
NRL_EXPORT(table)
