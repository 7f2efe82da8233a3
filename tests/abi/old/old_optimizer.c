/*
 * old_optimizer.c - gradient descent with momentum: replace it by your own update. nrl/optimizer.h
 * describes the arguments and the contract of each member.
 */
#include <nrl/nrl.h>

typedef struct {
    double momentum;
} old_optimizer_options;

static const nrl_option old_optimizer_rows[] = {
    NRL_OPT_F64(old_optimizer_options, momentum, "0.9", 0, 1, "share of the previous step that is kept"),
};

/* One value per element, zero at the start, saved in checkpoints under this name. */
static const char *const old_optimizer_states[] = {"momentum"};

/* y = a x + b z */
static nrl_status old_optimizer_mix(nrl_ctx *ctx, double a, nrl_tensor *x, double b, nrl_tensor *z, nrl_tensor **y)
{
    nrl_tensor *ax, *bz;
    NRL_TRY(nrl_op_unary(ctx, NRL_UNARY_AFFINE, x, a, 0, &ax));
    NRL_TRY(nrl_op_unary(ctx, NRL_UNARY_AFFINE, z, b, 0, &bz));
    return nrl_op_binary(ctx, NRL_BINARY_ADD, ax, bz, y);
}

/* m = momentum m + grad_scale grad;  w -= lr m.  All tensors are [n] f32; the compute weight has
 * any dtype. */
static nrl_status old_optimizer_slice(const old_optimizer_options *o, nrl_ctx *ctx, nrl_slice *s,
                                      const nrl_step_params *step)
{
    nrl_tensor *m, *w;
    NRL_TRY(old_optimizer_mix(ctx, o->momentum, s->states[0], step->grad_scale, s->grad, &m));
    NRL_TRY(old_optimizer_mix(ctx, 1, s->master, -step->lr, m, &w));
    NRL_TRY(nrl_tensor_copy(ctx, m, s->states[0]));
    NRL_TRY(nrl_tensor_copy(ctx, w, s->master));
    return s->work ? nrl_master_round(ctx, w, s->work) : NRL_OK;
}

static nrl_status old_optimizer_update(void *self, nrl_ctx *ctx, nrl_slice *slices, int64_t n_slices,
                                       const nrl_step_params *step)
{
    for (int64_t i = 0; i < n_slices; i++)
        NRL_TRY(old_optimizer_slice(self, ctx, nrl_slice_at(slices, i, step), step));
    return NRL_OK;
}

static const nrl_optimizer old_optimizer = {
    NRL_PLUGIN(NRL_KIND_OPTIMIZER, nrl_optimizer, old_optimizer_options, old_optimizer_rows, "old_optimizer", "0.1",
               "one line for `nrl plugins`"),
    .granularity = NRL_OPTIMIZER_ELEMENT, /* elements are independent: parameters may be divided anywhere */
    .n_states = 1,
    .state_names = old_optimizer_states,
    .update = old_optimizer_update,
};
NRL_EXPORT(old_optimizer)
