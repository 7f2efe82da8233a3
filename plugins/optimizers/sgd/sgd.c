/*
 * sgd.c - stochastic gradient descent with momentum, with the options and the formulas of torch.optim.SGD:
 *   g = grad * grad_scale + weight_decay w
 *   b = momentum b + (1 - dampening) g    (b = g in the first update)
 *   d = g + momentum b with nesterov, else b;  w -= lr d
 * The weight decay is coupled: it passes through the momentum.
 */
#include "../common/vector.h"

typedef struct {
    double momentum, dampening, weight_decay;
    bool nesterov;
} sgd_options;

static const nrl_option sgd_rows[] = {
    NRL_OPT_F64(sgd_options, momentum, "0.9", 0, 1,
                "share of the last update that is added to the next one; 0 = plain"),
    NRL_OPT_F64(sgd_options, dampening, "0", 0, 1,
                "share of the gradient that is not added to the momentum; requires momentum"),
    NRL_OPT_F64(sgd_options, weight_decay, "0.0", 0, 1e3,
                "weight decay: this share of the weight is added to the gradient of matrices; not for norms and "
                "biases"),
    NRL_OPT_BOOL(sgd_options, nesterov, "false", "Nesterov momentum; requires momentum, and dampening 0"),
};

static nrl_status sgd_check(const void *options)
{
    const sgd_options *o = options;
    if (o->nesterov && (o->momentum <= 0 || o->dampening > 0))
        return nrl_fail(NRL_ERR_CONFIG,
                        "nesterov requires momentum above 0 and dampening 0; got momentum %g, dampening %g",
                        o->momentum, o->dampening);
    if (o->dampening > 0 && o->momentum <= 0)
        return nrl_fail(NRL_ERR_CONFIG, "dampening: has no effect without momentum; expected 0, got %g", o->dampening);
    return NRL_OK;
}

/* *d: the direction of the step; updates the state. */
static nrl_status sgd_direction(const sgd_options *o, nrl_ctx *ctx, nrl_slice *s, nrl_tensor *g, bool is_first,
                                nrl_tensor **d)
{
    nrl_tensor *b = g;
    *d = g;
    if (o->momentum <= 0) return NRL_OK;
    if (!is_first) NRL_TRY(vector_mix(ctx, o->momentum, s->states[0], 1 - o->dampening, g, &b));
    NRL_TRY(nrl_tensor_copy(ctx, b, s->states[0]));
    *d = b;
    return o->nesterov ? vector_mix(ctx, 1, g, o->momentum, b, d) : NRL_OK;
}

static nrl_status sgd_slice(const sgd_options *o, nrl_ctx *ctx, nrl_slice *s, const nrl_step_params *step)
{
    nrl_tensor *g, *d, *w;
    NRL_TRY(vector_scale(ctx, step->grad_scale, s->grad, &g));
    if (s->decay && o->weight_decay > 0) NRL_TRY(vector_mix(ctx, 1, g, o->weight_decay, s->master, &g));
    NRL_TRY(sgd_direction(o, ctx, s, g, step->step == 1, &d));
    NRL_TRY(vector_mix(ctx, 1, s->master, -step->lr, d, &w));
    return vector_store(ctx, s, w);
}

static nrl_status sgd_update(void *self, nrl_ctx *ctx, nrl_slice *slices, int64_t n_slices, const nrl_step_params *step)
{
    for (int64_t i = 0; i < n_slices; i++)
        NRL_TRY(sgd_slice(self, ctx, nrl_slice_at(slices, i, step), step));
    return NRL_OK;
}

/* Without momentum there is nothing to keep. */
static nrl_status sgd_declare(void *self, nrl_declaration *a)
{
    const sgd_options *o = self;
    a->granularity = NRL_OPTIMIZER_ELEMENT;
    a->n_states = o->momentum > 0 ? 1 : 0;
    a->states[0] = (nrl_state){.name = "momentum_buffer", .dtype = NRL_DTYPE_F32, .shape = NRL_STATE_ELEMENT};
    return NRL_OK;
}

static const nrl_optimizer sgd = {
    NRL_PLUGIN(NRL_KIND_OPTIMIZER, nrl_optimizer, sgd_options, sgd_rows, "sgd", "0.1",
               "stochastic gradient descent with momentum"),
    .plugin.check = sgd_check,
    .granularity = NRL_OPTIMIZER_ELEMENT,
    .declare = sgd_declare,
    .update = sgd_update,
};
NRL_EXPORT(sgd)
