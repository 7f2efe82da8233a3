/*
 * gradients.c - rounds bf16 gradients from an f32 buffer of one unit.
 */
#include "run/walk/gradients.h"
#include <stdlib.h>

enum { ALIGN_ELEMENTS = 16 }; /* 64 bytes of f32 */

static int64_t room_of(const nrl_param *p)
{
    return p->trained ? (p->numel + ALIGN_ELEMENTS - 1) / ALIGN_ELEMENTS * ALIGN_ELEMENTS : 0;
}

static int64_t largest_unit(const model *m)
{
    int64_t most = 0;
    for (int32_t u = 0; u < m->n_units; u++) {
        int64_t n = 0;
        for (int32_t i = 0; i < m->units[u].n_uses; i++)
            n += room_of(m->units[u].uses[i]);
        if (n > most) most = n;
    }
    return most;
}

int64_t gradients_bytes(const model *m)
{
    return largest_unit(m) * (int64_t)sizeof(float);
}

nrl_status gradients_open(nrl_ctx *ctx, const model *m, gradients *out)
{
    const int64_t n = largest_unit(m);
    int32_t n_uses = 0;
    *out = (gradients){.m = m, .held = -1};
    if (!n) return NRL_OK;
    NRL_TRY(tensor_persistent(ctx, NRL_DTYPE_F32, 1, &n, false, &out->buffer));
    out->first = mem_alloc((size_t)(m->n_units + 1) * sizeof *out->first);
    for (int32_t u = 0; u < m->n_units; u++) {
        out->first[u] = n_uses;
        n_uses += m->units[u].n_uses;
    }
    out->first[m->n_units] = n_uses;
    out->views = mem_alloc((size_t)n_uses * sizeof(nrl_tensor *));
    out->grad_is_empty = mem_alloc((size_t)m->n_params * sizeof *out->grad_is_empty);
    for (int32_t u = 0; u < m->n_units; u++) {
        const model_unit *unit = &out->m->units[u];
        int64_t at = 0;
        for (int32_t i = 0; i < unit->n_uses; i++) {
            const nrl_param *p = unit->uses[i];
            if (!p->trained) continue;
            NRL_TRY(tensor_flat_view(ctx, out->buffer, at, p->numel, &out->views[out->first[u] + i]));
            at += room_of(p);
        }
    }
    return NRL_OK;
}

void gradients_close(nrl_ctx *ctx, gradients *g)
{
    for (int32_t i = 0; g->views && i < g->first[g->m->n_units]; i++)
        tensor_release(ctx, g->views[i]);
    tensor_release(ctx, g->buffer);
    free(g->views);
    free(g->first);
    free(g->grad_is_empty);
    *g = (gradients){0};
}

void gradients_forget(gradients *g)
{
    g->held = -1;
}

/* Sets the slots directly: nrl_param_bind would mark WEIGHT as changed, and packed copies depend on that mark. */
void gradients_enter(gradients *g, const nrl_action *actions, int64_t i)
{
    const nrl_action *v = &actions[i], *next = i + 1 < v->n_actions ? v + 1 : v;
    /* The forward action of the last unit contains the loss and may already give the head its gradient. */
    bool adds = v->pass >= NRL_PASS_BACKWARD || (next->pass == NRL_PASS_BACKWARD && next->unit == v->unit);
    if (!adds || g->held == v->unit) return;
    g->held = v->unit;
    for (int32_t k = 0; k < v->n_uses; k++) {
        nrl_param *p = v->uses[k];
        if (!p->trained) continue;
        p->slots[NRL_SLOT_GRAD] = g->views[g->first[v->unit] + k];
        g->grad_is_empty[p->index] = p->grad_is_empty;
        p->grad_is_empty = true;
    }
}

nrl_status gradients_leave(gradients *g, nrl_ctx *ctx, const nrl_action *v)
{
    if (v->pass < NRL_PASS_BACKWARD) return NRL_OK;
    NRL_ASSERT(g->held, ==, v->unit);
    for (int32_t k = 0; k < v->n_uses; k++) {
        nrl_param *p = v->uses[k];
        if (!p->trained) continue;
        /* Rounds one gradient into GRAD_SHARD. The unit may not have produced it. */
        nrl_tensor *sum = p->slots[NRL_SLOT_GRAD], *grad = p->slots[NRL_SLOT_GRAD_SHARD];
        bool given = !p->grad_is_empty, first = g->grad_is_empty[p->index];
        p->slots[NRL_SLOT_GRAD] = NULL;
        p->grad_is_empty = first && !given;
        if (given) NRL_TRY(first ? nrl_tensor_copy(ctx, sum, grad) : nrl_tensor_add(ctx, sum, grad));
    }
    g->held = -1;
    return NRL_OK;
}
