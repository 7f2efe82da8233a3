/*
 * adapter.c - see adapter.h. Adapters are parameters like any other from here on: strategies, optimizers and
 * checkpoints see a few more parameters, and weights that are not trained.
 */
#include "model/adapter.h"
#include "base/buffer.h"
#include "model/weights.h"
#include <stdlib.h>
#include <string.h>

static const char suffix[] = ".weight";

static size_t module_length(const char *name)
{
    size_t n = strlen(name), k = sizeof suffix - 1;
    return n > k && !strcmp(name + n - k, suffix) ? n - k : 0;
}

bool adapter_fits(const model *m, const nrl_param *p)
{
    if (p->n_dims != 2 || p->n_parts != 1 || p->saved_whole || p->unadapted || p == m->head.weight ||
        !module_length(p->name))
        return false;
    for (int32_t i = 0; i < m->units[0].n_uses; i++)
        if (m->units[0].uses[i] == p) return false;
    return p->index < m->n_own;
}

const char *adapter_module(arena *a, const nrl_param *p)
{
    return arena_strndup(a, p->name, module_length(p->name));
}

nrl_adapter_target adapter_target(const nrl_param *p, const char *module)
{
    const nrl_part *part = &p->parts[0];
    return (nrl_adapter_target){.size = sizeof(nrl_adapter_target),
                                .tp = p->tp == NRL_TP_KEY_VALUE ? NRL_TP_COLUMN
                                      : p->tp == NRL_TP_WHOLE   ? NRL_TP_NONE
                                                                : p->tp,
                                .module = module,
                                .outputs = part->dims[0],
                                .inputs = part->dims[1],
                                .groups = part->groups};
}

nrl_adapter_model adapter_scope(arena *a, const model *m, const char *section)
{
    nrl_adapter_target *targets = arena_alloc(a, (size_t)(m->n_own + 1) * sizeof *targets);
    const char **others = arena_alloc(a, (size_t)(m->n_own + 1) * sizeof *others);
    nrl_adapter_model scope = {
        .size = sizeof scope, .target_size = sizeof *targets, .section = section, .targets = targets, .others = others};
    for (int32_t i = 0; i < m->n_own; i++) {
        const nrl_param *p = m->params[i];
        if (adapter_fits(m, p))
            targets[scope.n_targets++] = adapter_target(p, adapter_module(a, p));
        else if (p->n_dims == 2 && module_length(p->name))
            others[scope.n_others++] = adapter_module(a, p);
    }
    return scope;
}

/* ---- settings ---- */

static nrl_status adapter_set_make(arena *a, const nrl_adapter *table, const nrl_node *settings, adapter_set *out)
{
    const nrl_node *list = nrl_node_find(settings, "modules");
    size_t n = nrl_node_kind(list) == NRL_NODE_LIST ? nrl_node_size(list) : 0;
    *out = (adapter_set){.settings = settings,
                         .modules = arena_alloc(a, (n + 1) * sizeof *out->modules),
                         .whole = nrl_node_find(settings, "modules_to_save"),
                         .table = table};
    for (size_t i = 0; i < n && i < INT32_MAX; i++) {
        const char *module = nrl_node_string(nrl_node_find(nrl_node_at(list, i), "module"), "");
        if (!*module) return nrl_fail(NRL_ERR_CORRUPT, "adapter %zu: no module", i);
        out->modules[out->n++] = module;
    }
    return table->create(settings, &out->self);
}

nrl_status adapter_set_open(arena *a, plugin_host *host, const nrl_node *settings, adapter_set *out)
{
    const plugin *p;
    const char *name = nrl_node_string(nrl_node_find(settings, "adapter"), NULL);
    *out = (adapter_set){0};
    if (!name) return nrl_fail(NRL_ERR_CORRUPT, "settings of adapters do not name their plugin");
    NRL_TRY(plugin_open(host, NRL_KIND_ADAPTER, name, &p));
    return adapter_set_make(a, (const nrl_adapter *)p->table, settings, out);
}

void adapter_set_close(adapter_set *s)
{
    if (s->self) s->table->destroy(s->self);
    *s = (adapter_set){0};
}

