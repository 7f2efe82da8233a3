/*
 * axes.c - reads `parallel`: the axes of the mesh, their sizes and strategies. Plugins declare the axes. The forms are
 *   NAME                               a strategy for an axis that takes the remaining ranks
 *   {name: NAME, OPTION: V, AXIS: V}   the same with options, and with further axes
 *   {AXIS: RANKS, AXIS: NAME, AXIS: {name, size, OPTION: V}}
 */
#include "config/rules.h"
#include "base/suggest.h"
#include "config/config.h"
#include <string.h>

enum { RANKS_MAX = 1 << 20 };

typedef struct {
    arena *a;
    config_problems *problems;
    const config_server *servers;
    size_t n;
    config_run *run;
} reading;

/* ---- strategies by axis ---- */

static const config_server *server_called(const config_server *servers, size_t n, const char *plugin)
{
    for (size_t i = 0; i < n; i++)
        if (!strcmp(servers[i].table->plugin.name, plugin)) return &servers[i];
    return NULL;
}

const config_server *config_server_of(const config_server *servers, size_t n, const char *axis)
{
    const config_server *best = NULL;
    for (size_t i = 0; i < n; i++) {
        const config_server *s = &servers[i];
        if (axis ? strcmp(s->axis->name, axis) != 0 : !s->axis->takes_rest) continue;
        if (!best || s->by_default > best->by_default ||
            (s->by_default == best->by_default && s->table->plugin.priority > best->table->plugin.priority))
            best = s;
    }
    return best;
}

static const config_server *server_of(const reading *r, const char *axis)
{
    return config_server_of(r->servers, r->n, axis);
}

bool config_has_option(const config_server *servers, size_t n, const char *plugin, const char *key)
{
    const config_server *s = server_called(servers, n, plugin);
    const nrl_plugin *p = s ? &s->table->plugin : NULL;
    for (size_t i = 0; p && i < p->n_options; i++)
        if (!strcmp(option_row(p->options, i, p->option_size)->name, key)) return true;
    return false;
}

/* ---- one axis ---- */

static bool is_before(const nrl_mesh_axis *x, const nrl_mesh_axis *y)
{
    return x->order != y->order ? x->order < y->order : strcmp(x->name, y->name) < 0;
}

/* run->axes has room for one axis per key and one more. */
static config_axis *add_axis(config_run *run, const nrl_mesh_axis *axis)
{
    size_t at = run->n_axes++;
    for (; at > 0 && is_before(axis, run->axes[at - 1].axis); at--)
        run->axes[at] = run->axes[at - 1];
    run->axes[at] = (config_axis){.axis = axis, .size = axis->takes_rest ? 0 : 1};
    return &run->axes[at];
}

static bool read_size(const reading *r, const char *key, const nrl_node *at, int64_t *size)
{
    *size = nrl_node_kind(at) == NRL_NODE_INT ? nrl_node_int(at, 0) : 0;
    bool good = *size >= 1 && *size <= RANKS_MAX;
    if (!good) problems_add(r->problems, at, "parallel.%s: expected 1 to %d ranks", key, RANKS_MAX);
    if (!good) *size = 1;
    return good;
}

/* Reads `size` of {name, size, options} and returns the map without it. */
static const nrl_node *without_size(const reading *r, const char *axis, const nrl_node *map, int64_t *size)
{
    const nrl_node *at = nrl_node_find(map, "size");
    if (!at) return map;
    read_size(r, arena_printf(r->a, "%s.size", axis), at, size);
    return node_without(r->a, map, "size");
}

/* Reads a strategy that takes the remaining ranks. The resolved config keeps `default` and does not add a size, so that
 * a different number of ranks can resume the run. */
static void read_rest(const reading *r, const char *section, const nrl_node *node, config_axis *out)
{
    config_component *c = &out->strategy;
    component_read(r->a, r->problems, section, node, "default", c);
    out->is_default = c->name && !strcmp(c->name, "default");
    if (!c->name || !(out->is_default || !strcmp(c->name, "none"))) return;
    const char *word = c->name;
    c->name = NULL;
    if (!nrl_node_size(c->options)) return;
    out->is_default = false; /* else the default strategy would report the options again */
    problems_add(r->problems, c->at, "parallel: %s has no options", word);
}

/* Reads a size or a map with a size; size 1 means no strategy. The axis's default strategy is used unless the map names
 * another one. */
