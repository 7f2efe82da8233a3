/*
 * micro.c - slots of micro-batches in flight.
 */
#include "run/micro.h"
#include "base/arena.h"
#include <stdlib.h>

void carry_release(nrl_ctx *ctx, nrl_carry *c)
{
    for (int32_t i = 0; i < c->n; i++) tensor_release(ctx, c->tensors[i]);
    *c = (nrl_carry){0};
}

nrl_carry carry_retain(const nrl_carry *c)
{
    for (int32_t i = 0; i < c->n; i++) tensor_retain(c->tensors[i]);
    return *c;
}

static work_micro *find(work_micros *all, int32_t number)
{
    for (int32_t i = 0; i < all->n; i++)
        if (all->list[i].batch && all->list[i].number == number) return &all->list[i];
    return NULL;
}

static work_micro *add(work_micros *all)
{
    size_t units = (size_t)all->n_units;
    all->list = mem_realloc(all->list, (size_t)(all->n + 1) * sizeof *all->list);
    work_micro *m = &all->list[all->n++];
    *m = (work_micro){.inputs = mem_alloc(units * sizeof *m->inputs), .tapes = mem_alloc(units * sizeof *m->tapes)};
    for (int32_t u = all->first; u < all->end; u++) m->tapes[u] = tape_create();
    return m;
}

work_micro *micro_at(work_micros *all, int32_t number, nrl_batch *batch, bool *begins)
{
    work_micro *m = find(all, number);
    *begins = !m;
    if (m) return m;
    for (int32_t i = 0; i < all->n && !m; i++)
        if (!all->list[i].batch) m = &all->list[i];
    if (!m) m = add(all);
    m->number = number;
    m->batch = batch;
    return m;
}

void micro_end(const work_micros *all, work_micro *m, nrl_ctx *ctx)
{
    for (int32_t u = all->first; u < all->end; u++) carry_release(ctx, &m->inputs[u]);
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

void micros_close(work_micros *all, nrl_ctx *ctx)
{
    for (int32_t i = 0; i < all->n; i++) {
        work_micro *m = &all->list[i];
        micro_end(all, m, ctx);
        for (int32_t u = all->first; u < all->end; u++) tape_destroy(ctx, m->tapes[u]);
        free(m->inputs);
        free(m->tapes);
    }
    free(all->list);
    *all = (work_micros){0};
}
