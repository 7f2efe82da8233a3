/*
 * merge.c - see merge.h.
 */
#include "run/merge.h"
#include <stdlib.h>
#include <string.h>

static const adapter_entry *entry_of(const merge *m, const char *module)
{
    for (int32_t i = 0; i < m->set->n; i++)
        if (!strcmp(m->set->entries[i].module, module)) return &m->set->entries[i];
    return NULL;
}

static nrl_status read_matrix(merge *m, arena *a, char which, int64_t n, float **out)
{
    *out = mem_realloc(*out, (size_t)n * sizeof **out);
    return m->matrix(m->user, adapter_name(a, m->entry->module, which), n, *out);
}

/* Matrices of p's adapter, if it has one. */
static nrl_status hold(merge *m, const nrl_param *p)
{
    arena a = {0};
    nrl_status st = NRL_OK;
    m->held = NULL;
    m->entry = p->n_dims == 2 ? entry_of(m, adapter_module(&a, p)) : NULL;
    if (m->entry) st = read_matrix(m, &a, 'A', m->entry->rank * p->parts[0].dims[1], &m->a);
    if (m->entry && st == NRL_OK) st = read_matrix(m, &a, 'B', m->entry->rank * p->parts[0].dims[0], &m->b);
    if (st == NRL_OK) m->held = p;
    arena_free(&a);
    return st;
}

nrl_status merge_read(void *user, const nrl_param *p, int64_t begin, int64_t n, float *out)
{
    merge *m = user;
    NRL_TRY(m->base(m->base_user, p, begin, n, out));
    if (m->held != p) NRL_TRY(hold(m, p));
    if (!m->entry) return NRL_OK;
    adapter_add_product(m->a, m->b, m->entry->rank, p->parts[0].dims[1], adapter_scale(m->set, m->entry), begin, n, out);
    return NRL_OK;
}

void merge_free(merge *m)
{
    free(m->a);
    free(m->b);
    *m = (merge){0};
}