bool adapter_set_is_random(const adapter_set *s)
{
    return s && s->table->random && s->table->random(s->self);
}

bool adapter_set_starts_as_base(const adapter_set *s)
{
    return !s || s->table->starts_as_base;
}

/* ---- parameters of a module ---- */

nrl_status nrl_adapter_build_param(nrl_adapter_builder *b, const nrl_param_spec *spec)
{
    if (b->n == NRL_ADAPTER_MAX_PARAMS)
        return nrl_fail(NRL_ERR_PLUGIN, "cannot add parameter '%s': an adapter has at most %d a module", spec->name,
                        NRL_ADAPTER_MAX_PARAMS);
    nrl_param_spec *s = &b->specs[b->n++];
    *s = (nrl_param_spec){0};
    memcpy(s, spec, spec->size < sizeof *s ? spec->size : sizeof *s);
    bool valid = s->n_dims > 0 && s->n_dims <= NRL_MAX_DIMS;
    for (int i = 0; valid && i < s->n_dims; i++)
        valid = s->dims[i] > 0;
    return valid ? NRL_OK : nrl_fail(NRL_ERR_PLUGIN, "an adapter's parameter '%s' has no valid shape", s->name);
}

nrl_status adapter_declare(const adapter_set *set, int32_t module, const nrl_adapter_target *target,
                           nrl_adapter_builder *out)
{
    out->n = 0;
    return set->table->declare(set->self, module, target, out);
}

/* ---- modules that are trained whole ---- */

/* Whether a module that the parameter belongs to has a name that ends in `word`. */
static bool is_inside(const char *param, const char *word)
{
    size_t n = strlen(word);
    for (const char *dot = strchr(param, '.'); dot && n; dot = strchr(dot + 1, '.'))
        if ((size_t)(dot - param) >= n && !strncmp(dot - n, word, n)) return true;
    return false;
}

void adapter_add_whole(arena *a, nrl_node *modules, const nrl_param *p)
{
    const char *dot = strrchr(p->name, '.');
    const size_t n = dot ? (size_t)(dot - p->name) : strlen(p->name);
    for (size_t i = 0; i < nrl_node_size(modules); i++) {
        const char *known = nrl_node_string(nrl_node_at(modules, i), "");
        if (strlen(known) == n && !strncmp(known, p->name, n)) return;
    }
    node_append(a, modules, NULL, node_string(a, p->name, n));
}

static bool is_selected(const model *m, const nrl_param *p, const nrl_node *words, size_t i)
{
    const char *word = nrl_node_string(nrl_node_at(words, i), "");
    return is_inside(p->name, word) || (p == m->head.weight && is_inside(weights_tied_name(m), word));
}

nrl_status model_match_whole(const model *m, const char *section, const nrl_node *words, arena *a, nrl_node **modules)
{
    if (nrl_node_kind(words) > NRL_NODE_NULL && nrl_node_kind(words) != NRL_NODE_LIST)
        return nrl_fail(NRL_ERR_CONFIG, "%s: %s.modules_to_save: expected a list of names", nrl_node_place(words),
                        section);
    *modules = node_new(a, NRL_NODE_LIST);
    for (size_t i = 0; i < nrl_node_size(words); i++) {
        int32_t k = 0;
        while (k < m->n_own && !is_selected(m, m->params[k], words, i))
            k++;
        if (k == m->n_own)
            return nrl_fail(NRL_ERR_CONFIG,
                            "%s: %s.modules_to_save: no module has a name that ends in '%s'; expected one such as %s",
                            nrl_node_place(nrl_node_at(words, i)), section, nrl_node_string(nrl_node_at(words, i), ""),
                            adapter_module(a, m->params[m->n_own / 2]));
    }
    for (int32_t k = 0; k < m->n_own; k++)
        for (size_t i = 0; i < nrl_node_size(words); i++)
            if (!m->params[k]->saved_whole && is_selected(m, m->params[k], words, i))
                adapter_add_whole(a, *modules, m->params[k]);
    return NRL_OK;
}

void model_save_whole(model *m, const nrl_node *modules)
{
    for (int32_t k = 0; k < m->n_own; k++)
        for (size_t i = 0; i < nrl_node_size(modules); i++)
            if (is_selected(m, m->params[k], modules, i)) m->params[k]->saved_whole = true;
}

