/*
 * config.c - reads a config with its defaults, overrides, environment variables and paths.
 */
#include "config/config.h"
#include "base/buffer.h"
#include "base/hub.h"
#include "base/paths.h"
#include "config/rules.h"
#include "base/scalar.h"
#include "base/yaml.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_FILES = 64, MAX_KEY = 256 };

/* ---- paths ---- */

nrl_node *config_path_node(arena *a, const nrl_node *at, const char *path)
{
    nrl_node *node = node_text(a, paths_absolute(a, node_path(a, at, path)));
    if (at->secret)
        node->secret =
            *path == '/' || !*path ? at->secret : paths_absolute(a, node_path(a, at, at->secret)); /* DIR/${env:X} */
    return node;
}

/* ---- merging ---- */

static bool is_component_slot(const char *key)
{
    static const char *const slots[] = {"adapter",  "algorithm", "optimizer",  "schedule",
                                        "parallel", "backend",   "collective", "store"};
    for (size_t i = 0; i < sizeof slots / sizeof *slots; i++)
        if (!strcmp(slots[i], key)) return true;
    return false;
}

static nrl_node *new_map_at(arena *a, const nrl_node *at)
{
    nrl_node *map = node_new(a, NRL_NODE_MAP);
    node_copy_place(map, at);
    return map;
}

/* Converts a component's word to the map {name: word}; other nodes are returned unchanged. */
static nrl_node *word_as_map(arena *a, nrl_node *n)
{
    if (nrl_node_kind(n) != NRL_NODE_STRING) return n;
    nrl_node *map = new_map_at(a, n);
    node_append(a, map, "name", node_copy(a, n));
    return map;
}

static nrl_node *merge_maps(arena *a, nrl_node *base, nrl_node *over, bool are_slots);

/* Merges two values of a component slot. `parallel` without a name is a map of axes, which a value with a name
 * replaces; `parallel: auto` has no options, so any value replaces it. */
static nrl_node *merge_component(arena *a, const char *slot, nrl_node *base, nrl_node *over)
{
    base = word_as_map(a, base);
    over = word_as_map(a, over);
    const char *below = nrl_node_string(nrl_node_find(base, "name"), NULL);
    const bool is_whole = below ? !strcmp(below, "auto") : nrl_node_find(over, "name") != NULL;
    if (!strcmp(slot, "parallel") && is_whole) return over;
    const char *above = nrl_node_string(nrl_node_find(over, "name"), below);
    const bool is_of_axes = !strcmp(slot, "parallel") && !above;
    return above && below && strcmp(above, below) ? over : merge_maps(a, base, over, is_of_axes);
}

/* This file owns the trees, so it may modify children. With `are_slots` every child is a component. */
static nrl_node *merge_maps(arena *a, nrl_node *base, nrl_node *over, bool are_slots)
{
    if (nrl_node_kind(base) != NRL_NODE_MAP || nrl_node_kind(over) != NRL_NODE_MAP) return over;
    for (size_t i = 0; i < nrl_node_size(over); i++) {
        const char *key = nrl_node_key(over, i);
        nrl_node *above = (nrl_node *)nrl_node_find(over, key), *below = (nrl_node *)nrl_node_find(base, key);
        if (below && (are_slots || is_component_slot(key)))
            above = merge_component(a, key, below, above);
        else if (below)
            above = config_merge(a, below, above);
        node_set(a, base, key, above);
    }
    node_copy_place(base, over);
    return base;
}

nrl_node *config_merge(arena *a, nrl_node *base, nrl_node *over)
{
    return merge_maps(a, base, over, false);
}

/* ---- files and their defaults ---- */

typedef struct file_link file_link;
struct file_link {
    const char *path; /* from realpath */
    const file_link *from;
};

static nrl_status read_chain(arena *a, const char *path, const file_link *from, size_t *n_files, nrl_node **root);

