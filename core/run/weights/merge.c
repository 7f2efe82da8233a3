/*
 * merge.c - see merge.h.
 */
#include "run/weights/merge.h"
#include <stdlib.h>
#include <string.h>

static nrl_status merge_read_values(merge *m, const nrl_adapter_target *target)
{
    nrl_param_spec specs[NRL_ADAPTER_MAX_PARAMS] = {{0}};
    int32_t n = 0;
    for (int i = 0; i < NRL_ADAPTER_MAX_PARAMS; i++)
        specs[i].size = sizeof *specs;
    NRL_TRY(m->set->table->declare(m->set->self, m->module, target, specs, &n));
    for (int32_t i = 0; i < n; i++) {
        int64_t numel = 1;
        for (int k = 0; k < specs[i].n_dims; k++)
            numel *= specs[i].dims[k];
        m->values[i] = mem_realloc(m->values[i], (size_t)numel * sizeof **m->values);
        NRL_TRY(m->matrix(m->user, specs[i].name, numel, m->values[i]));
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
    if (st == NRL_OK && m->module >= 0)
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
