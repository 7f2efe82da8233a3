/*
 * optimizers.h - optimizers that break one rule each, with the rule that must detect it. All call
 * the fused AdamW with one wrong argument.
 */
#ifndef WRONG_OPTIMIZERS_H
#define WRONG_OPTIMIZERS_H
#include <nrl/nrl.h>
#include <stdlib.h>

static const nrl_adamw usual = {sizeof(nrl_adamw), 0.9, 0.999, 1e-8, 0.1};

static nrl_status update_all(nrl_ctx *ctx, nrl_slice *slices, int64_t n, const nrl_adamw *numbers,
                             const nrl_step_params *step)
{
    for (int64_t i = 0; i < n; i++)
        NRL_TRY(nrl_slice_adamw(ctx, nrl_slice_at(slices, i, step), numbers, step));
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
        nrl_slice own = *nrl_slice_at(slices, i, step);
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
        NRL_TRY(update_all(ctx, nrl_slice_at(slices, i, step), 1, &usual, &own));
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
        nrl_slice own = *nrl_slice_at(slices, i, step);
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
        nrl_slice own = *nrl_slice_at(slices, i, step);
        own.decay = own.decay && !own.low;
        NRL_TRY(update_all(ctx, &own, 1, &usual, step));
    }
    return NRL_OK;
}

/* Slices laid out as this header has them, whatever the stride. */
static nrl_status strideless_update(void *self, nrl_ctx *ctx, nrl_slice *slices, int64_t n, const nrl_step_params *step)
{
    (void)self;
    for (int64_t i = 0; i < n; i++)
        if (slices[i].master) NRL_TRY(nrl_slice_adamw(ctx, &slices[i], &usual, step));
    return NRL_OK;
}

/* Two moments of zero in every step, and the true ones nowhere. */
static nrl_status forgetful_update(void *self, nrl_ctx *ctx, nrl_slice *slices, int64_t n, const nrl_step_params *step)
{
    (void)self;
    for (int64_t i = 0; i < n; i++) {
        nrl_slice own = *nrl_slice_at(slices, i, step);
        for (int k = 0; k < 2; k++) {
            NRL_TRY(nrl_tensor_new(ctx, NRL_DTYPE_F32, 1, &own.n, &own.states[k]));
            NRL_TRY(nrl_tensor_fill(ctx, own.states[k], 0));
        }
        NRL_TRY(update_all(ctx, &own, 1, &usual, step));
    }
    return NRL_OK;
}

/* Stores the first moment and does not read it. */
static nrl_status hasty_update(void *self, nrl_ctx *ctx, nrl_slice *slices, int64_t n, const nrl_step_params *step)
{
    (void)self;
    for (int64_t i = 0; i < n; i++) {
        NRL_TRY(nrl_tensor_fill(ctx, nrl_slice_at(slices, i, step)->states[0], 0));
        NRL_TRY(update_all(ctx, nrl_slice_at(slices, i, step), 1, &usual, step));
    }
    return NRL_OK;
}

/* An instance that counts its steps instead of reading their number: a new one begins again. */
typedef struct {
    int64_t steps;
} counter;

static nrl_status counter_create(const void *options, void **self)
{
    (void)options;
    *self = calloc(1, sizeof(counter));
    return *self ? NRL_OK : nrl_fail(NRL_ERR_MEMORY, "out of memory");
}

/* The pattern of decay by the instance's own count is lost at a save and a load; a step from 1 begins it again. */
static nrl_status own_state_update(void *self, nrl_ctx *ctx, nrl_slice *slices, int64_t n, const nrl_step_params *step)
{
    counter *c = self;
    nrl_step_params own = *step;
    if (!n) return NRL_OK;
    c->steps = step->step == 1 ? 1 : c->steps + 1;
    own.step = c->steps;
    return update_all(ctx, slices, n, &usual, &own);
}

/* The upper half of each number, without rounding. */
static nrl_status truncating_update(void *self, nrl_ctx *ctx, nrl_slice *slices, int64_t n, const nrl_step_params *step)
{
    NRL_TRY(workless_update(self, ctx, slices, n, step));
    for (int64_t i = 0; i < n; i++) {
        const uint16_t *halves = nrl_tensor_mat(nrl_slice_at(slices, i, step)->master).data;
        uint16_t *work =
            nrl_slice_at(slices, i, step)->work ? nrl_tensor_mat(nrl_slice_at(slices, i, step)->work).data : NULL;
        for (int64_t k = 0; work && k < nrl_slice_at(slices, i, step)->n; k++)
            work[k] = halves[2 * k + 1];
    }
    return NRL_OK;
}

