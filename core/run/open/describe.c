/*
 * describe.c - what a checkpoint records of the run that wrote it. A run that resumes compares it with itself
 * (run/state/fingerprint.c), and programs find what the weights need there, such as the tokenizer.
 */
#include "run/open/session.h"
#include "base/paths.h"
#include "config/config.h"
#include <string.h>

/* Lists the content hash of each part of data.train, or with `plugins` the plugin that reads it. Everything else
 * follows from the rows and from options, which are compared too. */
static nrl_node *data_node(arena *a, const dataset *d, bool plugins)
{
    nrl_node *list = node_new(a, NRL_NODE_LIST);
    for (int64_t i = 0; i < dataset_info(d)->n_parts; i++) {
        const dataset_part part = dataset_part_at(d, i);
        const char *text = plugins ? part.reader_name : part.hash;
        node_append(a, list, NULL, node_text(a, text));
    }
    return list;
}

/* The hashes of what options only name, such as files, and the number of steps. */
static nrl_node *fingerprints_node(arena *a, const session *se)
{
    nrl_node *map = node_new(a, NRL_NODE_MAP);
    node_append(a, map, "data", data_node(a, se->train.set, false));
    node_append(a, map, "data plugins", data_node(a, se->train.set, true));
    node_append_text(a, map, "template", se->chat ? se->chat->hash : NULL);
    node_append_text(a, map, "template plugin", se->chat ? se->chat->plugin : NULL);
    node_append_text(a, map, "reference", se->reference_key);
    node_append_text(a, map, "tokenizer", se->tokenizer ? se->tokenizer->info.hash : NULL);
    node_append_text(a, map, "tokenizer plugin", se->tokenizer ? se->tokenizer->plugin : NULL);
    node_append_text(a, map, "script", se->env.script_hash);
    if (nrl_node_size(se->algorithm_files)) node_append(a, map, "algorithm", node_copy(a, se->algorithm_files));
    node_append_int(a, map, "total_steps", se->total_steps);
    if (se->shards.fixed) /* the bits of the result depend on these too */
        node_append_text(a, map, "reproducible",
                         arena_printf(a, "%d shards, %d threads", se->shards.n * mesh_n_batches(se->mesh),
                                      (int)se->device.info.n_threads));
    if (!se->model->adapters) return map;
    node_append_text(a, map, "base", se->base_key);
    node_append(a, map, se->model->adapters->table->plugin.name,
                node_without(a, se->model->adapters->settings, "adapter"));
    return map;
}

/* ---- plugins ---- */

static void list_readers(const dataset *d, const nrl_plugin **list, size_t *n)
{
    for (int64_t i = 0; d && i < dataset_info(d)->n_parts; i++)
        list[(*n)++] = dataset_part_at(d, i).reader;
}

size_t session_plugins(const session *se, arena *a, const nrl_plugin ***list)
{
    const model *m = se->model;
    const void *const tables[] = {se->algorithm_is_script ? NULL : se->algorithm,
                                  se->optimizer,
                                  se->schedule,
                                  se->backend,
                                  se->collective,
                                  se->store,
                                  m ? &m->table : NULL,
                                  m && m->adapters ? m->adapters->table : NULL,
                                  se->origin.format,
                                  se->origin.adapter_format,
                                  se->tokenizer ? se->tokenizer->open.table : NULL,
                                  se->chat ? se->chat->table : NULL};
    enum { TABLES = sizeof tables / sizeof *tables };
    size_t n = 0, room = TABLES + STRATEGY_MAX + (size_t)(se->train.set ? dataset_info(se->train.set)->n_parts : 0);
    for (size_t i = 0; i < se->n_evals; i++)
        room += se->evals[i].set ? (size_t)dataset_info(se->evals[i].set)->n_parts : 0;
    const nrl_plugin **all = *list = arena_alloc(a, room * sizeof *all);
    for (size_t i = 0; i < TABLES; i++)
        if (tables[i]) all[n++] = tables[i]; /* every table begins with an nrl_plugin */
    for (int32_t i = 0; i < se->strategy_choices.n; i++)
        all[n++] = &se->strategy_choices.of[i].table->plugin;
    list_readers(se->train.set, all, &n);
    for (size_t i = 0; i < se->n_evals; i++)
        list_readers(se->evals[i].set, all, &n);
    return n;
}