static nrl_status merge_default(arena *a, const nrl_node *name, const file_link *from, size_t *n_files, nrl_node **base)
{
    const char *text = nrl_node_string(name, NULL);
    nrl_node *below;
    if (!text) return nrl_fail(NRL_ERR_CONFIG, "%s: defaults: expected the path of a YAML file", nrl_node_place(name));
    if (read_chain(a, node_path(a, name, text), from, n_files, &below) != NRL_OK) {
        nrl_add_context("%s: defaults", nrl_node_place(name));
        return NRL_ERR_CONFIG;
    }
    *base = *base ? config_merge(a, *base, below) : below;
    return NRL_OK;
}

static nrl_status lay_on_defaults(arena *a, const file_link *here, size_t *n_files, nrl_node **root)
{
    const nrl_node *defaults = nrl_node_find(*root, "defaults");
    nrl_node *base = NULL;
    bool list = nrl_node_kind(defaults) == NRL_NODE_LIST;
    if (!defaults) return NRL_OK;
    for (size_t i = 0; i < (list ? nrl_node_size(defaults) : 1); i++)
        NRL_TRY(merge_default(a, list ? nrl_node_at(defaults, i) : defaults, here, n_files, &base));
    nrl_node *own = node_without(a, *root, "defaults");
    *root = base ? config_merge(a, base, own) : own;
    return NRL_OK;
}

static nrl_status check_chain(const char *path, const file_link *here, size_t *n_files)
{
    if (++*n_files > MAX_FILES) return nrl_fail(NRL_ERR_CONFIG, "cannot read defaults: more than %d files", MAX_FILES);
    for (const file_link *l = here->from; l; l = l->from)
        if (!strcmp(l->path, here->path)) return nrl_fail(NRL_ERR_CONFIG, "%s inherits from itself", path);
    return NRL_OK;
}

static nrl_status take_document(arena *a, const file_link *here, size_t *n_files, nrl_node **root)
{
    if ((*root)->kind != NRL_NODE_MAP)
        return nrl_fail(NRL_ERR_CONFIG, "%s: expected a map of sections (model, data, train, ...)",
                        nrl_node_place(*root));
    return lay_on_defaults(a, here, n_files, root);
}

static nrl_status read_chain(arena *a, const char *path, const file_link *from, size_t *n_files, nrl_node **root)
{
    char *real = realpath(path, NULL);
    file_link here = {real ? arena_strdup(a, real) : path, from};
    free(real);
    NRL_TRY(check_chain(path, &here, n_files));
    NRL_TRY(yaml_read_file(a, path, root));
    return take_document(a, &here, n_files, root);
}

nrl_status config_read(arena *a, const char *path, nrl_node **root)
{
    size_t n_files = 0;
    return read_chain(a, path, NULL, &n_files, root);
}

nrl_status config_parse(arena *a, const char *source, const char *text, size_t size, nrl_node **root)
{
    size_t n_files = 1;
    NRL_TRY(yaml_parse(a, source, text, size, root));
    return take_document(a, &(file_link){source, NULL}, &n_files, root);
}

/* ---- overrides ---- */

const char config_command_line[] = "command line";

/* Expands `plugins: [DIR]` to {folders: [DIR]}. */
static nrl_node *folders_as_map(arena *a, nrl_node *n)
{
    if (n->kind == NRL_NODE_MAP || n->kind == NRL_NODE_NULL) return n;
    nrl_node *map = new_map_at(a, n);
    node_append(a, map, "folders", node_copy(a, n));
    return map;
}

/* Returns the map at `key`, created if the key is missing or null; NULL if the value is not a map. */
static nrl_node *descend(arena *a, nrl_node *map, bool top, const char *key)
{
    const nrl_node here = {.source = config_command_line};
    nrl_node *child = (nrl_node *)nrl_node_find(map, key);
    if (child && top && is_component_slot(key)) child = word_as_map(a, child);
    if (child && top && !strcmp(key, "plugins")) child = folders_as_map(a, child);
    if (!child || child->kind == NRL_NODE_NULL) child = new_map_at(a, child ? child : &here);
    return child->kind == NRL_NODE_MAP ? node_set(a, map, key, child) : NULL;
}

/* Whether the text has the form "a.b.c" without empty parts. */
static bool is_key_path(const char *text, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (text[i] == '.' && (i == 0 || i + 1 == size || text[i + 1] == '.')) return false;
    return size > 0;
}

