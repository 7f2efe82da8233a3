/*
 * plugin_about.c - what listings show of a plugin: taken from its table, written as JSON where the plugin is opened,
 * which may be a child process, and read again.
 */
#include "base/json.h"
#include "cli/verbs.h"
#include "config/options.h"
#include <nrl/nrl.h>
#include <stdlib.h>
#include <string.h>

/* ---- from a table ---- */

static void about_fill_options(arena *a, const nrl_plugin *t, plugin_about *out)
{
    nrl_option *rows = arena_alloc(a, (t->n_options + 1) * sizeof *rows);
    for (uint32_t i = 0; i < t->n_options; i++)
        rows[i] = *option_row(t->options, i, t->option_size);
    out->options = rows;
    out->n_options = t->n_options;
}

static void about_fill_axis(const nrl_mesh_axis *axis, plugin_about *out)
{
    if (!axis || !axis->name) return;
    out->axis = axis->name;
    out->axis_divides = axis->divides;
    out->axis_takes_rest = axis->takes_rest;
}

static void about_fill(arena *a, const nrl_plugin *t, plugin_about *out)
{
    *out = (plugin_about){.version = t->version, .summary = t->summary};
    about_fill_options(a, t, out);
    if (t->kind == NRL_KIND_MODEL) out->model_types = ((const nrl_model *)t)->model_types;
    if (t->kind == NRL_KIND_PARALLEL) about_fill_axis(((const nrl_parallel *)t)->axis, out);
    const nrl_backend *backend = t->kind == NRL_KIND_BACKEND ? (const void *)t : NULL;
    if (backend && backend->relax) out->relaxed = backend->relaxed;
    const nrl_frontend *frontend = t->kind == NRL_KIND_FRONTEND ? (const void *)t : NULL;
    if (frontend && frontend->describe) out->page = frontend->describe();
}

/* ---- as text ---- */

static void about_put(arena *a, nrl_node *map, const char *key, const char *text)
{
    if (text) node_append_text(a, map, key, text);
}

static const char *about_text(const nrl_node *map, const char *key)
{
    return nrl_node_string(nrl_node_find(map, key), NULL);
}

/* Limits may be infinite, which JSON has no number for: the writer makes texts of them. */
static double about_limit(const nrl_node *n)
{
    const char *text = nrl_node_string(n, NULL);
    return text ? strtod(text, NULL) : nrl_node_f64(n, 0);
}

static nrl_node *about_option_node(arena *a, const nrl_option *r)
{
    nrl_node *map = node_new(a, NRL_NODE_MAP);
    about_put(a, map, "name", r->name);
    about_put(a, map, "initial", r->initial);
    about_put(a, map, "choices", r->choices);
    about_put(a, map, "help", r->help);
    node_append(a, map, "min", node_f64(a, r->min));
    node_append(a, map, "max", node_f64(a, r->max));
    node_append_int(a, map, "type", r->type);
    return map;
}

static char *about_write(const nrl_plugin *table)
{
    arena a = {0};
    plugin_about about;
    about_fill(&a, table, &about);
    nrl_node *map = node_new(&a, NRL_NODE_MAP), *rows = node_new(&a, NRL_NODE_LIST);
    about_put(&a, map, "version", about.version);
    about_put(&a, map, "summary", about.summary);
    about_put(&a, map, "relaxed", about.relaxed);
    about_put(&a, map, "axis", about.axis);
    node_append_int(&a, map, "axis_divides", about.axis_divides);
    node_append(&a, map, "axis_takes_rest", node_bool(&a, about.axis_takes_rest));
    about_put(&a, map, "page", about.page);
    for (size_t i = 0; i < about.n_options; i++)
        node_append(&a, rows, NULL, about_option_node(&a, &about.options[i]));
    node_append(&a, map, "options", rows);
    nrl_node *types = about.model_types ? node_new(&a, NRL_NODE_LIST) : NULL;
    for (const char *const *t = about.model_types; t && *t; t++)
        node_append(&a, types, NULL, node_text(&a, *t));
    if (types) node_append(&a, map, "model_types", types);
    char *text = json_write(map, 0);
    arena_free(&a);
    return text;
}

static const nrl_option *about_read_options(arena *a, const nrl_node *list)
{
    nrl_option *rows = arena_alloc(a, (nrl_node_size(list) + 1) * sizeof *rows);
    for (size_t i = 0; i < nrl_node_size(list); i++) {
        const nrl_node *n = nrl_node_at(list, i);
        rows[i] = (nrl_option){.name = nrl_node_string(nrl_node_find(n, "name"), ""),
                               .initial = about_text(n, "initial"),
                               .choices = about_text(n, "choices"),
                               .help = about_text(n, "help"),
                               .min = about_limit(nrl_node_find(n, "min")),
                               .max = about_limit(nrl_node_find(n, "max")),
                               .type = (uint32_t)nrl_node_int(nrl_node_find(n, "type"), NRL_TYPE_NONE)};
    }
    return rows;
}

static const char *const *about_read_words(arena *a, const nrl_node *list)
{
    if (!list) return NULL;
    const char **words = arena_alloc(a, (nrl_node_size(list) + 1) * sizeof *words);
    for (size_t i = 0; i < nrl_node_size(list); i++)
        words[i] = nrl_node_string(nrl_node_at(list, i), "");
    return words;
}

static nrl_status about_read(arena *a, const char *text, plugin_about *out)
{
    nrl_node *map;
    NRL_TRY(json_parse(a, "description of a plugin", text, strlen(text), &map));
    const nrl_node *options = nrl_node_find(map, "options");
    *out = (plugin_about){.version = nrl_node_string(nrl_node_find(map, "version"), ""),
                          .summary = nrl_node_string(nrl_node_find(map, "summary"), ""),
                          .options = about_read_options(a, options),
                          .n_options = nrl_node_size(options),
                          .model_types = about_read_words(a, nrl_node_find(map, "model_types")),
                          .relaxed = about_text(map, "relaxed"),
                          .axis = about_text(map, "axis"),
                          .axis_divides = (uint32_t)nrl_node_int(nrl_node_find(map, "axis_divides"), 0),
                          .axis_takes_rest = nrl_node_bool(nrl_node_find(map, "axis_takes_rest"), false),
                          .page = about_text(map, "page")};
    return NRL_OK;
}

size_t verbs_plugin_list(plugin_host *h, arena *a, listed_plugin **list)
{
    plugin_entry *entries;
    size_t n = plugin_list(h, a, about_write, &entries);
    *list = arena_alloc(a, (n + 1) * sizeof **list);
    for (size_t i = 0; i < n; i++) {
        const plugin_entry *e = &entries[i];
        listed_plugin *p = &(*list)[i];
        *p = (listed_plugin){
            .kind = e->kind, .name = e->name, .path = e->path, .problem = e->problem, .hidden_by = e->hidden_by};
        if (!p->problem && about_read(a, e->description, &p->about) != NRL_OK)
            p->problem = arena_strdup(a, nrl_error_text());
    }
    return n;
}
