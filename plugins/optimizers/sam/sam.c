/*
 * sam.c - sharpness-aware minimization (Foret et al. 2021): the update of a base optimizer by the gradient at the
 * nearby point where the loss is highest to first order.
 *   w' = w + rho g / (|g| + 1e-12)     g: gradient at w, |g| its norm over all trained parameters
 *   base update of w by the gradient at w'
 * The base is AdamW or SGD with momentum, with their formulas. A step walks its batches twice.
 */
#include "../common/betas.h"
#include "../common/vector.h"
#include <math.h>
#include <stdlib.h>

typedef enum { BASE_ADAMW = 0, BASE_SGD } sam_base;

typedef struct {
    double rho, weight_decay, eps, momentum;
    const nrl_node *betas; /* [beta1, beta2] */
    int64_t base;          /* sam_base */
} sam_options;

typedef struct {
    sam_options options;
    nrl_adamw adamw;
} sam;

static const double BETA1 = 0.9, BETA2 = 0.999, EPS = 1e-8; /* the defaults */

static const nrl_option sam_rows[] = {
    NRL_OPT_F64(sam_options, rho, "0.05", 0, 1e3, "distance between the weights and the point whose gradient is used"),
    NRL_OPT_ENUM(sam_options, base, "adamw", "adamw|sgd", "the update"),
    NRL_OPT_F64(sam_options, weight_decay, "0.0", 0, 1e3,
                "weight decay of matrices by the base: decoupled in adamw, added to the gradient in sgd"),
    NRL_OPT_NODE(sam_options, betas, "[0.9, 0.999]",
                 "adamw: decay per step of the running means of gradients and of their squares"),
    NRL_OPT_F64(sam_options, eps, "1e-8", 0, 1, "adamw: added to the square root of the second moment"),
    NRL_OPT_F64(sam_options, momentum, "0.0", 0, 1, "sgd: share of the last update that is added to the next one"),
};

static nrl_status sam_check(const void *options)
{
    const sam_options *o = options;
    double betas[2] = {BETA1, BETA2};
    if (o->base == BASE_ADAMW && o->momentum > 0)
        return nrl_fail(NRL_ERR_CONFIG, "momentum is %g, which base: adamw does not use; expected base: sgd",
                        o->momentum);
    NRL_TRY(read_betas(o->betas, betas));
    if (o->base == BASE_SGD && (fabs(betas[0] - BETA1) > 0 || fabs(betas[1] - BETA2) > 0))
        return nrl_fail(NRL_ERR_CONFIG, "betas: base: sgd does not use them; expected base: adamw");
    if (o->base == BASE_SGD && fabs(o->eps - EPS) > 0)
        return nrl_fail(NRL_ERR_CONFIG, "eps is %g, which base: sgd does not use; expected base: adamw", o->eps);
    return NRL_OK;
}

static nrl_status sam_create(const void *options, void **self)
{
    const sam_options *o = options;
    double betas[2] = {BETA1, BETA2};
    NRL_TRY(read_betas(o->betas, betas));
    sam *s = malloc(sizeof *s);
    if (!s) return nrl_fail(NRL_ERR_MEMORY, "out of memory for optimizer 'sam'");
    *s = (sam){*o, {sizeof s->adamw, betas[0], betas[1], o->eps, o->weight_decay}};
    *self = s;
    return NRL_OK;
}

/* Without momentum there is nothing to keep. */
static nrl_status sam_declare(void *self, nrl_declaration *d)
{
    static const char *const names[][2] = {{"exp_avg", "exp_avg_sq"}, {"momentum_buffer", NULL}};
    const sam_options *o = &((const sam *)self)->options;
    d->granularity = NRL_OPTIMIZER_ELEMENT;
    d->n_states = o->base == BASE_ADAMW ? 2 : o->momentum > 0;
    for (uint32_t k = 0; k < d->n_states; k++)
        d->states[k] = (nrl_state){.name = names[o->base][k], .dtype = NRL_DTYPE_F32, .shape = NRL_STATE_ELEMENT};
    return NRL_OK;
}

static nrl_status sam_perturb(void *self, nrl_ctx *ctx, nrl_slice *slices, int64_t n_slices,
                              const nrl_step_params *step)
{
    const double reach = ((const sam *)self)->options.rho * step->grad_scale / (step->grad_norm + 1e-12);
    for (int64_t i = 0; i < n_slices; i++) {
        nrl_slice *s = nrl_slice_at(slices, i, step);
        nrl_tensor *w;
        NRL_TRY(vector_mix(ctx, 1, s->master, reach, s->grad, &w));
        NRL_TRY(vector_store(ctx, s, w));
    }
    return NRL_OK;
}

/* g = grad + weight_decay w;  b = momentum b + g;  w -= lr b */
static nrl_status sam_sgd(const sam_options *o, nrl_ctx *ctx, nrl_slice *s, const nrl_step_params *step)
{
    nrl_tensor *g, *w;
    NRL_TRY(vector_scale(ctx, step->grad_scale, s->grad, &g));
    if (s->decay && o->weight_decay > 0) NRL_TRY(vector_mix(ctx, 1, g, o->weight_decay, s->master, &g));
    if (o->momentum > 0) {
        NRL_TRY(vector_mix(ctx, o->momentum, s->states[0], 1, g, &g));
        NRL_TRY(nrl_tensor_copy(ctx, g, s->states[0]));
    }
    NRL_TRY(vector_mix(ctx, 1, s->master, -step->lr, g, &w));
    return vector_store(ctx, s, w);
}

static nrl_status sam_update(void *self, nrl_ctx *ctx, nrl_slice *slices, int64_t n_slices, const nrl_step_params *step)
{
    const sam *s = self;
    for (int64_t i = 0; i < n_slices; i++) {
        nrl_slice *slice = nrl_slice_at(slices, i, step);
        NRL_TRY(s->options.base == BASE_ADAMW ? nrl_slice_adamw(ctx, slice, &s->adamw, step)
                                              : sam_sgd(&s->options, ctx, slice, step));
    }
    return NRL_OK;
}

static const nrl_optimizer table = {
    NRL_PLUGIN(NRL_KIND_OPTIMIZER, nrl_optimizer, sam_options, sam_rows, "sam", "0.1",
               "sharpness-aware minimization: AdamW or SGD with the gradient at the nearby point where the loss is "
               "highest"),
    .plugin.check = sam_check,
    .granularity = NRL_OPTIMIZER_ELEMENT,
    .create = sam_create,
    .destroy = free,
    .declare = sam_declare,
    .update = sam_update,
    .perturb = sam_perturb,
};
NRL_EXPORT(table)