static void read_sized(const reading *r, const char *section, const nrl_node *node, config_axis *out)
{
    const char *axis = out->axis->name;
    nrl_node_type kind = nrl_node_kind(node);
    if (kind != NRL_NODE_INT && kind != NRL_NODE_MAP) {
        problems_add(r->problems, node, "%s: expected a number of ranks or {size: RANKS, OPTION: VALUE}", section);
        return;
    }
    if (kind == NRL_NODE_INT && (!read_size(r, axis, node, &out->size) || out->size == 1)) return;
    if (kind == NRL_NODE_MAP && !nrl_node_find(node, "size"))
        problems_add(r->problems, node, "%s.size: required, a number of ranks", section);
    if (kind == NRL_NODE_MAP) node = without_size(r, axis, node, &out->size);
    component_read(r->a, r->problems, section, kind == NRL_NODE_MAP ? node : NULL,
                   server_of(r, axis)->table->plugin.name, &out->strategy);
    out->strategy.at = node;
    if (out->strategy.resolved) node_append(r->a, out->strategy.resolved, "size", node_int(r->a, out->size));
}

static void read_axis(const reading *r, const nrl_mesh_axis *axis, const nrl_node *node)
{
    const char *section = arena_printf(r->a, "parallel.%s", axis->name);
    if (nrl_node_kind(node) <= NRL_NODE_NULL && !axis->takes_rest) return;
    config_axis *out = add_axis(r->run, axis);
    if (!axis->takes_rest) {
        read_sized(r, section, node, out);
    } else if (nrl_node_kind(node) == NRL_NODE_INT) {
        read_size(r, axis->name, node, &out->size);
        read_rest(r, section, NULL, out);
        out->strategy.at = node;
    } else {
        if (nrl_node_kind(node) == NRL_NODE_MAP) node = without_size(r, axis->name, node, &out->size);
        read_rest(r, section, node, out);
    }
}

/* ---- all of them ---- */

/* "pipeline, data, tensor": the names of all axes, in the order of the mesh. */
static const char *names_of_axes(const reading *r)
{
    config_run all = {.axes = arena_alloc(r->a, (r->n + 1) * sizeof *all.axes)};
    const char *text = "";
    for (size_t i = 0; i < r->n; i++)
        if (server_of(r, r->servers[i].axis->name) == &r->servers[i]) add_axis(&all, r->servers[i].axis);
    for (size_t i = 0; i < all.n_axes; i++)
        text = arena_printf(r->a, "%s%s%s", text, i ? ", " : "", all.axes[i].axis->name);
    return text;
}

/* `alone`: the key may have been meant as an option of a strategy. */
static void unknown_axis(const reading *r, const nrl_node *at, const char *key, bool alone)
{
    const char *known = r->problems->known_as ? r->problems->known_as(r->problems->user, r->a, key) : NULL;
    suggestion near = {.word = key};
    for (size_t i = 0; i < r->n; i++)
        suggest_offer(&near, r->servers[i].axis->name);
    if (!known && near.best) known = arena_printf(r->a, "did you mean '%s'?", near.best);
    if (!known && !alone) known = arena_printf(r->a, "expected one of: %s", names_of_axes(r));
    if (known)
        problems_add(r->problems, at, "parallel.%s: unknown key; %s", key, known);
    else
        problems_add(r->problems, at,
                     "parallel.%s: not an axis (%s); expected {AXIS: STRATEGY}, or for an option "
                     "{name: STRATEGY, OPTION: VALUE}",
                     key, names_of_axes(r));
}

/* Reads a map of axes without a strategy's name. */
static void read_map(const reading *r, const nrl_node *map)
{
    for (size_t i = 0; i < nrl_node_size(map); i++) {
        const char *key = nrl_node_key(map, i);
        const config_server *s = server_of(r, key);
        if (s)
            read_axis(r, s->axis, nrl_node_at(map, i));
        else
            unknown_axis(r, nrl_node_at(map, i), key, nrl_node_size(map) == 1);
    }
}

static bool has_source(const nrl_node *n, const char *source)
{
    return n && n->source && source && !strcmp(n->source, source);
}

/* {AXIS: NAME} in a file over {name: OTHER, OPTION: V} in its defaults, merged: the map without the strategy that the
 * other file names for this axis, and without its options. NULL: the strategy stays. */
