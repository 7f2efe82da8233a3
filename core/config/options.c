/*
 * options.c - fills structs from values of the config, with all checks.
 */
#include "config/options.h"
#include "base/paths.h"
#include "config/config.h"
#include "config/schema.h"
#include "base/suggest.h"
#include "base/yaml.h"
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <strings.h>

enum { KEYS_LISTED = 8 };

/* An option: its value, its destination and its name in messages. */
typedef struct {
    arena *a;
    config_problems *problems;
    const char *section;
    const nrl_option *row;
    const nrl_node *value;
    void *to;
} slot;

const nrl_option *option_row(const nrl_option *rows, size_t i, size_t stride)
{
    return (const void *)((const char *)rows + i * stride);
}

/* "train.steps", or "debug" at the top level. */
static const char *full_name(arena *a, const char *section, const char *key)
{
    return *section ? arena_printf(a, "%s.%s", section, key) : key;
}

/* The value as shown in messages: "text 'abc'", "a list". */
static const char *found(const slot *s)
{
    const nrl_node *n = s->value;
    switch (nrl_node_kind(n)) {
    case NRL_NODE_BOOL:
        return n->as.boolean ? "true" : "false";
    case NRL_NODE_INT:
        return arena_printf(s->a, "%" PRId64, n->as.integer);
    case NRL_NODE_FLOAT:
        return arena_printf(s->a, "%.15g", n->as.real);
    case NRL_NODE_STRING:
        return arena_printf(s->a, "text '%.100s'", n->as.string);
    case NRL_NODE_LIST:
        return "a list";
    case NRL_NODE_MAP:
        return "a map";
    default:
        return "nothing";
    }
}

static void expected(const slot *s, const char *what)
{
    problems_add(s->problems, s->value, "%s: expected %s, found %s", full_name(s->a, s->section, s->row->name), what,
                 found(s));
}

/* ---- one function for each type ---- */

static const char *bound(arena *a, double v)
{
    const double most = 9007199254740992.0; /* the largest bound of NRL_OPT_INT rows */
    return v == most ? "2^53" : arena_printf(a, "%.15g", v);
}

const char *option_range(arena *a, const nrl_option *r)
{
    if (isinf(r->min) && isinf(r->max)) return "any number";
    if (isinf(r->max)) return arena_printf(a, "at least %s", bound(a, r->min));
    if (isinf(r->min)) return arena_printf(a, "at most %s", bound(a, r->max));
    if (r->min >= r->max) return bound(a, r->max);
    return arena_printf(a, "%s to %s", bound(a, r->min), bound(a, r->max));
}

static bool is_in_range(const slot *s, double v)
{
    const nrl_option *r = s->row;
    if (v >= r->min && v <= r->max) return true;
    problems_add(s->problems, s->value, "%s: %s is out of range, expected %s", full_name(s->a, s->section, r->name),
                 found(s), option_range(s->a, r));
    return false;
}

static void fill_int(const slot *s)
{
    int64_t v = nrl_node_int(s->value, 0);
    if (nrl_node_int(s->value, 1) != v)
        expected(s, "a whole number"); /* both calls returned their fallback */
    else if (is_in_range(s, (double)v))
        *(int64_t *)s->to = v;
}

static void fill_f64(const slot *s)
{
    nrl_node_type kind = nrl_node_kind(s->value);
    double v = nrl_node_f64(s->value, 0);
    if ((kind != NRL_NODE_INT && kind != NRL_NODE_FLOAT) || isnan(v))
        expected(s, "a number");
    else if (is_in_range(s, v))
        *(double *)s->to = v;
}

bool option_bool(const nrl_node *n, bool *out)
{
    static const char *const words[] = {"no", "yes", "off", "on"};
    if (n->kind == NRL_NODE_BOOL) *out = n->as.boolean;
    if (n->kind != NRL_NODE_STRING || !n->plain) return n->kind == NRL_NODE_BOOL;
    for (size_t i = 0; i < 4; i++)
        if (!strcasecmp(n->as.string, words[i])) {
            *out = i % 2;
            return true;
        }
    return false;
}

static void fill_bool(const slot *s)
{
    if (!option_bool(s->value, s->to)) expected(s, "true or false");
}

const char *option_text(const nrl_node *n)
{
    if (nrl_node_kind(n) == NRL_NODE_STRING) return n->as.string;
    return n->kind != NRL_NODE_LIST && n->kind != NRL_NODE_MAP ? n->text : NULL;
}

