/*
 * @NAME@.c - gradient descent with momentum: replace it by your own update. nrl/optimizer.h
 * describes the arguments and the contract of each member.
 */
#include <nrl/nrl.h>

typedef struct {
    double momentum;
} @NAME@_options;

static const nrl_option @NAME@_rows[] = {
    NRL_OPT_F64(@NAME@_options, momentum, "0.9", 0, 1, "share of the previous step that is kept"),
};

/* One value per element, zero at the start, saved in checkpoints under this name. */
static const char *const @NAME@_states[] = {"momentum"};

/* y = a x + b z */
static nrl_status @NAME@_mix(nrl_ctx *ctx, double a, nrl_tensor *x, double b, nrl_tensor *z,
                             nrl_tensor **y)
{
    nrl_tensor *ax, *bz;
    NRL_TRY(nrl_op_unary(ctx, NRL_UNARY_AFFINE, x, a, 0, &ax));
    NRL_TRY(nrl_op_unary(ctx, NRL_UNARY_AFFINE, z, b, 0, &bz));
    return nrl_op_binary(ctx, NRL_BINARY_ADD, ax, bz, y);
}

/* m = momentum m + grad_scale grad;  w -= lr m.  All tensors are [n] f32; the compute weight has
 * any dtype. */
static nrl_status @NAME@_slice(const @NAME@_options *o, nrl_ctx *ctx, nrl_slice *s,
                               const nrl_step_params *step)
{
    nrl_tensor *m, *w;
    NRL_TRY(@NAME@_mix(ctx, o->momentum, s->states[0], step->grad_scale, s->grad, &m));
    NRL_TRY(@NAME@_mix(ctx, 1, s->master, -step->lr, m, &w));
    NRL_TRY(nrl_tensor_copy(ctx, m, s->states[0]));
    NRL_TRY(nrl_tensor_copy(ctx, w, s->master));
    return s->work ? nrl_master_round(ctx, w, s->work) : NRL_OK;
}

static nrl_status @NAME@_update(void *self, nrl_ctx *ctx, nrl_slice *slices, int64_t n_slices,
                                const nrl_step_params *step)
{
    for (int64_t i = 0; i < n_slices; i++)
        NRL_TRY(@NAME@_slice(self, ctx, nrl_slice_at(slices, i, step), step));
    return NRL_OK;
}

static const nrl_optimizer @NAME@ = {
    NRL_PLUGIN(NRL_KIND_OPTIMIZER, nrl_optimizer, @NAME@_options, @NAME@_rows, "@NAME@", "0.1",
               "one line for `nrl plugins`"),
    .granularity = NRL_OPTIMIZER_ELEMENT, /* elements are independent: parameters may be divided anywhere */
    .n_states = 1,
    .state_names = @NAME@_states,
    .update = @NAME@_update,
};
NRL_EXPORT(@NAME@)