static const nrl_node *without_replaced(const reading *r, const nrl_node *map, const nrl_node *word, const char *axis)
{
    const char *from = word ? word->source : NULL;
    const nrl_node *own = nrl_node_find(map, axis), *left;
    if (!own || !from || has_source(own, from) || !strcmp(from, config_command_line)) return NULL;
    left = node_without(r->a, map, "name");
    for (size_t i = 0; i < nrl_node_size(map); i++) {
        const char *key = nrl_node_key(map, i);
        if (has_source(nrl_node_at(map, i), from) &&
            config_has_option(r->servers, r->n, nrl_node_string(word, ""), key) && strcmp(key, "name"))
            left = node_without(r->a, left, key);
    }
    return left;
}

/* Reads a strategy by its name, optionally with further axes. */
static void read_named(const reading *r, const nrl_node *node)
{
    const nrl_node *word = nrl_node_kind(node) == NRL_NODE_MAP ? nrl_node_find(node, "name") : node, *options = node;
    const char *name = nrl_node_string(word, "");
    const config_server *named = server_called(r->servers, r->n, name), *rest = server_of(r, NULL);
    const nrl_mesh_axis *axis = named && named->axis->takes_rest ? named->axis : rest ? rest->axis : NULL;
    const nrl_node *left = axis ? without_replaced(r, node, word, axis->name) : NULL;
    if (left) {
        read_map(r, left);
        return;
    }
    for (size_t i = 0; nrl_node_kind(node) == NRL_NODE_MAP && i < nrl_node_size(node); i++) {
        const char *key = nrl_node_key(node, i);
        const config_server *s = server_of(r, key);
        if (!s || !strcmp(key, "name") || config_has_option(r->servers, r->n, name, key)) continue;
        options = node_without(r->a, options, key);
        if (!axis || strcmp(s->axis->name, axis->name))
            read_axis(r, s->axis, nrl_node_at(node, i));
        else
            problems_add(r->problems, nrl_node_at(node, i),
                         "parallel.%s: strategy '%s' already uses this axis; expected parallel: {%s: {name: %s, ...}, "
                         "...}",
                         key, name, key, name);
    }
    config_axis none;
    read_rest(r, "parallel", options, axis ? add_axis(r->run, axis) : &none);
    if (!axis && none.strategy.resolved) node_set(r->a, r->run->resolved, "parallel", none.strategy.resolved);
    if (!axis && none.strategy.name)
        problems_add(r->problems, node, "parallel: no plugin has an axis that takes the remaining ranks");
}

/* Checks that at most one axis has no size; that axis takes the remaining ranks. */
static void check_rest(const reading *r)
{
    const config_axis *open = NULL;
    for (size_t i = 0; i < r->run->n_axes; i++) {
        const config_axis *x = &r->run->axes[i];
        if (x->size) continue;
        if (open)
            problems_add(r->problems, x->strategy.at,
                         "parallel.%s.size: required, because parallel.%s has no size either", x->axis->name,
                         open->axis->name);
        open = x;
    }
}

/* Writes `parallel` to the resolved config: a single strategy as a component, several axes as a map of components. */
static void resolve(const reading *r)
{
    if (!r->run->n_axes) return;
    nrl_node *map = node_new(r->a, NRL_NODE_MAP);
    const config_axis *only = r->run->n_axes == 1 && r->run->axes[0].axis->takes_rest ? r->run->axes : NULL;
    for (size_t i = 0; i < r->run->n_axes; i++) {
        const config_axis *x = &r->run->axes[i];
        if (x->strategy.resolved) node_append(r->a, map, x->axis->name, x->strategy.resolved);
    }
    node_set(r->a, r->run->resolved, "parallel", only && only->strategy.resolved ? only->strategy.resolved : map);
}

void config_axes(arena *a, config_problems *problems, const config_server *servers, size_t n, config_run *run)
{
    const reading r = {a, problems, servers, n, run};
    const nrl_node *node = run->parallel;
    bool map = nrl_node_kind(node) == NRL_NODE_MAP && !nrl_node_find(node, "name");
    const config_server *rest = config_server_of(servers, n, NULL);
    run->axes = arena_alloc(a, (nrl_node_size(node) + 2) * sizeof *run->axes);
    if (!map)
        read_named(&r, node);
    else
        read_map(&r, node);
    bool any = false;
    for (size_t i = 0; i < run->n_axes; i++)
        any = any || run->axes[i].axis->takes_rest;
    if (!any && rest) read_axis(&r, rest->axis, NULL);
    check_rest(&r);
    resolve(&r);
}
