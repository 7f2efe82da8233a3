/*
 * optimizers.h - optimizers that break one rule each, with the rule that must detect it. All call
 * the fused AdamW with one wrong argument.
 */
#ifndef WRONG_OPTIMIZERS_H
#define WRONG_OPTIMIZERS_H
#include <nrl/nrl.h>

static const nrl_adamw usual = {sizeof(nrl_adamw), 0.9, 0.999, 1e-8, 0.1};

static nrl_status update_all(nrl_ctx *ctx, nrl_slice *slices, int64_t n, const nrl_adamw *numbers,
                             const nrl_step_params *step)
{
    for (int64_t i = 0; i < n; i++)
        NRL_TRY(nrl_slice_adamw(ctx, &slices[i], numbers, step));
    return NRL_OK;
}

static nrl_status right_update(void *self, nrl_ctx *ctx, nrl_slice *slices, int64_t n, const nrl_step_params *step)
{
    (void)self;
    return update_all(ctx, slices, n, &usual, step);
}

static nrl_status unscaled_update(void *self, nrl_ctx *ctx, nrl_slice *slices, int64_t n, const nrl_step_params *step)
{
    nrl_step_params own = *step;
    nrl_adamw large_eps = usual;
    (void)self;
    large_eps.eps = 1; /* Adam itself hardly sees a scale */
    own.grad_scale = 1;
    return update_all(ctx, slices, n, &large_eps, &own);
}

static nrl_status workless_update(void *self, nrl_ctx *ctx, nrl_slice *slices, int64_t n, const nrl_step_params *step)
{
    (void)self;
    for (int64_t i = 0; i < n; i++) {
        nrl_slice own = slices[i];
        own.work = NULL;
        NRL_TRY(update_all(ctx, &own, 1, &usual, step));
    }
    return NRL_OK;
}

static nrl_status own_rate_update(void *self, nrl_ctx *ctx, nrl_slice *slices, int64_t n, const nrl_step_params *step)
{
    nrl_step_params own = *step;
    (void)self;
    own.lr = 1e-3;
    return update_all(ctx, slices, n, &usual, &own);
}

static nrl_status rising_update(void *self, nrl_ctx *ctx, nrl_slice *slices, int64_t n, const nrl_step_params *step)
{
    nrl_step_params own = *step;
    (void)self;
    own.lr = -step->lr;
    return update_all(ctx, slices, n, &usual, &own);
}

/* The second slice gets twice the rate: what a table by index does when a strategy placements. */
static nrl_status indexed_update(void *self, nrl_ctx *ctx, nrl_slice *slices, int64_t n, const nrl_step_params *step)
{
    (void)self;
    for (int64_t i = 0; i < n; i++) {
        nrl_step_params own = *step;
        own.lr *= (double)(1 + i);
        NRL_TRY(update_all(ctx, &slices[i], 1, &usual, &own));
    }
    return NRL_OK;
}

static nrl_status counting_update(void *self, nrl_ctx *ctx, nrl_slice *slices, int64_t n, const nrl_step_params *step)
{
    static int64_t calls; /* its own step counter, shared by all instances */
    nrl_step_params own = *step;
    (void)self;
    own.step = ++calls;
    return update_all(ctx, slices, n, &usual, &own);
}

static nrl_status decaying_update(void *self, nrl_ctx *ctx, nrl_slice *slices, int64_t n, const nrl_step_params *step)
{
    (void)self;
    for (int64_t i = 0; i < n; i++) {
        nrl_slice own = slices[i];
        own.decay = true;
        NRL_TRY(update_all(ctx, &own, 1, &usual, step));
    }
    return NRL_OK;
}

static nrl_status unstable_update(void *self, nrl_ctx *ctx, nrl_slice *slices, int64_t n, const nrl_step_params *step)
{
    nrl_adamw no_eps = usual;
    (void)self;
    no_eps.eps = 0; /* 0 / 0 where a square underflows */
    return update_all(ctx, slices, n, &no_eps, step);
}

static nrl_status needy_update(void *self, nrl_ctx *ctx, nrl_slice *slices, int64_t n, const nrl_step_params *step)
{
    if (n == 0) return nrl_fail(NRL_ERR_BUG, "no slices");
    return right_update(self, ctx, slices, n, step);
}

/* Knows halves, and forgets that they decay. */
static nrl_status halved_update(void *self, nrl_ctx *ctx, nrl_slice *slices, int64_t n, const nrl_step_params *step)
{
    (void)self;
    for (int64_t i = 0; i < n; i++) {
        nrl_slice own = slices[i];
        own.decay = own.decay && !own.low;
        NRL_TRY(update_all(ctx, &own, 1, &usual, step));
    }
    return NRL_OK;
}

static const char *const two_names[] = {"exp_avg", "exp_avg_sq"};

#define WRONG(nm, rule, ...) /* update, and what else differs */                                                       \
    {                                                                                                                  \
        NRL_PLUGIN_PLAIN(NRL_KIND_OPTIMIZER, nrl_optimizer, #nm, "0", rule),                                           \
            .granularity = NRL_OPTIMIZER_ELEMENT, .n_states = 2, .state_names = two_names, .update = __VA_ARGS__       \
    }
static const nrl_optimizer wrong[] = {
    WRONG(right, "nothing is wrong with it", right_update),
    WRONG(unscaled, "the gradient is grad * grad_scale", unscaled_update),
    WRONG(workless, "work is the master, rounded", workless_update),
    WRONG(own_rate, "a rate of zero moves nothing", own_rate_update),
    WRONG(rising, "a step goes against the gradient", rising_update),
    WRONG(indexed, "an element optimizer takes any slices", indexed_update),
    WRONG(counting, "equal steps give equal bits", counting_update),
    WRONG(decaying, "without decay and gradient nothing moves", decaying_update),
    WRONG(unstable, "masters stay finite", unstable_update),
    WRONG(needy, "no slices is fine", needy_update),
    WRONG(halved, "a master in halves moves as one in f32", halved_update, .encoded = true),
    WRONG(lacks_update, "update is NULL", NULL),
};
#undef WRONG

#endif
