/*
 * local.c - sync_every (local SGD: McMahan et al. 2017, Stich 2019): each rank updates on its own
 * batches, and every sync_every updates the master weights become the mean over ranks. Each rank keeps
 * its own moments, unless sync_states averages them too. Between two averages the ranks differ, so the
 * weights are state of each rank; what is evaluated, saved and exported then is the mean, and showing
 * the mean does not change later updates. With outer steps (outer.c) the mean gives the direction of such a step.
 */
#include "ddp.h"
#include <stdio.h>
#include <stdlib.h>

static nrl_status refresh(nrl_ctx *ctx, nrl_param *p)
{
    nrl_tensor *master = nrl_param_tensor(p, NRL_SLOT_MASTER), *work = nrl_param_tensor(p, NRL_SLOT_WEIGHT);
    nrl_param_touch(p);
    return master && work && master != work ? nrl_master_round(ctx, master, work) : NRL_OK;
}

/* Replaces the slot of every trained parameter by its mean over ranks; all exchanges are in flight together. */
static nrl_status average_slot(ddp *d, nrl_ctx *ctx, nrl_slot slot)
{
    nrl_work **work = calloc((size_t)d->n_slots + 1, sizeof *work);
    nrl_status st = work ? NRL_OK : nrl_fail(NRL_ERR_MEMORY, "out of memory for %d calls", d->n_slots);
    for (int32_t i = 0; i < d->n_slots && st == NRL_OK; i++) {
        nrl_comm_call call = {.size = sizeof call,
                              .reduce = NRL_REDUCE_OP_AVERAGE,
                              .receive = nrl_param_tensor(d->slots[i].param, slot),
                              .what = nrl_param_name(d->slots[i].param)};
        if (call.receive) st = nrl_comm_all_reduce(d->comm, ctx, &call, &work[i]);
    }
    for (int32_t i = 0; work && i < d->n_slots; i++) {
        nrl_status waited = nrl_work_wait(&work[i], ctx);
        if (st == NRL_OK) st = waited;
    }
    free(work);
    return st;
}

static nrl_status refresh_all(ddp *d, nrl_ctx *ctx)
{
    for (int32_t i = 0; i < d->n_slots; i++)
        NRL_TRY(refresh(ctx, d->slots[i].param));
    return NRL_OK;
}

nrl_status ddp_local_updated(ddp *d, nrl_ctx *ctx, int64_t step)
{
    if (step > 0 && d->size > 1) {
        d->differs = step % d->o.sync_every != 0;
        if (!d->differs) NRL_TRY(average_slot(d, ctx, NRL_SLOT_MASTER));
        if (!d->differs && ddp_has_outer(d)) NRL_TRY(ddp_outer_step(d, ctx));
        for (uint32_t k = 0; !d->differs && d->o.sync_states && k < d->n_states; k++)
            NRL_TRY(average_slot(d, ctx, (nrl_slot)(NRL_SLOT_STATE0 + k)));
    }
    /* A checkpoint between two meetings contains the last weights in common, unless the run had no outer steps then. */
    if (step == 0 && ddp_has_outer(d) && !(d->differs && d->has_anchor)) {
        nrl_status st = ddp_local_average(d, ctx, true);
        if (st == NRL_OK) st = ddp_outer_begin(d, ctx);
        const nrl_status restored = ddp_local_average(d, ctx, false);
        NRL_TRY(st == NRL_OK ? restored : st);
    }
    return refresh_all(d, ctx);
}

/* ---- the mean, while an evaluation or a save needs it ---- */

static nrl_status keep_own(ddp_slot *s, nrl_ctx *ctx)
{
    nrl_tensor *master = nrl_param_tensor(s->param, NRL_SLOT_MASTER);
    if (!master) return NRL_OK;
    NRL_TRY(nrl_tensor_persistent(ctx, NRL_DTYPE_F32, nrl_tensor_numel(master), false, &s->own));
    return nrl_tensor_copy(ctx, master, s->own);
}

static nrl_status bring_own_back(ddp_slot *s, nrl_ctx *ctx)
{
    nrl_tensor *own = s->own;
    s->own = NULL;
    if (!own) return NRL_OK;
    nrl_status st = nrl_tensor_copy(ctx, own, nrl_param_tensor(s->param, NRL_SLOT_MASTER));
    nrl_tensor_free(ctx, own);
    return st;
}

nrl_status ddp_local_average(ddp *d, nrl_ctx *ctx, bool begin)
{
    if (!d->differs) return NRL_OK;
    for (int32_t i = 0; i < d->n_slots; i++)
        NRL_TRY(begin ? keep_own(&d->slots[i], ctx) : bring_own_back(&d->slots[i], ctx));
    if (begin) NRL_TRY(average_slot(d, ctx, NRL_SLOT_MASTER));
    return refresh_all(d, ctx);
}

/* ---- saved state ---- */

static nrl_status action_tensor(nrl_ctx *ctx, nrl_state_io *v, nrl_param *p, nrl_tensor *t, const char *word,
                                bool *found)
{
    char name[512];
    *found = false;
    if (!t) return NRL_OK;
    snprintf(name, sizeof name, "%s.%s", word, nrl_param_name(p));
    return nrl_state_io_tensor(v, ctx, name, t, found);
}

nrl_status ddp_local_state(ddp *d, nrl_ctx *ctx, nrl_state_io *v)
{
    static const char *const words[] = {"state0", "state1", "state2", "state3"};
    int64_t differs = d->differs;
    bool found = false;
    NRL_TRY(nrl_state_io_i64(v, "differs", &differs, 1));
    d->differs = differs != 0;
    for (int32_t i = 0; i < d->n_slots; i++) {
        nrl_param *p = d->slots[i].param;
        nrl_tensor *own = d->slots[i].own; /* set while MASTER holds the mean */
        NRL_TRY(action_tensor(ctx, v, p, own ? own : nrl_param_tensor(p, NRL_SLOT_MASTER), "master", &found));
        for (uint32_t k = 0; k < d->n_states; k++)
            NRL_TRY(action_tensor(ctx, v, p, nrl_param_tensor(p, (nrl_slot)(NRL_SLOT_STATE0 + k)), words[k], &found));
        NRL_TRY(action_tensor(ctx, v, p, d->slots[i].velocity, "velocity", &found));
        NRL_TRY(action_tensor(ctx, v, p, d->slots[i].anchor, "anchor", &found));
        NRL_TRY(refresh(ctx, p)); /* from what was loaded */
    }
    d->has_anchor = found;
    return NRL_OK;
}
