/*
 * local.c - sync_every (local SGD: McMahan et al. 2017, Stich 2019): each rank updates on its own batches,
 * and every so many updates the master weights become the mean over ranks. Moments stay each rank's own,
 * unless sync_states averages them too. In between ranks differ, so all of it is this rank's state.
 */
#include "ddp.h"
#include <stdio.h>
#include <stdlib.h>

static nrl_status refresh(nrl_ctx *ctx, nrl_param *p)
{
    nrl_tensor *master = nrl_param_tensor(p, NRL_SLOT_MASTER), *work = nrl_param_tensor(p, NRL_SLOT_WORK);
    nrl_param_touch(p);
    return master && work && master != work ? nrl_master_round(ctx, master, work) : NRL_OK;
}

/* The slot of every trained parameter becomes its mean over ranks; all are on their way at once. */
static nrl_status average(ddp *d, nrl_ctx *ctx, nrl_slot slot)
{
    nrl_work **work = calloc((size_t)d->n_slots + 1, sizeof *work);
    nrl_status st = work ? NRL_OK : nrl_fail(NRL_ERR_MEMORY, "out of memory for %d calls", d->n_slots);
    for (int32_t i = 0; i < d->n_slots && st == NRL_OK; i++) {
        nrl_comm_call call = {.size = sizeof call,
                              .reduce = NRL_SUM_AVERAGE,
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

nrl_status ddp_local_updated(ddp *d, nrl_ctx *ctx, int64_t step)
{
    if (step % d->o.sync_every == 0 && step > 0 && d->size > 1) {
        NRL_TRY(average(d, ctx, NRL_SLOT_MASTER));
        for (uint32_t k = 0; d->o.sync_states && k < d->n_states; k++)
            NRL_TRY(average(d, ctx, (nrl_slot)(NRL_SLOT_STATE0 + k)));
    }
    for (int32_t i = 0; i < d->n_slots; i++) NRL_TRY(refresh(ctx, d->slots[i].param));
    return NRL_OK;
}

static nrl_status visit_slot(nrl_ctx *ctx, nrl_visitor *v, nrl_param *p, nrl_slot slot, const char *word)
{
    char name[512];
    bool found;
    nrl_tensor *t = nrl_param_tensor(p, slot);
    if (!t) return NRL_OK;
    snprintf(name, sizeof name, "%s.%s", word, nrl_param_name(p));
    return nrl_visit_tensor(v, ctx, name, t, &found);
}

nrl_status ddp_local_state(ddp *d, nrl_ctx *ctx, nrl_visitor *v)
{
    static const char *const words[] = {"state0", "state1", "state2", "state3"};
    for (int32_t i = 0; i < d->n_slots; i++) {
        nrl_param *p = d->slots[i].param;
        NRL_TRY(visit_slot(ctx, v, p, NRL_SLOT_MASTER, "master"));
        for (uint32_t k = 0; k < d->n_states; k++)
            NRL_TRY(visit_slot(ctx, v, p, (nrl_slot)(NRL_SLOT_STATE0 + k), words[k]));
        NRL_TRY(refresh(ctx, p)); /* of what was loaded */
    }
    return NRL_OK;
}