static nrl_status odd_declare(void *self, nrl_declaration *d)
{
    (void)self;
    d->granularity = NRL_OPTIMIZER_ELEMENT; /* of which a state of its own dims cannot be divided */
    d->n_states = 1;
    d->states[0] = (nrl_state){
        .name = "exp_avg", .dtype = NRL_DTYPE_F32, .shape = NRL_STATE_OWN, .n_dims = 1, .dims = {d->part->dims[0]}};
    return NRL_OK;
}

/* Another name each time. */
static nrl_status moody_declare(void *self, nrl_declaration *d)
{
    static int64_t calls;
    (void)self;
    d->granularity = NRL_OPTIMIZER_ELEMENT;
    d->n_states = 2;
    for (int k = 0; k < 2; k++)
        d->states[k] = (nrl_state){.name = k             ? "exp_avg_sq"
                                           : calls++ % 2 ? "m"
                                                         : "exp_avg",
                                   .dtype = NRL_DTYPE_F32,
                                   .shape = NRL_STATE_ELEMENT};
    return NRL_OK;
}

/* master += factor grad */
static nrl_status climb(nrl_ctx *ctx, nrl_slice *s, double factor)
{
    nrl_tensor *step, *w;
    NRL_TRY(nrl_op_unary(ctx, NRL_UNARY_AFFINE, s->grad, factor, 0, &step));
    NRL_TRY(nrl_op_binary(ctx, NRL_BINARY_ADD, s->master, step, &w));
    NRL_TRY(nrl_tensor_copy(ctx, w, s->master));
    return s->work ? nrl_master_round(ctx, s->master, s->work) : NRL_OK;
}

static nrl_status right_perturb(void *self, nrl_ctx *ctx, nrl_slice *slices, int64_t n, const nrl_step_params *step)
{
    (void)self;
    for (int64_t i = 0; i < n; i++)
        NRL_TRY(climb(ctx, nrl_slice_at(slices, i, step), 0.1 * step->grad_scale / (step->grad_norm + 1e-12)));
    return NRL_OK;
}

/* Leaves the gradient scaled. */
static nrl_status grasping_perturb(void *self, nrl_ctx *ctx, nrl_slice *slices, int64_t n, const nrl_step_params *step)
{
    NRL_TRY(right_perturb(self, ctx, slices, n, step));
    for (int64_t i = 0; i < n; i++)
        NRL_TRY(nrl_tensor_fill(ctx, nrl_slice_at(slices, i, step)->grad, 1));
    return NRL_OK;
}

static nrl_status idle_perturb(void *self, nrl_ctx *ctx, nrl_slice *slices, int64_t n, const nrl_step_params *step)
{
    (void)self, (void)ctx, (void)slices, (void)n, (void)step;
    return NRL_OK;
}

/* By the size of the slice in place of the norm of the gradient. */
static nrl_status local_perturb(void *self, nrl_ctx *ctx, nrl_slice *slices, int64_t n, const nrl_step_params *step)
{
    (void)self;
    for (int64_t i = 0; i < n; i++) {
        nrl_slice *s = nrl_slice_at(slices, i, step);
        NRL_TRY(climb(ctx, s, 0.1 / (double)s->n));
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
    WRONG(right, "nothing is wrong with it", right_update, .perturb = right_perturb),
    WRONG(unscaled, "the gradient is grad * grad_scale", unscaled_update),
    WRONG(workless, "work is the master, rounded", workless_update),
    WRONG(own_rate, "a rate of zero moves nothing", own_rate_update),
    WRONG(rising, "a step goes against the gradient", rising_update),
    WRONG(indexed, "a parameter may be divided as declared", indexed_update),
    WRONG(strideless, "a parameter may be divided as declared", strideless_update),
    WRONG(counting, "equal steps give equal bits", counting_update),
    WRONG(decaying, "without decay and gradient nothing moves", decaying_update),
    WRONG(unstable, "masters stay finite", unstable_update),
    WRONG(needy, "no slices is fine", needy_update),
    WRONG(halved, "a master in halves moves as one in f32", halved_update, .encoded = true),
    WRONG(forgetful, "every declared state is stored", forgetful_update),
    WRONG(hasty, "a step depends on every declared state", hasty_update),
    WRONG(own_state, "states survive a save and a load", own_state_update, .create = counter_create, .destroy = free),
    WRONG(truncating, "work is the master, rounded", truncating_update),
    WRONG(grasping, "a perturbation moves weights alone", right_update, .perturb = grasping_perturb),
    WRONG(idle, "a perturbation moves weights alone", right_update, .perturb = idle_perturb),
    WRONG(local, "a perturbation works on each element alone", right_update, .perturb = local_perturb),
    WRONG(odd, "declarations make sense", right_update, .declare = odd_declare),
    WRONG(moody, "instances with the same options declare the same", right_update, .declare = moody_declare),
    WRONG(lacks_update, "update is NULL", NULL),
};
#undef WRONG

#endif