static void fill_text(const slot *s)
{
    const char *text = option_text(s->value);
    if (!text) {
        expected(s, s->row->type == NRL_TYPE_PATH ? "a path" : "text");
        return;
    }
    if (s->row->type == NRL_TYPE_PATH) text = node_path(s->a, s->value, text);
    *(const char **)s->to = text;
}

/* Returns the index of the choice equal to near->word, or -1; offers each choice to `near`. */
static int64_t find_choice(arena *a, const char *choices, suggestion *near)
{
    int64_t i = 0;
    for (const char *c = choices; *c; i++) {
        size_t n = strcspn(c, "|");
        const char *choice = arena_strndup(a, c, n);
        if (!strcmp(choice, near->word)) return i;
        suggest_offer(near, choice);
        c += n + (c[n] == '|');
    }
    return -1;
}

static const char *list_of_choices(arena *a, const char *choices)
{
    const char *out = "";
    for (const char *c = choices; *c;) {
        size_t n = strcspn(c, "|");
        out = arena_printf(a, "%s%s%.*s", out, *out ? ", " : "", (int)n, c);
        c += n + (c[n] == '|');
    }
    return out;
}

static void fill_enum(const slot *s)
{
    const nrl_option *r = s->row;
    suggestion near = {.word = option_text(s->value)};
    if (!near.word) {
        expected(s, arena_printf(s->a, "one of: %s", list_of_choices(s->a, r->choices)));
        return;
    }
    int64_t i = find_choice(s->a, r->choices, &near);
    if (i >= 0) {
        *(int64_t *)s->to = i;
        return;
    }
    const char *known = problems_known_as(s->problems, s->a, r->name, near.word);
    if (!*known && near.best) known = arena_printf(s->a, "; did you mean '%s'?", near.best);
    problems_add(s->problems, s->value, "%s: '%.100s' is not one of: %s%s", full_name(s->a, s->section, r->name),
                 near.word, list_of_choices(s->a, r->choices), known);
}

static void fill_slot(const slot *s)
{
    switch ((nrl_type)s->row->type) {
    case NRL_TYPE_INT:
        fill_int(s);
        return;
    case NRL_TYPE_F64:
        fill_f64(s);
        return;
    case NRL_TYPE_BOOL:
        fill_bool(s);
        return;
    case NRL_TYPE_STR:
    case NRL_TYPE_PATH:
        fill_text(s);
        return;
    case NRL_TYPE_ENUM:
        fill_enum(s);
        return;
    case NRL_TYPE_NODE:
        *(const nrl_node **)s->to = s->value;
        return;
    case NRL_TYPE_NONE:
        break;
    }
    NRL_ASSERT(s->row->type, ==, NRL_TYPE_NODE); /* the plugin host has checked the types of rows */
}

/* ---- a whole map ---- */

static bool is_given(const nrl_node *value)
{
    return value && value->kind != NRL_NODE_NULL;
}

/* The default as a node; NULL if there is nothing left to store. */
static const nrl_node *default_value(const slot *s, const nrl_node *section)
{
    const nrl_option *r = s->row;
    nrl_node *value = NULL;
    if (!r->initial) {
        const nrl_node *at = nrl_node_find(section, r->name);
        problems_add(s->problems, at ? at : section, "%s: required, but not given%s%s",
                     full_name(s->a, s->section, r->name), r->help ? ": " : "", r->help ? r->help : "");
        return NULL;
    }
    if (r->type == NRL_TYPE_STR || r->type == NRL_TYPE_PATH) return NULL; /* stored */
    nrl_status st = *r->initial ? yaml_parse_value(s->a, "default", r->initial, &value) : NRL_OK;
    if (st != NRL_OK) problems_take_error(s->problems, st, NULL);
    return value;
}

/* An invalid text is replaced by its default, because later checks read it. */
static void fill_part(arena *a, config_problems *problems, const char *section, const nrl_node *node,
                      const option_part *part)
{
    for (size_t i = 0; i < part->n_rows; i++) {
        const nrl_option *row = option_row(part->rows, i, part->stride);
        slot s = {a, problems, section, row, nrl_node_find(node, row->name), (char *)part->out + row->offset};
        bool is_text = row->type == NRL_TYPE_STR || row->type == NRL_TYPE_PATH;
        if (is_text && row->initial) *(const char **)s.to = row->initial;
        if (is_given(node) && node->kind != NRL_NODE_MAP) continue; /* reported */
        if (!is_given(s.value)) s.value = default_value(&s, node);
        if (s.value) fill_slot(&s);
    }
}