/* ---- attaching ---- */

static nrl_status find_weight(const model *m, const char *module, nrl_param **out)
{
    size_t n = strlen(module);
    for (int32_t i = 0; i < m->n_own; i++) {
        nrl_param *p = m->params[i];
        if (!adapter_fits(m, p) || module_length(p->name) != n || strncmp(p->name, module, n)) continue;
        *out = p;
        return p->adapter ? nrl_fail(NRL_ERR_CONFIG, "module '%s' has two adapters", module) : NRL_OK;
    }
    buffer b = {0};
    for (int32_t i = 0; i < m->n_own; i++)
        if (adapter_fits(m, m->params[i]))
            buffer_print(&b, "\n  %.*s", (int)module_length(m->params[i]->name), m->params[i]->name);
    nrl_fail(NRL_ERR_CONFIG,
             "cannot attach an adapter to '%s': the model has no such linear module; expected one of:%s", module,
             b.text ? b.text : " none");
    buffer_free(&b);
    return NRL_ERR_CONFIG;
}

static nrl_status adapter_attach(model *m, int32_t module)
{
    const adapter_set *set = m->adapters;
    nrl_adapter_builder declared;
    nrl_param *w;
    NRL_TRY(find_weight(m, set->modules[module], &w));
    nrl_adapter_site *site = arena_alloc(&m->memory, sizeof *site);
    *site = (nrl_adapter_site){.table = set->table, .self = set->self, .module = module, .weight = w};
    const nrl_adapter_target target = adapter_target(w, set->modules[module]);
    NRL_TRY(adapter_declare(set, module, &target, &declared));
    for (; site->n < declared.n; site->n++) {
        const nrl_param_spec *spec = &declared.specs[site->n];
        nrl_param *p = site->params[site->n] = model_param_new(m, spec);
        p->tp =
            target.tp != w->tp && spec->tp == target.tp ? w->tp : spec->tp; /* adapters know COLUMN and NONE alone */
        p->of_adapter = true;
        p->adapts = w;
        p->expert = w->expert;
        if (spec->groups) p->parts[0].groups = spec->groups;
        p->index = m->n_params;
        m->params[m->n_params++] = p;
    }
    w->adapter = site;
    return NRL_OK;
}

/* Appends the parameters of adapters to the uses of a unit, in the order of the weights. */
static void add_uses(model *m, model_unit *u)
{
    nrl_param **uses = arena_alloc(&m->memory, (size_t)u->n_uses * (1 + NRL_ADAPTER_MAX_PARAMS) * sizeof *uses);
    int32_t n = u->n_uses;
    if (n) memcpy(uses, u->uses, (size_t)n * sizeof *uses);
    for (int32_t i = 0; i < u->n_uses; i++) {
        const nrl_adapter_site *site = uses[i]->adapter;
        for (int32_t k = 0; site && k < site->n; k++)
            uses[n++] = site->params[k];
    }
    u->uses = uses;
    u->n_uses = n;
}

nrl_status model_adapt(model *m, const adapter_set *set)
{
    NRL_ASSERT(m->n_params, ==, m->n_own);
    adapter_set *own = arena_alloc(&m->memory, sizeof *own);
    NRL_TRY(adapter_set_make(&m->memory, set->table, node_copy(&m->memory, set->settings), own));
    m->adapters = own; /* destroyed with the model */
    model_save_whole(m, own->whole);
    nrl_param **params =
        arena_alloc(&m->memory, ((size_t)m->n_own + NRL_ADAPTER_MAX_PARAMS * (size_t)set->n) * sizeof *params);
    if (m->n_own) memcpy(params, m->params, (size_t)m->n_own * sizeof *params);
    m->params = params;
    for (int32_t i = 0; i < set->n; i++)
        NRL_TRY(adapter_attach(m, i));
    for (int32_t u = 0; u < m->n_units; u++)
        add_uses(m, &m->units[u]);
    for (int32_t i = 0; i < m->n_own; i++)
        m->params[i]->trained = m->params[i]->saved_whole;
    return NRL_OK;
}
