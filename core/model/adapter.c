/*
 * adapter.c - see adapter.h. Adapters are parameters like any other from here on: strategies, optimizers and
 * checkpoints see two small matrices more, and weights that are not trained.
 */
#include "model/adapter.h"
#include "base/buffer.h"
#include "model/model.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char suffix[] = ".weight";

double adapter_scale(const adapter_set *s, const adapter_entry *e)
{
    return e->alpha / (s->rslora ? sqrt((double)e->rank) : (double)e->rank);
}

static size_t module_length(const char *name)
{
    size_t n = strlen(name), k = sizeof suffix - 1;
    return n > k && !strcmp(name + n - k, suffix) ? n - k : 0;
}

bool adapter_fits(const model *m, const nrl_param *p)
{
    if (p->n_dims != 2 || p->n_parts != 1 || p == m->head.weight || !module_length(p->name)) return false;
    for (int32_t i = 0; i < m->units[0].n_uses; i++)
        if (m->units[0].uses[i] == p) return false;
    return p->index < m->n_own;
}

const char *adapter_module(arena *a, const nrl_param *p)
{
    return arena_strndup(a, p->name, module_length(p->name));
}

const char *adapter_name(arena *a, const char *module, char which)
{
    return arena_printf(a, "base_model.model.%s.lora_%c.weight", module, which);
}

/* ---- attaching ---- */

static nrl_status unknown(const model *m, const char *module)
{
    buffer b = {0};
    for (int32_t i = 0; i < m->n_own; i++)
        if (adapter_fits(m, m->params[i]))
            buffer_print(&b, "\n  %.*s", (int)module_length(m->params[i]->name), m->params[i]->name);
    nrl_status st = nrl_fail(NRL_ERR_CONFIG, "an adapter for '%s': the model has no such linear module; it has:%s",
                             module, b.text ? b.text : " none");
    buffer_free(&b);
    return st;
}

static nrl_status find_weight(const model *m, const char *module, nrl_param **out)
{
    size_t n = strlen(module);
    for (int32_t i = 0; i < m->n_own; i++) {
        nrl_param *p = m->params[i];
        if (!adapter_fits(m, p) || module_length(p->name) != n || strncmp(p->name, module, n)) continue;
        *out = p;
        return p->adapter ? nrl_fail(NRL_ERR_CONFIG, "module '%s' has two adapters", module) : NRL_OK;
    }
    return unknown(m, module);
}

static nrl_param *new_matrix(model *m, const char *name, int64_t rows, int64_t cols)
{
    const int64_t dims[] = {rows, cols};
    nrl_param *p = arena_alloc(&m->memory, sizeof *p);
    param_init(p, arena_alloc(&m->memory, sizeof(nrl_part)), name, 2, dims);
    p->decay = true;
    p->index = m->n_params;
    m->params[m->n_params++] = p;
    return p;
}

/* As the weight is cut: columns have rows of B, and each a part of A's gradient; rows have columns of A, whose
 * product is a part of what B sees. */
static void cut_like(const nrl_param *w, nrl_param *a, nrl_param *b)
{
    if (w->tp == NRL_TP_COLUMN) {
        a->tp = NRL_TP_PARTIAL;
        b->tp = NRL_TP_COLUMN;
        b->parts[0].groups = w->parts[0].groups;
    } else if (w->tp == NRL_TP_ROW) {
        a->tp = NRL_TP_ROW;
        b->tp = NRL_TP_PARTIAL;
    }
}

static nrl_status attach(model *m, const adapter_set *set, const adapter_entry *e)
{
    nrl_param *w;
    adapter *l = arena_alloc(&m->memory, sizeof *l);
    NRL_TRY(find_weight(m, e->module, &w));
    if (e->rank < 1 || e->rank > w->dims[0] + w->dims[1])
        return nrl_fail(NRL_ERR_CONFIG, "an adapter of rank %lld for '%s' [%lld, %lld], expected 1 to %lld", (long long)e->rank,
                        e->module, (long long)w->dims[0], (long long)w->dims[1], (long long)(w->dims[0] + w->dims[1]));
    l->a = new_matrix(m, adapter_name(&m->memory, e->module, 'A'), e->rank, w->dims[1]);
    l->a->init = NRL_INIT_UNIFORM;
    l->a->init_scale = 1 / sqrt((double)w->dims[1]);
    l->b = new_matrix(m, adapter_name(&m->memory, e->module, 'B'), w->dims[0], e->rank);
    l->b->init = NRL_INIT_ZEROS;
    cut_like(w, l->a, l->b);
    l->scale = adapter_scale(set, e);
    l->dropout = set->dropout;
    w->adapter = l;
    return NRL_OK;
}