static bool is_known(const option_part *parts, size_t n_parts, suggestion *near)
{
    for (size_t p = 0; p < n_parts; p++)
        for (size_t i = 0; i < parts[p].n_rows; i++) {
            const char *name = option_row(parts[p].rows, i, parts[p].stride)->name;
            if (!strcmp(name, near->word)) return true;
            suggest_offer(near, name);
        }
    return false;
}

/* A list of all keys if it is short, else "". */
static const char *list_of_keys(arena *a, const option_part *parts, size_t n_parts)
{
    size_t n = 0;
    const char *out = "";
    for (size_t p = 0; p < n_parts; p++)
        n += parts[p].n_rows;
    if (!n || n > KEYS_LISTED) return "";
    for (size_t p = 0; p < n_parts; p++)
        for (size_t i = 0; i < parts[p].n_rows; i++)
            out = arena_printf(a, "%s%s%s", out, *out ? ", " : "", option_row(parts[p].rows, i, parts[p].stride)->name);
    return arena_printf(a, "; expected one of: %s", out);
}

/* "; it is optimizer.lr here" for a name of another trainer or a key of another section, unless this section has a
 * similar key; "; did you mean 'steps'?"; or a list of the keys. */
static const char *key_hint(arena *a, const config_problems *problems, const char *full, const suggestion *near,
                            const option_part *parts, size_t n_parts)
{
    const char *known = problems->known_as ? problems->known_as(problems->user, a, full) : NULL;
    if (!known && problems->known_as) known = problems->known_as(problems->user, a, near->word);
    size_t n;
    const config_section *s = config_sections(&n);
    for (size_t i = 0; !known && !near->best && i < n; i++)
        for (size_t k = 0; k < s[i].n_rows; k++)
            if (!strcmp(s[i].rows[k].name, near->word))
                known = arena_printf(a, "it is %s here", full_name(a, s[i].name, near->word));
    const char *same = arena_printf(a, "it is %s here", full); /* of another component, which may be named after it */
    const bool is_same = known && !strncmp(known, same, strlen(same));
    if (is_same && known[strlen(same)]) return arena_printf(a, "; it is%s", known + strlen(same) + 1);
    if (known && !is_same) return arena_printf(a, "; %s", known);
    if (near->best) return arena_printf(a, "; did you mean '%s'?", near->best);
    return list_of_keys(a, parts, n_parts);
}

void options_check_keys(arena *a, config_problems *problems, const char *section, const nrl_node *node,
                        const option_part *parts, size_t n_parts)
{
    if (nrl_node_kind(node) != NRL_NODE_MAP) return;
    for (size_t i = 0; i < nrl_node_size(node); i++) {
        suggestion near = {.word = nrl_node_key(node, i)};
        if (is_known(parts, n_parts, &near)) continue;
        const char *full = full_name(a, section, near.word), *hint = key_hint(a, problems, full, &near, parts, n_parts);
        if (*hint || n_parts) problems_add(problems, nrl_node_at(node, i), "%s: unknown key%s", full, hint);
        options_check_keys(a, problems, full, nrl_node_at(node, i), NULL, 0); /* of other trainers, in their sections */
    }
}

void options_fill(arena *a, config_problems *problems, const char *section, const nrl_node *node,
                  const option_part *parts, size_t n_parts)
{
    options_check_keys(a, problems, section, node, parts, n_parts);
    options_fill_known(a, problems, section, node, parts, n_parts);
}

void options_fill_known(arena *a, config_problems *problems, const char *section, const nrl_node *node,
                        const option_part *parts, size_t n_parts)
{
    if (is_given(node) && node->kind != NRL_NODE_MAP) {
        slot s = {.a = a, .value = node};
        problems_add(problems, node, "%s: expected a map of options, found %s", *section ? section : "config",
                     found(&s));
    }
    for (size_t p = 0; p < n_parts; p++)
        fill_part(a, problems, section, node, &parts[p]);
}

/* ---- the resolved config ---- */

static const char *choice_at(arena *a, const char *choices, int64_t index)
{
    for (; index > 0; index--)
        choices += strcspn(choices, "|") + 1;
    return arena_strndup(a, choices, strcspn(choices, "|"));
}

static nrl_node *text_node(arena *a, const char *text)
{
    return node_text(a, text ? text : "");
}

