/*
 * extend.c - parameters that an algorithm adds to a model. config.json describes them, so that checkpoints and exports
 * are opened without the algorithm: "nrl": {"parameters": [{"name": NAME, "dims": [...]}], "head": false}.
 */
#include "model/model.h"
#include "base/json.h"
#include <string.h>

static void remove_param(nrl_param **list, int32_t *n, const nrl_param *p)
{
    int32_t kept = 0;
    for (int32_t i = 0; i < *n; i++)
        if (list[i] != p) list[kept++] = list[i];
    *n = kept;
}

/* Removes a parameter of the output layer unless another unit uses it. Files may have it. */
static nrl_status drop(model *m, const nrl_param *p)
{
    for (int32_t u = 0; p && u < m->n_units - 1; u++)
        for (int32_t i = 0; i < m->units[u].n_uses; i++)
            if (m->units[u].uses[i] == p) return NRL_OK;
    if (!p || !model_param(m, p->name)) return NRL_OK;
    if (m->n_ignored == MODEL_MAX_NAMES)
        return nrl_fail(NRL_ERR_BUG, "more than %d ignored names", (int)MODEL_MAX_NAMES);
    m->ignored[m->n_ignored++] = p->name;
    remove_param(m->units[m->n_units - 1].uses, &m->units[m->n_units - 1].n_uses, p);
    remove_param(m->params, &m->n_params, p);
    m->n_own = m->n_params;
    for (int32_t i = 0; i < m->n_params; i++)
        m->params[i]->index = i;
    return NRL_OK;
}

static nrl_status drop_head(model *m)
{
    m->drops_head = true;
    NRL_TRY(drop(m, m->head.weight));
    return drop(m, m->head.bias);
}

static nrl_param **with_one(model *m, nrl_param **list, int32_t *n, nrl_param *p)
{
    nrl_param **all = arena_alloc(&m->memory, (size_t)(*n + 1) * sizeof *all);
    if (*n) memcpy(all, list, (size_t)*n * sizeof *all);
    all[(*n)++] = p;
    return all;
}

static nrl_status add(model *m, const nrl_param_spec *spec, bool may_be_new)
{
    model_unit *last = &m->units[m->n_units - 1];
    nrl_param *p = model_param(m, spec->name);
    if (p && !p->saved_whole)
        return nrl_fail(NRL_ERR_PLUGIN, "cannot add parameter '%s': the model already has a parameter of this name",
                        spec->name);
    if (p && (p->n_dims != spec->n_dims || memcmp(p->dims, spec->dims, (size_t)p->n_dims * sizeof *p->dims)))
        return nrl_fail(NRL_ERR_DATA, "parameter '%s' has another shape in config.json", spec->name);
    if (p) p->decay = spec->decay; /* config.json does not say it */
    if (p) return NRL_OK;
    p = model_param_new(m, spec);
    p->saved_whole = p->of_algorithm = true;
    p->may_be_new = may_be_new;
    p->index = m->n_params;
    m->params = with_one(m, m->params, &m->n_params, p);
    last->uses = with_one(m, last->uses, &last->n_uses, p);
    m->n_own = m->n_params;
    return NRL_OK;
}

nrl_status model_extend_again(model *m)
{
    const nrl_node *nrl = nrl_node_find(m->config, "nrl"), *list = nrl_node_find(nrl, "parameters");
    for (size_t i = 0; i < nrl_node_size(list); i++) {
        const nrl_node *one = nrl_node_at(list, i), *dims = nrl_node_find(one, "dims");
        nrl_param_spec spec = {.name = nrl_node_string(nrl_node_find(one, "name"), ""),
                               .n_dims = (int32_t)nrl_node_size(dims)};
        bool valid = *spec.name && spec.n_dims > 0 && spec.n_dims <= NRL_MAX_DIMS;
        for (int k = 0; valid && k < spec.n_dims; k++) {
            spec.dims[k] = nrl_node_int(nrl_node_at(dims, (size_t)k), 0);
            valid = spec.dims[k] > 0 && spec.dims[k] < INT32_MAX;
        }
        if (!valid) return nrl_fail(NRL_ERR_DATA, "%s: expected a name and positive dims", nrl_node_place(one));
        NRL_TRY(add(m, &spec, false));
    }
    return nrl_node_bool(nrl_node_find(nrl, "head"), true) ? NRL_OK : drop_head(m);
}

nrl_status model_extend(model *m, const nrl_algorithm_model *out)
{
    arena *a = &m->memory;
    nrl_node *config = node_copy(a, m->config), *nrl = node_new(a, NRL_NODE_MAP), *list = node_new(a, NRL_NODE_LIST);
    nrl_node *replaced = NULL;
    for (int32_t i = 0; i < out->n_params; i++) {
        const nrl_param_spec *spec = nrl_algorithm_param(out, i);
        nrl_node *one = node_new(a, NRL_NODE_MAP), *dims = node_new(a, NRL_NODE_LIST);
        NRL_TRY(add(m, spec, true));
        for (int k = 0; k < spec->n_dims; k++)
            node_append(a, dims, NULL, node_int(a, spec->dims[k]));
        node_append_text(a, one, "name", spec->name);
        node_append(a, one, "dims", dims);
        node_append(a, list, NULL, one);
    }
    node_append(a, nrl, "parameters", list);
    node_append(a, nrl, "head", node_bool(a, !out->drops_head));
    node_set(a, config, "nrl", nrl);
    if (out->config) NRL_TRY(json_parse(a, "the algorithm's config", out->config, strlen(out->config), &replaced));
    for (size_t i = 0; i < nrl_node_size(replaced); i++)
        node_set(a, config, nrl_node_key(replaced, i), node_copy(a, nrl_node_at(replaced, i)));
    m->config = config;
    return out->drops_head ? drop_head(m) : NRL_OK;
}