/* Behind what the unit used already, in its order. */
static void add_uses(model *m, model_unit *u)
{
    nrl_param **uses = arena_alloc(&m->memory, (size_t)u->n_uses * 3 * sizeof *uses);
    int32_t n = u->n_uses;
    if (n) memcpy(uses, u->uses, (size_t)n * sizeof *uses);
    for (int32_t i = 0; i < u->n_uses; i++) {
        const adapter *l = uses[i]->adapter;
        if (!l) continue;
        uses[n++] = l->a;
        uses[n++] = l->b;
    }
    u->uses = uses;
    u->n_uses = n;
}

static const adapter_set *copy_set(arena *a, const adapter_set *set)
{
    adapter_set *s = arena_alloc(a, sizeof *s);
    *s = *set;
    s->entries = arena_alloc(a, (size_t)(set->n + 1) * sizeof *s->entries);
    for (int32_t i = 0; i < set->n; i++) {
        s->entries[i] = set->entries[i];
        s->entries[i].module = arena_strdup(a, set->entries[i].module);
    }
    return s;
}

nrl_status model_adapt(model *m, const adapter_set *set)
{
    NRL_ASSERT(m->n_params, ==, m->n_own);
    nrl_param **params = arena_alloc(&m->memory, ((size_t)m->n_own + 2 * (size_t)set->n) * sizeof *params);
    if (m->n_own) memcpy(params, m->params, (size_t)m->n_own * sizeof *params);
    m->params = params;
    for (int32_t i = 0; i < set->n; i++) NRL_TRY(attach(m, set, &set->entries[i]));
    for (int32_t u = 0; u < m->n_units; u++) add_uses(m, &m->units[u]);
    for (int32_t i = 0; i < m->n_own; i++) m->params[i]->trained = false;
    m->adapters = copy_set(&m->memory, set);
    return NRL_OK;
}

/* ---- merging ---- */

/* Row m of B A is sum_j B[m,j] A[j,:]: rows of A are added, which compilers vectorise. */
void adapter_add_product(const float *a, const float *b, int64_t rank, int64_t k, double scale, int64_t begin,
                         int64_t n, float *out)
{
    for (int64_t done = 0; done < n;) {
        int64_t row = (begin + done) / k, column = (begin + done) % k;
        int64_t part = k - column < n - done ? k - column : n - done;
        for (int64_t j = 0; j < rank; j++) {
            const float factor = (float)(scale * (double)b[row * rank + j]), *from = a + j * k + column;
            for (int64_t i = 0; i < part; i++) out[done + i] += factor * from[i];
        }
        done += part;
    }
}

/* ---- as a tree ---- */

nrl_node *adapter_set_node(arena *a, const adapter_set *s)
{
    nrl_node *map = node_new(a, NRL_NODE_MAP), *list = node_new(a, NRL_NODE_LIST);
    node_append(a, map, "rslora", node_bool(a, s->rslora));
    node_append(a, map, "dropout", node_f64(a, s->dropout));
    for (int32_t i = 0; i < s->n; i++) {
        const adapter_entry *e = &s->entries[i];
        nrl_node *one = node_new(a, NRL_NODE_MAP);
        node_append(a, one, "module", node_string(a, e->module, strlen(e->module)));
        node_append(a, one, "rank", node_int(a, e->rank));
        node_append(a, one, "alpha", node_f64(a, e->alpha));
        node_append(a, list, NULL, one);
    }
    node_append(a, map, "modules", list);
    return map;
}

nrl_status adapter_set_read(arena *a, const nrl_node *node, adapter_set *out)
{
    const nrl_node *list = nrl_node_find(node, "modules");
    size_t n = nrl_node_kind(list) == NRL_NODE_LIST ? nrl_node_size(list) : 0;
    *out = (adapter_set){.rslora = nrl_node_bool(nrl_node_find(node, "rslora"), false),
                         .dropout = nrl_node_f64(nrl_node_find(node, "dropout"), 0),
                         .entries = arena_alloc(a, (n + 1) * sizeof *out->entries)};
    for (size_t i = 0; i < n && i < INT32_MAX; i++) {
        const nrl_node *at = nrl_node_at(list, i);
        adapter_entry e = {.module = nrl_node_string(nrl_node_find(at, "module"), ""),
                           .rank = nrl_node_int(nrl_node_find(at, "rank"), 0),
                           .alpha = nrl_node_f64(nrl_node_find(at, "alpha"), NAN)};
        if (!*e.module || e.rank < 1 || !isfinite(e.alpha))
            return nrl_fail(NRL_ERR_CORRUPT, "adapter %zu: no module, rank and alpha", i);
        out->entries[out->n++] = e;
    }
    return NRL_OK;
}