/* `given`: whether the config has a value. */
static nrl_node *value_node(arena *a, const nrl_option *row, const void *from, bool given)
{
    const nrl_node *node;
    const char *text;
    /* a number that is unset without a default, which is stored as 0 and may be out of range */
    if ((row->type == NRL_TYPE_INT || row->type == NRL_TYPE_F64) && !given && row->initial && !*row->initial)
        return node_new(a, NRL_NODE_NULL);
    switch ((nrl_type)row->type) {
    case NRL_TYPE_INT:
        return node_int(a, *(const int64_t *)from);
    case NRL_TYPE_F64:
        return node_f64(a, *(const double *)from);
    case NRL_TYPE_BOOL:
        return node_bool(a, *(const bool *)from);
    case NRL_TYPE_ENUM:
        return text_node(a, choice_at(a, row->choices, *(const int64_t *)from));
    case NRL_TYPE_STR:
        return text_node(a, *(const char *const *)from);
    case NRL_TYPE_PATH:
        text = *(const char *const *)from;
        return text_node(a, text ? paths_absolute(a, text) : NULL);
    default:
        node = *(const nrl_node *const *)from;
        return node ? node_copy(a, node) : node_new(a, NRL_NODE_NULL);
    }
}

void options_resolve(arena *a, const nrl_node *node, const option_part *parts, size_t n_parts, nrl_node *resolved)
{
    for (size_t p = 0; p < n_parts; p++)
        for (size_t i = 0; i < parts[p].n_rows; i++) {
            const nrl_option *row = option_row(parts[p].rows, i, parts[p].stride);
            const nrl_node *given = nrl_node_find(node, row->name);
            nrl_node *value = value_node(a, row, (const char *)parts[p].out + row->offset, is_given(given));
            const bool is_path = row->type == NRL_TYPE_PATH && is_given(given) && option_text(given);
            if (given && given->secret)
                value = is_path ? config_path_node(a, given, option_text(given)) : node_copy(a, given);
            node_set(a, resolved, row->name, value);
        }
}

/* ---- component slots ---- */

void component_read(arena *a, config_problems *problems, const char *section, const nrl_node *node,
                    const char *fallback, config_component *out)
{
    bool map = nrl_node_kind(node) == NRL_NODE_MAP;
    const nrl_node *word = map ? nrl_node_find(node, "name") : node;
    *out = (config_component){.at = node};
    out->name = is_given(word) ? nrl_node_string(word, NULL) : fallback;
    if (!out->name && is_given(node)) {
        slot s = {.a = a, .value = word};
        problems_add(problems, word ? word : node, "%s: expected a word or a map with `name`, found %s", section,
                     map && !word ? "a map without it" : found(&s));
    }
    if (!out->name) return;
    out->resolved = node_new(a, NRL_NODE_MAP);
    node_append(a, out->resolved, "name", node_text(a, out->name));
    if (map) out->options = node_without(a, node, "name");
}

void choice_read(arena *a, config_problems *problems, const char *section, const nrl_node *node, bool is_path,
                 config_choice *out, nrl_node *resolved, const char *key)
{
    bool map = nrl_node_kind(node) == NRL_NODE_MAP;
    const nrl_node *name = map ? nrl_node_find(node, "name") : NULL, *path = map ? nrl_node_find(node, "path") : node;
    *out = (config_choice){.at = node};
    if (!is_given(node)) return;
    const nrl_node *wrong = (is_given(name) && !nrl_node_string(name, NULL))   ? name
                            : (is_given(path) && !nrl_node_string(path, NULL)) ? path
                            : (map && !is_given(name) && !is_given(path))      ? node
                                                                               : NULL;
    if (wrong) {
        slot s = {.a = a, .value = wrong};
        problems_add(problems, wrong, "%s: expected a text, or a map with `name` and `path`, found %s", section,
                     found(&s));
        return;
    }
    const char *text = nrl_node_string(path, NULL);
    nrl_node *absolute = text ? node_text(a, text) : NULL;
    out->name = nrl_node_string(name, NULL);
    out->source = text;
    if (text && *text && (is_path || strpbrk(text, "/."))) {
        out->source = node_path(a, path, text);
        absolute = config_path_node(a, path, text);
    }
    if (!map) {
        NRL_ASSERT((absolute != NULL), ==, true); /* the node itself is the text */
        node_set(a, resolved, key, absolute);
        return;
    }
    out->options = node_without(a, node_without(a, node, "name"), "path");
    out->resolved = node_set(a, resolved, key, node_new(a, NRL_NODE_MAP));
    node_append_text(a, out->resolved, "name", out->name);
    if (absolute) node_append(a, out->resolved, "path", absolute);
}
