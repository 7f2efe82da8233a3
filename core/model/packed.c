/*
 * packed.c - see packed.h.
 */
#include "model/packed.h"
#include <string.h>

static nrl_param *packed_store(model *m, nrl_param *w, quantize_kind kind)
{
    const int64_t one = 1;
    nrl_param *p = arena_alloc(&m->memory, sizeof *p);
    param_packing *packing = arena_alloc(&m->memory, sizeof *packing);
    const char *name = arena_printf(&m->memory, "%s.%s", w->name, quantize_name(kind));
    param_init(p, arena_alloc(&m->memory, sizeof(nrl_part)), name, 1, &one);
    p->trained = false;
    p->packs = w;
    p->index = m->n_params;
    *packing = (param_packing){kind, p};
    w->packing = packing;
    return p;
}

bool model_quantizes(const model *m, const nrl_param *p)
{
    return adapter_fits(m, p) && !p->unquantized;
}

void model_pack(model *m, quantize_kind kind, nrl_dtype compute)
{
    nrl_param **params = arena_alloc(&m->memory, (size_t)(m->n_params + m->n_own) * sizeof *params);
    memcpy(params, m->params, (size_t)m->n_params * sizeof *params);
    m->params = params;
    for (int32_t i = 0; i < m->n_own; i++)
        if (!params[i]->trained && model_quantizes(m, params[i])) {
            nrl_param *store = packed_store(m, params[i], kind);
            params[m->n_params++] = store;
        }
    for (int32_t u = 0; u < m->n_units; u++)
        for (int32_t i = 0; i < m->units[u].n_uses; i++)
            if (m->units[u].uses[i]->packing) m->units[u].uses[i] = m->units[u].uses[i]->packing->store;
    (void)model_settle_packed(m, compute); /* whole */
}

nrl_status model_settle_packed(const model *m, nrl_dtype compute)
{
    const int64_t width = (int64_t)nrl_dtype_size(compute);
    for (int32_t i = m->n_own; i < m->n_params; i++) {
        nrl_param *store = m->params[i], *w = store->packs;
        if (!w) continue;
        const int64_t share = w->dims[1] < w->parts[0].dims[1] ? w->dims[1] : w->numel / w->parts[0].groups;
        if (w->packing->kind != QUANTIZE_INT8 && w->numel < w->whole && share % QUANTIZE_BLOCK)
            return nrl_fail(NRL_ERR_CONFIG,
                            "cannot shard '%s', which is stored in blocks of %d elements: the share of a rank has "
                            "ranges of %lld\n"
                            "hint: use fewer ranks, or base: int8",
                            w->name, QUANTIZE_BLOCK, (long long)share);
        store->numel = store->whole = store->dims[0] = store->parts[0].dims[0] = param_packed_layout(w).bytes / width;
        w->parts[0].layout.owner_stages = store->parts[0].layout.owner_stages;
        w->parts[0].layout.n_holders = store->parts[0].layout.n_holders;
    }
    return NRL_OK;
}
