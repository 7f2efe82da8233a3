/*
 * merge.c - see origin.h.
 */
#include "run/weights/origin.h"
#include <stdlib.h>
#include <string.h>

static nrl_status merge_read_values(merge *m, const nrl_adapter_target *target)
{
    nrl_adapter_builder declared;
    NRL_TRY(adapter_declare(m->set, m->module, target, &declared));
    for (int32_t i = 0; i < declared.n; i++) {
        const nrl_param_spec *spec = &declared.specs[i];
        int64_t numel = 1;
        for (int k = 0; k < spec->n_dims; k++)
            numel *= spec->dims[k];
        float *grown = mem_try_grow(m->values[i], (size_t)numel * sizeof *grown, spec->name);
        if (!grown) return NRL_ERR_MEMORY;
        m->values[i] = grown;
        NRL_TRY(m->matrix(m->user, spec->name, numel, m->values[i]));
    }
    return NRL_OK;
}

nrl_status merge_read(void *user, const nrl_param *p, int64_t begin, int64_t n, float *out)
{
    merge *m = user;
    arena a = {0};
    nrl_status st = m->base(m->base_user, p, begin, n, out);
    const char *module = p->n_dims == 2 ? adapter_module(&a, p) : "";
    const nrl_adapter_target target = adapter_target(p, module);
    if (st == NRL_OK && m->held != p) {
        m->held = NULL;
        m->module = -1;
        for (int32_t i = 0; i < m->set->n && *module; i++)
            if (!strcmp(m->set->modules[i], module)) m->module = i;
        if (m->module >= 0) st = merge_read_values(m, &target);
        if (st == NRL_OK) m->held = p;
    }
    const int64_t k = target.inputs, first = begin / k * k, last = (begin + n + k - 1) / k * k;
    if (st == NRL_OK && m->module >= 0 && m->set->table->merges_rows && last - first != n) {
        float *rows = mem_try((size_t)(last - first) * sizeof *rows, p->name);
        st = rows ? merge_read(m, p, first, last - first, rows) : NRL_ERR_MEMORY;
        if (st == NRL_OK) memcpy(out, rows + (begin - first), (size_t)n * sizeof *out);
        free(rows);
    } else if (st == NRL_OK && m->module >= 0)
        m->set->table->merge(m->set->self, m->module, &target, (const float *const *)m->values, begin, n, out);
    arena_free(&a);
    return st;
}

void merge_free(merge *m)
{
    for (int i = 0; i < NRL_ADAPTER_MAX_PARAMS; i++)
        free(m->values[i]);
    *m = (merge){0};
}
