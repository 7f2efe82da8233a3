/*
 * open_adapter.c - the component `adapter`: attaches its settings, new ones or those of an adapter on disk, to the
 * model, and fills in what the plan and checkpoints say of it. The rest of a run only sees parameters, some of which
 * are not trained.
 */
#include "model/packed.h"
#include "model/weights.h"
#include "run/open/session.h"
#include <string.h>

/* A checkpoint names the plugin that reads the settings. */
static nrl_status open_settings(session *se, nrl_node *settings, adapter_set *set)
{
    const char *name = se->adapter->plugin.name;
    node_set(&se->memory, settings, "adapter", node_text(&se->memory, name));
    return adapter_set_open(&se->memory, se->host, settings, set);
}

static bool option_is_core(const char *key)
{
    for (size_t i = 0; i < adapter_n_rows; i++)
        if (!strcmp(adapter_rows[i].name, key)) return true;
    return false;
}

/* Combines the settings of an adapter on disk with those that the config gives beside `use`. The resolved config
 * describes what the run has, also when it is read again from OUT/config.yaml. */
static nrl_status adopt_settings(session *se, const nrl_adapter_model *scope, const nrl_node *saved,
                                 nrl_node **settings)
{
    const config_component *c = &se->config.adapter.component;
    nrl_node *resolved = NULL;
    if (se->adapter->adopt) {
        NRL_TRY(se->adapter->adopt(se->adapter_options, c->options, scope, saved, &se->memory, settings, &resolved));
        for (size_t i = 0; i < nrl_node_size(resolved); i++)
            node_set(&se->memory, c->resolved, nrl_node_key(resolved, i),
                     node_copy(&se->memory, nrl_node_at(resolved, i)));
        return NRL_OK;
    }
    for (size_t i = 0; i < nrl_node_size(c->options); i++)
        if (!option_is_core(nrl_node_key(c->options, i)) && nrl_node_kind(nrl_node_at(c->options, i)) > NRL_NODE_NULL)
            return nrl_fail(NRL_ERR_CONFIG, "%s: %s.%s: the adapter of %s.use has its own; remove the option",
                            nrl_node_place(nrl_node_at(c->options, i)), scope->section, nrl_node_key(c->options, i),
                            scope->section);
    for (uint32_t i = 0; i < se->adapter->plugin.n_options; i++)
        node_set(&se->memory, c->resolved,
                 option_row(se->adapter->plugin.options, i, se->adapter->plugin.option_size)->name,
                 node_new(&se->memory, NRL_NODE_NULL));
    *settings = node_copy(&se->memory, saved);
    return NRL_OK;
}

/* Takes the settings of `start`. Modules whose weights are in its files are trained whole; `given` has the modules of
 * the config. */
static nrl_status adopt(session *se, const weight_files *start, const nrl_node *saved, const nrl_node *given,
                        nrl_node **settings)
{
    const config_adapter *c = &se->config.adapter;
    const model *m = se->model;
    nrl_node *whole = node_new(&se->memory, NRL_NODE_LIST);
    for (int32_t i = 0; i < m->n_own; i++)
        if (!m->params[i]->saved_whole && weights_part(start, m, m->params[i]->parts))
            adapter_add_whole(&se->memory, whole, m->params[i]);
    bool same = nrl_node_size(given) == nrl_node_size(whole);
    model_save_whole(se->model, whole);
    for (size_t i = 0; i < nrl_node_size(given) && same; i++)
        same = !strcmp(nrl_node_string(nrl_node_at(given, i), ""), nrl_node_string(nrl_node_at(whole, i), ""));
    if (nrl_node_size(given) && !same)
        return nrl_fail(NRL_ERR_CONFIG,
                        "%s: %s.modules_to_save: the adapter of %s.use has its own %zu modules; remove the option",
                        nrl_node_place(c->modules_to_save), c->section, c->section, nrl_node_size(whole));
    const nrl_adapter_model scope = adapter_scope(&se->memory, m, c->section);
    NRL_TRY(adopt_settings(se, &scope, saved, settings));
    if (!nrl_node_size(whole)) return NRL_OK;
    node_set(&se->memory, *settings, "modules_to_save", whole);
    node_set(&se->memory, c->component.resolved, "modules_to_save", node_copy(&se->memory, whole));
    return NRL_OK;
}

