/*
 * adamw.c - Adam with decoupled weight decay (Loshchilov and Hutter 2019), one fused pass per slice.
 * The core decides the learning rate and clipping and passes them in the step parameters.
 */
#include "../common/betas.h"
#include <stdlib.h>

typedef struct {
    double weight_decay;
    const nrl_node *betas; /* [beta1, beta2] */
    double eps;
} adamw_options;

static const nrl_option adamw_rows[] = {
    NRL_OPT_F64(adamw_options, weight_decay, "0.0", 0, 1e3,
                "weight decay of matrices: each step subtracts lr times this share of the weight; not for norms and "
                "biases"),
    NRL_OPT_NODE(adamw_options, betas, "[0.9, 0.999]",
                 "decay per step of the running means of gradients and of their squares"),
    NRL_OPT_F64(adamw_options, eps, "1e-8", 0, 1, "added to the square root of the second moment"),
};

static nrl_status adamw_check(const void *options)
{
    double unused[2];
    return read_betas(((const adamw_options *)options)->betas, unused);
}

static nrl_status adamw_create(const void *options, void **self)
{
    const adamw_options *o = options;
    double betas[2] = {0.9, 0.999};
    NRL_TRY(read_betas(o->betas, betas));
    nrl_adamw *a = malloc(sizeof *a);
    if (!a) return nrl_fail(NRL_ERR_MEMORY, "out of memory for optimizer 'adamw'");
    *a = (nrl_adamw){sizeof *a, betas[0], betas[1], o->eps, o->weight_decay};
    *self = a;
    return NRL_OK;
}

static nrl_status adamw_update(void *self, nrl_ctx *ctx, nrl_slice *slices, int64_t n_slices,
                               const nrl_step_params *step)
{
    return nrl_slices_adamw(ctx, slices, n_slices, self, step); /* decays only the slices that decay */
}

static const char *const adamw_states[] = {"exp_avg", "exp_avg_sq"};

static const nrl_optimizer adamw = {
    NRL_PLUGIN(NRL_KIND_OPTIMIZER, nrl_optimizer, adamw_options, adamw_rows, "adamw", "0.1",
               "Adam with decoupled weight decay"),
    .plugin.priority = 100,
    .plugin.check = adamw_check,
    .granularity = NRL_OPTIMIZER_ELEMENT,
    .n_states = 2,
    .state_names = adamw_states,
    .create = adamw_create,
    .destroy = free,
    .update = adamw_update,
    .encoded = true,
    .takes_decision = true,
};
NRL_EXPORT(adamw)
