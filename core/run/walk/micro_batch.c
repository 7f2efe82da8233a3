/*
 * micro_batch.c - slots of micro-batches in flight.
 */
#include "run/walk/micro_batch.h"
#include "base/arena.h"
#include <stdlib.h>

void carry_release(nrl_ctx *ctx, nrl_carry *c)
{
    for (int32_t i = 0; i < c->n; i++)
        tensor_release(ctx, c->tensors[i]);
    *c = (nrl_carry){0};
}

nrl_carry carry_retain(const nrl_carry *c)
{
    for (int32_t i = 0; i < c->n; i++)
        tensor_retain(c->tensors[i]);
    return *c;
}

work_micro_batch *micro_batch_at(work_micro_batches *all, int32_t number, nrl_batch *batch, bool *begins)
{
    work_micro_batch *m = NULL;
    *begins = false;
    for (int32_t i = 0; i < all->n; i++)
        if (all->list[i].batch && all->list[i].number == number) return &all->list[i];
    *begins = true;
    for (int32_t i = 0; i < all->n && !m; i++)
        if (!all->list[i].batch) m = &all->list[i];
    if (!m) {
        size_t units = (size_t)all->n_units;
        all->list = mem_realloc(all->list, (size_t)(all->n + 1) * sizeof *all->list);
        m = &all->list[all->n++];
        *m = (work_micro_batch){.inputs = mem_alloc(units * sizeof *m->inputs),
                                .tapes = mem_alloc(2 * units * sizeof *m->tapes),
                                .away = mem_alloc(units * sizeof *m->away)};
        for (int32_t u = 0; u < 2 * all->n_units; u++)
            m->tapes[u] = tape_create();
    }
    m->number = number;
    m->batch = batch;
    return m;
}

void micro_batch_end(const work_micro_batches *all, work_micro_batch *m, nrl_ctx *ctx)
{
    for (int32_t u = 0; u < all->n_units; u++) {
        tape_saved_drop(ctx, &m->away[u]);
        carry_release(ctx, &m->inputs[u]);
    }
    carry_release(ctx, &m->carry);
    carry_release(ctx, &m->grads);
    tensor_release(ctx, m->extra);
    m->extra = NULL;
    for (int k = 0; k < NRL_MAX_TERMS; k++) {
        tensor_release(ctx, m->sums[k]);
        m->sums[k] = NULL;
    }
    m->batch = NULL;
}

void micro_batches_close(work_micro_batches *all, nrl_ctx *ctx)
{
    for (int32_t i = 0; i < all->n; i++) {
        work_micro_batch *m = &all->list[i];
        micro_batch_end(all, m, ctx);
        for (int32_t u = 0; u < 2 * all->n_units; u++)
            tape_destroy(ctx, m->tapes[u]);
        free(m->inputs);
        free(m->tapes);
        free(m->away);
    }
    free(all->list);
    *all = (work_micro_batches){.n_units = all->n_units};
}
