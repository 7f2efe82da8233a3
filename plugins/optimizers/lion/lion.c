/*
 * lion.c - Lion (Chen et al. 2023, "Symbolic discovery of optimization algorithms"): steps of one size for every
 * element, in the direction of the sign of a running mean.
 *   g = grad * grad_scale;  w -= lr (sign(beta1 m + (1 - beta1) g) + weight_decay w);  m = beta2 m + (1 - beta2) g
 * The sign of 0 is 0. The authors use a third to a tenth of AdamW's rate and a larger weight decay.
 */
#include "../common/betas.h"
#include "../common/vector.h"
#include <stdlib.h>

typedef struct {
    double weight_decay;
    const nrl_node *betas; /* [beta1, beta2] */
} lion_options;

typedef struct {
    double beta1, beta2, weight_decay;
} lion;

static const nrl_option lion_rows[] = {
    NRL_OPT_F64(lion_options, weight_decay, "0.0", 0, 1e3,
                "weight decay of matrices: each step subtracts lr times this share of the weight; not for norms and "
                "biases"),
    NRL_OPT_NODE(lion_options, betas, "[0.9, 0.99]", "weight of the running mean in an update, and its decay per step"),
};

static nrl_status lion_create(const void *options, void **self)
{
    const lion_options *o = options;
    double betas[2] = {0.9, 0.99};
    NRL_TRY(read_betas(o->betas, betas));
    lion *l = malloc(sizeof *l);
    if (!l) return nrl_fail(NRL_ERR_MEMORY, "out of memory for optimizer 'lion'");
    *l = (lion){betas[0], betas[1], o->weight_decay};
    *self = l;
    return NRL_OK;
}

static nrl_status lion_check(const void *options)
{
    double unused[2];
    return read_betas(((const lion_options *)options)->betas, unused);
}

/* 1, 0 or -1 */
static nrl_status lion_sign(nrl_ctx *ctx, nrl_tensor *x, nrl_tensor **y)
{
    const int64_t one = 1;
    nrl_tensor *zero, *above, *below;
    NRL_TRY(nrl_tensor_new(ctx, NRL_DTYPE_F32, 1, &one, &zero));
    NRL_TRY(nrl_tensor_fill(ctx, zero, 0));
    NRL_TRY(nrl_op_binary(ctx, NRL_BINARY_GREATER, x, zero, &above));
    NRL_TRY(nrl_op_unary(ctx, NRL_UNARY_NEG, x, 0, 0, &below));
    NRL_TRY(nrl_op_binary(ctx, NRL_BINARY_GREATER, below, zero, &below));
    return nrl_op_binary(ctx, NRL_BINARY_SUB, above, below, y);
}

static nrl_status lion_slice(const lion *l, nrl_ctx *ctx, nrl_slice *s, const nrl_step_params *step)
{
    const double decay = s->decay ? 1 - step->lr * l->weight_decay : 1;
    nrl_tensor *g, *m, *sign, *w;
    NRL_TRY(vector_scale(ctx, step->grad_scale, s->grad, &g));
    NRL_TRY(vector_mix(ctx, l->beta1, s->states[0], 1 - l->beta1, g, &m));
    NRL_TRY(lion_sign(ctx, m, &sign));
    NRL_TRY(vector_mix(ctx, decay, s->master, -step->lr, sign, &w));
    NRL_TRY(vector_mix(ctx, l->beta2, s->states[0], 1 - l->beta2, g, &m));
    NRL_TRY(nrl_tensor_copy(ctx, m, s->states[0]));
    return vector_store(ctx, s, w);
}

static nrl_status lion_update(void *self, nrl_ctx *ctx, nrl_slice *slices, int64_t n_slices,
                              const nrl_step_params *step)
{
    for (int64_t i = 0; i < n_slices; i++)
        NRL_TRY(lion_slice(self, ctx, nrl_slice_at(slices, i, step), step));
    return NRL_OK;
}

static const char *const lion_states[] = {"exp_avg"};

static const nrl_optimizer table = {
    NRL_PLUGIN(NRL_KIND_OPTIMIZER, nrl_optimizer, lion_options, lion_rows, "lion", "0.1",
               "Lion: sign of a running mean, with decoupled weight decay"),
    .plugin.check = lion_check,
    .granularity = NRL_OPTIMIZER_ELEMENT,
    .n_states = 1,
    .state_names = lion_states,
    .create = lion_create,
    .destroy = free,
    .update = lion_update,
};
NRL_EXPORT(table)
