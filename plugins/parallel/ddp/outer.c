/*
 * outer.c - outer steps of sync_every (DiLoCo: Douillard et al. 2023): SGD with Nesterov momentum, whose gradient is
 * the mean change of the weights since all ranks had the same weights. Called by local.c at each average:
 *   delta = anchor - mean of MASTER;  v = momentum v + delta;  anchor -= lr (momentum v + delta);  MASTER = anchor
 */
#include "ddp.h"

bool ddp_has_outer(const ddp *d)
{
    return d->train && d->size > 1 && d->o.sync_every > 1 &&
           (d->o.outer_lr < 1 || d->o.outer_lr > 1 || d->o.outer_momentum > 0);
}

nrl_status ddp_outer_bind(ddp *d, nrl_ctx *ctx)
{
    for (int32_t i = 0; i < d->n_slots && ddp_has_outer(d); i++) {
        ddp_slot *s = &d->slots[i];
        NRL_TRY(ddp_tensor(ctx, NRL_DTYPE_F32, nrl_param_numel(s->param), &s->anchor));
        NRL_TRY(ddp_tensor(ctx, NRL_DTYPE_F32, nrl_param_numel(s->param), &s->velocity));
    }
    return NRL_OK;
}

void ddp_outer_unbind(ddp *d, nrl_ctx *ctx)
{
    for (int32_t i = 0; i < d->n_slots; i++) {
        nrl_tensor_free(ctx, d->slots[i].anchor);
        nrl_tensor_free(ctx, d->slots[i].velocity);
        d->slots[i].anchor = d->slots[i].velocity = NULL;
    }
}

nrl_status ddp_outer_begin(ddp *d, nrl_ctx *ctx)
{
    for (int32_t i = 0; i < d->n_slots; i++) {
        nrl_tensor *master = nrl_param_tensor(d->slots[i].param, NRL_SLOT_MASTER);
        if (master) NRL_TRY(nrl_tensor_copy(ctx, master, d->slots[i].anchor));
    }
    return NRL_OK;
}

/* out = a x + y */
static nrl_status add_scaled(nrl_ctx *ctx, double a, nrl_tensor *x, nrl_tensor *y, nrl_tensor **out)
{
    nrl_tensor *ax;
    NRL_TRY(nrl_op_unary(ctx, NRL_UNARY_AFFINE, x, a, 0, &ax));
    return nrl_op_binary(ctx, NRL_BINARY_ADD, ax, y, out);
}

static nrl_status step_slot(const ddp *d, nrl_ctx *ctx, const ddp_slot *s)
{
    nrl_tensor *master = nrl_param_tensor(s->param, NRL_SLOT_MASTER), *delta, *v, *step, *next;
    if (!master) return NRL_OK;
    NRL_TRY(nrl_op_binary(ctx, NRL_BINARY_SUB, s->anchor, master, &delta));
    NRL_TRY(add_scaled(ctx, d->o.outer_momentum, s->velocity, delta, &v));
    NRL_TRY(add_scaled(ctx, d->o.outer_momentum, v, delta, &step));
    NRL_TRY(add_scaled(ctx, -d->o.outer_lr, step, s->anchor, &next));
    NRL_TRY(nrl_tensor_copy(ctx, v, s->velocity));
    NRL_TRY(nrl_tensor_copy(ctx, next, s->anchor));
    return nrl_tensor_copy(ctx, next, master);
}

nrl_status ddp_outer_step(ddp *d, nrl_ctx *ctx)
{
    nrl_status st = NRL_OK;
    for (int32_t i = 0; i < d->n_slots && st == NRL_OK; i++) {
        nrl_scope_begin(ctx);
        st = step_slot(d, ctx, &d->slots[i]);
        nrl_scope_end(ctx);
    }
    return st;
}