/* {"KIND/NAME": "VERSION, HASH", ...}: the plugins that compute, read or write something of the run. */
static nrl_node *plugins_node(arena *a, const session *se)
{
    nrl_node *map = node_new(a, NRL_NODE_MAP);
    const nrl_plugin **list;
    const size_t n = session_plugins(se, a, &list);
    for (size_t i = 0; i < n; i++) {
        const char *text, *key = arena_printf(a, "%s/%s", plugin_kind_find(list[i]->kind)->folder, list[i]->name);
        if (list[i]->kind != NRL_KIND_STORE && !nrl_node_find(map, key) &&
            plugin_identity(se->host, list[i]->kind, list[i]->name, a, &text) == NRL_OK)
            node_append_text(a, map, key, text);
    }
    return map;
}

/* ---- all of it ---- */

/* "NAME VERSION, HASH" of a plugin; NULL where there is none. */
static const char *identity_text(const session *se, arena *a, const nrl_plugin *p)
{
    const char *text;
    if (!p || plugin_identity(se->host, p->kind, p->name, a, &text) != NRL_OK) return NULL;
    return arena_printf(a, "%s %s", p->name, text);
}

nrl_status session_describe(session *se, arena *a, nrl_node **out)
{
    nrl_node *map = *out = node_new(a, NRL_NODE_MAP);
    const adapter_set *adapters = se->model->adapters;
    if (adapters) { /* adapters are saved without the weights beside them, which are recognized by their hash */
        model_origin base = se->origin;
        const char *key;
        NRL_TRY(adapter_base(se, &key));
        base.adapter_dir = NULL;
        node_append(a, map, "adapters", node_copy(a, adapters->settings));
        node_append(a, map, "base", origin_base_node(a, &base, key));
    }
    if (se->stream) node_append(a, map, "stream", se->env.services->streams->node(se, a));
    if (se->later_node) node_append(a, map, "data", node_copy(a, se->later_node));
    node_append(a, map, "fingerprints", fingerprints_node(a, se));
    node_append(a, map, "config", node_as_written(a, se->config.resolved));
    node_append(a, map, "plugins", plugins_node(a, se));
    node_append(a, map, "model", node_copy(a, se->model->config));
    const char *shape = ""; /* "AXIS 2 AXIS 4": state of a rank can only be restored on a mesh of this shape */
    for (size_t i = 0; i < se->config.n_axes; i++) {
        const char *name = se->config.axes[i].axis->name;
        shape = arena_printf(a, "%s%s%s %d", shape, i ? " " : "", name, (int)nrl_mesh_size(se->mesh, name));
    }
    node_append_text(a, map, "mesh", shape);
    /* Where `nrl sample` and `nrl export` find the tokenizer of this checkpoint. */
    const char *folder = se->tokenizer ? se->tokenizer->info.folder : NULL;
    node_append_text(a, map, "tokenizer", folder ? paths_absolute(a, folder) : se->tokenizer ? "" : NULL);
    if (se->new_tokens) node_append(a, map, "new_tokens", node_copy(a, se->new_tokens));
    node_append_text(a, map, "chat_template", session_template(se, a));
    node_append_text(a, map, "format", identity_text(se, a, se->origin.format ? &se->origin.format->plugin : NULL));
    node_append_text(a, map, "adapter", identity_text(se, a, adapters ? &adapters->table->plugin : NULL));
    node_append_text(a, map, "script_path", se->env.script);
    node_append_text(a, map, "frontend", se->env.frontend);
    return NRL_OK;
}