static nrl_node *map_of_path(arena *a, nrl_node *root, char *path, const char **last)
{
    nrl_node *map = root;
    for (char *dot; map && (dot = strchr(path, '.')); path = dot + 1) {
        bool top = map == root;
        *dot = 0;
        map = descend(a, map, top, path);
    }
    *last = path;
    return map;
}

void config_override(arena *a, config_problems *problems, nrl_node *root, const char *assignment)
{
    const nrl_node here = {.source = config_command_line};
    size_t n = strcspn(assignment, "=");
    const char *last;
    nrl_node *value;
    if (!assignment[n] || !is_key_path(assignment, n)) {
        problems_add(problems, &here, "'%s': expected key=value", assignment);
        return;
    }
    nrl_status st = yaml_parse_value(a, config_command_line, assignment + n + 1, &value);
    if (st != NRL_OK) {
        const char *text = nrl_error_text();
        const size_t source = strlen(config_command_line);
        if (!strncmp(text, config_command_line, source)) /* "command line: 'KEY=VALUE': REASON" */
            problems_add(problems, &here, "'%s'%s", assignment, text + source);
        else
            problems_take_error(problems, st, NULL);
        return;
    }
    nrl_node *map = map_of_path(a, root, arena_strndup(a, assignment, n), &last);
    if (map)
        node_set(a, map, last, value);
    else
        problems_add(problems, &here, "%.*s: a part of this path is not a map", (int)n, assignment);
}

/* ---- ${env:VAR} ---- */

typedef struct {
    arena *a;
    config_problems *problems;
    const char *(*lookup)(const char *name);
} substitution;

static const char opening[] = "${env:";

/* Returns the text with its variables replaced, malloc'd; NULL after a syntax error. */
static char *expand(const substitution *s, const nrl_node *n)
{
    buffer b = {0};
    const char *text = n->as.string, *start;
    while ((start = strstr(text, opening))) {
        const char *name = start + strlen(opening), *end = strchr(name, '}');
        if (!end || end == name || end - name >= MAX_KEY) {
            problems_add(s->problems, n, "expected ${env:NAME} in '%s'", n->as.string);
            buffer_free(&b);
            return NULL;
        }
        const char *variable = arena_strndup(s->a, name, (size_t)(end - name));
        const char *value = s->lookup(variable);
        if (!value) problems_add(s->problems, n, "environment variable %s is not set", variable);
        buffer_add(&b, text, (size_t)(start - text));
        buffer_puts(&b, value ? value : "");
        text = end + 1;
    }
    buffer_puts(&b, text);
    return buffer_take(&b);
}

/* Whether the text is a single ${env:X}. Inside {} and [] YAML requires quotes around it, which do not make it a
 * string. */
static bool is_one_variable(const char *text)
{
    return !strncmp(text, opening, strlen(opening)) && strcspn(text, "}") + 1 == strlen(text);
}

static void substitute_text(const substitution *s, nrl_node *n)
{
    char *text = strstr(n->as.string, opening) ? expand(s, n) : NULL;
    if (!text) return;
    n->secret = n->as.string;
    if (n->plain || is_one_variable(n->secret)) {
        scalar_assign(s->a, n, text, strlen(text));
    } else {
        n->size = strlen(text);
        n->as.string = n->text = arena_strndup(s->a, text, n->size);
    }
    free(text);
}

static void substitute(const substitution *s, nrl_node *n)
{
    if (n->kind == NRL_NODE_STRING) substitute_text(s, n);
    if (n->kind == NRL_NODE_STRING && !strncmp(n->as.string, HUB_SCHEME, strlen(HUB_SCHEME))) {
        nrl_status st = hub_data(s->a, n->as.string, s->lookup, &n->as.string);
        if (st != NRL_OK) problems_take_error(s->problems, st, n);
        n->text = n->as.string;
        n->size = strlen(n->text);
    }
    for (size_t i = 0; i < nrl_node_size(n); i++)
        substitute(s, (nrl_node *)nrl_node_at(n, i));
}

void config_substitute(arena *a, config_problems *problems, nrl_node *root, const char *(*lookup)(const char *name))
{
    substitute(&(substitution){a, problems, lookup}, root);
}
