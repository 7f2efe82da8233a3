/*
 * plugins.c - see plugins.h. nrl's own plugins have another hash after each build, so only their versions are compared.
 */
#include "run/state/plugins.h"
#include "base/buffer.h"
#include <stdio.h>
#include <string.h>

static void plugins_add(arena *a, const session *se, nrl_node *map, const nrl_plugin *p)
{
    const char *text, *key = p ? arena_printf(a, "%s/%s", plugin_kind_find(p->kind)->folder, p->name) : NULL;
    if (p && !nrl_node_find(map, key) && plugin_identity(se->host, p->kind, p->name, a, &text) == NRL_OK)
        node_append_text(a, map, key, text);
}

static void plugins_add_readers(arena *a, const session *se, nrl_node *map, const dataset *d)
{
    for (int64_t i = 0; d && i < dataset_n_parts(d); i++)
        plugins_add(a, se, map, dataset_part_at(d, i).reader);
}

nrl_node *plugins_node(arena *a, const trainer *tr)
{
    const session *se = tr->session;
    nrl_node *map = node_new(a, NRL_NODE_MAP);
    if (!se->algorithm_is_script) plugins_add(a, se, map, &se->algorithm->plugin);
    plugins_add(a, se, map, &se->optimizer->plugin);
    plugins_add(a, se, map, &se->model->table.plugin);
    plugins_add(a, se, map, se->model->adapters ? &se->model->adapters->table->plugin : NULL);
    plugins_add(a, se, map, &se->backend->plugin);
    plugins_add(a, se, map, se->collective ? &se->collective->plugin : NULL);
    for (int32_t i = 0; i < se->strategy_choices.n; i++)
        plugins_add(a, se, map, &se->strategy_choices.of[i].table->plugin);
    plugins_add(a, se, map, se->origin.format ? &se->origin.format->plugin : NULL);
    plugins_add(a, se, map, se->tokenizer ? &se->tokenizer->open.table->plugin : NULL);
    plugins_add(a, se, map, se->chat ? &se->chat->table->plugin : NULL);
    plugins_add_readers(a, se, map, se->train.set);
    plugins_add_readers(a, se, map, se->eval.set);
    return map;
}

/* Whether "1.2.3" and "1.4" may stand for each other; texts of another form may. */
static bool plugins_are_compatible(const char *was, const char *is)
{
    int major[2], minor[2];
    if (sscanf(was, "%d.%d", &major[0], &minor[0]) != 2 || sscanf(is, "%d.%d", &major[1], &minor[1]) != 2) return true;
    return major[0] == major[1] && (major[0] > 0 || minor[0] == minor[1]);
}

static bool plugins_is_own(const session *se, const char *key)
{
    const char *slash = strchr(key, '/');
    char folder[64];
    snprintf(folder, sizeof folder, "%.*s", (int)(slash - key), key);
    return plugin_is_own(se->host, plugin_kind_by_name(folder)->kind, slash + 1);
}

void plugins_compare(const trainer *tr, const nrl_node *was,
                     void (*tell)(void *user, const char *plugin, const nrl_node *was, const nrl_node *is), void *user)
{
    arena a = {0};
    buffer lines = {0};
    const nrl_node *is = plugins_node(&a, tr);
    for (size_t i = 0; i < nrl_node_size(is); i++) {
        const char *key = nrl_node_key(is, i);
        const nrl_node *old = nrl_node_find(was, key), *new = nrl_node_at(is, i);
        const char *then = nrl_node_string(old, NULL), *now = nrl_node_string(new, "");
        if (!then || !strcmp(then, now)) continue;
        size_t n = strcspn(now, ",");
        bool same_version = n == strcspn(then, ",") && !strncmp(then, now, n);
        if (!plugins_are_compatible(then, now))
            tell(user, arena_printf(&a, "plugin %s", key), old, new);
        else if (!same_version || !plugins_is_own(tr->session, key))
            buffer_print(&lines, "\n  %s: was %s, is now %s", key, then, now);
    }
    if (lines.size && session_is_rank0(tr->session))
        nrl_warn("the checkpoint was written with other builds of these plugins:%s", lines.text);
    buffer_free(&lines);
    arena_free(&a);
}
