/*
 * adamw.c - Adam with decoupled weight decay (Loshchilov and Hutter 2019), one fused pass per slice.
 * The core decides the learning rate and clipping and passes them in the step parameters.
 */
#include <nrl/nrl.h>
#include <stdlib.h>

typedef struct {
    double weight_decay;
    const nrl_node *betas; /* [beta1, beta2] */
    double eps;
} adamw_options;

static const nrl_option adamw_rows[] = {
    NRL_OPT_F64(adamw_options, weight_decay, "0.0", 0, 1e3,
                "weight decay of matrices: each step subtracts lr times this share; norms and biases are not decayed"),
    NRL_OPT_NODE(adamw_options, betas, "[0.9, 0.999]",
                 "decay per step of the running means of gradients and of their squares"),
    NRL_OPT_F64(adamw_options, eps, "1e-8", 0, 1, "added to the square root of the second moment"),
};

static nrl_status read_beta(const nrl_node *betas, size_t i, double *beta)
{
    *beta = nrl_node_f64(nrl_node_at(betas, i), -1);
    if (*beta >= 0 && *beta < 1) return NRL_OK;
    return nrl_fail(NRL_ERR_CONFIG,
                    "betas: number %zu is not in [0, 1); expected for example "
                    "[0.9, 0.999]",
                    i + 1);
}

static nrl_status read_betas(const adamw_options *options, nrl_adamw *adamw)
{
    adamw->beta1 = 0.9;
    adamw->beta2 = 0.999;
    if (!options->betas) return NRL_OK;
    if (nrl_node_kind(options->betas) != NRL_NODE_LIST || nrl_node_size(options->betas) != 2)
        return nrl_fail(NRL_ERR_CONFIG, "betas: expected a list of two numbers such as [0.9, 0.999]");
    NRL_TRY(read_beta(options->betas, 0, &adamw->beta1));
    return read_beta(options->betas, 1, &adamw->beta2);
}

static nrl_status adamw_check(const void *options)
{
    nrl_adamw unused;
    return read_betas(options, &unused);
}

static nrl_status adamw_create(const void *options, void **self)
{
    const adamw_options *o = options;
    nrl_adamw numbers = {.size = sizeof numbers, .eps = o->eps, .weight_decay = o->weight_decay};
    NRL_TRY(read_betas(o, &numbers));
    nrl_adamw *a = malloc(sizeof *a);
    if (!a) return nrl_fail(NRL_ERR_MEMORY, "out of memory for optimizer 'adamw'");
    *a = numbers;
    *self = a;
    return NRL_OK;
}

static nrl_status adamw_update(void *self, nrl_ctx *ctx, nrl_slice *slices, int64_t n_slices,
                               const nrl_step_params *step)
{
    for (int64_t i = 0; i < n_slices; i++)
        NRL_TRY(nrl_slice_adamw(ctx, &slices[i], self, step)); /* decays only if the slice does */
    return NRL_OK;
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
};
NRL_EXPORT(adamw)