static nrl_status attach_saved(session *se, const nrl_node *whole)
{
    const config_adapter *c = &se->config.adapter;
    weight_files *start;
    adapter_set saved = {0}, set = {0};
    nrl_node *settings;
    nrl_status given = NRL_OK, st = weights_open(&se->formats, NRL_HOLDS_ADAPTER, c->use, &start);
    if (st == NRL_OK) {
        st = weights_load(start);
        if (st == NRL_OK) st = origin_adapter_set(start, se->host, &se->memory, &saved);
        if (st == NRL_OK && strcmp(saved.table->plugin.name, se->adapter->plugin.name))
            st = nrl_fail(NRL_ERR_CONFIG, "%s: is an adapter of '%s', expected one of '%s'", start->info.path,
                          saved.table->plugin.name, se->adapter->plugin.name);
        if (st == NRL_OK) st = given = adopt(se, start, saved.settings, whole, &settings);
        if (st == NRL_OK) st = open_settings(se, settings, &set);
        if (st == NRL_OK) st = model_adapt(se->model, &set);
        if (st == NRL_OK) st = weights_check_adapters(start, se->model);
        se->origin.adapter_dir = arena_strdup(&se->memory, start->info.path);
        se->origin.adapter_format = start->format;
        weights_close(start);
        adapter_set_close(&saved);
        adapter_set_close(&set);
    }
    /* errors of the options beside `use` name their own place */
    if (st != NRL_OK && given == NRL_OK)
        nrl_add_context("%s: %s.use", nrl_node_place(nrl_node_find(c->component.options, "use")), c->section);
    return st;
}

static nrl_status attach(session *se)
{
    const config_adapter *c = &se->config.adapter;
    adapter_set set = {0};
    nrl_node *settings = NULL, *whole;
    if (!se->adapter) return NRL_OK;
    se->origin.quantized = (quantize_kind)c->base;
    NRL_TRY(model_match_whole(se->model, c->section, c->modules_to_save, &se->memory, &whole));
    if (*c->use) return attach_saved(se, whole);
    model_save_whole(se->model, whole);
    const nrl_adapter_model scope = adapter_scope(&se->memory, se->model, c->section);
    NRL_TRY(se->adapter->choose(se->adapter_options, &scope, &se->memory, &settings));
    if (nrl_node_size(whole)) node_set(&se->memory, settings, "modules_to_save", whole);
    nrl_status st = open_settings(se, settings, &set);
    if (st == NRL_OK) st = model_adapt(se->model, &set);
    adapter_set_close(&set);
    if (st != NRL_OK) nrl_add_context("%s: %s", nrl_node_place(c->component.at), c->section);
    return st;
}

nrl_status open_adapter(session *se)
{
    NRL_TRY(attach(se));
    if (se->origin.quantized) model_pack(se->model, se->origin.quantized, session_compute(se));
    return NRL_OK;
}

/* ---- the weights beside it ---- */

nrl_status adapter_base(session *se, const char **key)
{
    char text[33] = "";
    model_origin base = se->origin;
    base.adapter_dir = NULL;
    if (!se->base_key) {
        nrl_status st = session_is_rank0(se) ? origin_key(&base, text) : NRL_OK;
        NRL_TRY(st);
        NRL_TRY(mesh_broadcast(se->mesh, "hash of the base model", 0, text, sizeof text));
        se->base_key = arena_strdup(&se->memory, text);
    }
    *key = se->base_key;
    return NRL_OK;
}
