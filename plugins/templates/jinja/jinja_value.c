/*
 * jinja_value.c - lists, maps and properties of values: truth and equality are those of Python;
 * maps keep the order in which keys were added.
 */
#include "jinja_value.h"
#include <string.h>

enum { MAX_EQUAL_DEPTH = 100, MOST_OF_A_KEY = 1 << 16 };

jinja_value jinja_list_of(arena *a, jinja_kind kind, jinja_value *items, size_t n)
{
    jinja_list *list = arena_alloc(a, sizeof *list);
    *list = (jinja_list){.items = items ? items : arena_alloc(a, sizeof *items), .n = n};
    return (jinja_value){.kind = kind, .list = list};
}

jinja_value jinja_map_new(arena *a)
{
    return (jinja_value){.kind = JINJA_MAP, .map = arena_alloc(a, sizeof(jinja_map))};
}

static size_t map_index(const jinja_map *m, const jinja_value *key)
{
    size_t i = 0;
    while (i < m->n && !jinja_equal(&m->keys[i], key))
        i++;
    return i;
}

static void map_grow(arena *a, jinja_map *m)
{
    size_t room = m->room ? m->room * 2 : 8;
    jinja_value *keys = arena_alloc(a, room * sizeof *keys), *values = arena_alloc(a, room * sizeof *values);
    if (m->n) {
        memcpy(keys, m->keys, m->n * sizeof *keys);
        memcpy(values, m->values, m->n * sizeof *values);
    }
    m->keys = keys;
    m->values = values;
    m->room = room;
}

void jinja_map_add(arena *a, jinja_map *m, jinja_value key, jinja_value value)
{
    if (m->n == m->room) map_grow(a, m);
    m->keys[m->n] = key;
    m->values[m->n++] = value;
}

void jinja_map_set(arena *a, jinja_map *m, jinja_value key, jinja_value value)
{
    size_t i = map_index(m, &key);
    if (i == m->n)
        jinja_map_add(a, m, key, value);
    else
        m->values[i] = value;
}

const jinja_value *jinja_map_find(const jinja_map *m, jinja_value key)
{
    size_t i = map_index(m, &key);
    return i < m->n ? &m->values[i] : NULL;
}

const jinja_value *jinja_map_find_text(const jinja_map *m, const char *key)
{
    return jinja_map_find(m, jinja_string(key, strlen(key)));
}

/* ---- conversion from a tree ---- */

static jinja_value from_children(arena *a, const nrl_node *node)
{
    size_t n = nrl_node_size(node);
    jinja_value *items = arena_alloc(a, n * sizeof *items);
    if (nrl_node_kind(node) == NRL_NODE_LIST) {
        for (size_t i = 0; i < n; i++)
            items[i] = jinja_from_node(a, nrl_node_at(node, i));
        return jinja_list_of(a, JINJA_LIST, items, n);
    }
    /* the keys of a tree are unique, so no lookup is needed */
    jinja_value out = jinja_map_new(a);
    out.map->keys = arena_alloc(a, n * sizeof *items);
    out.map->values = items;
    out.map->n = out.map->room = n;
    for (size_t i = 0; i < n; i++) {
        const char *key = nrl_node_key(node, i);
        out.map->keys[i] = jinja_string(key, strlen(key));
        items[i] = jinja_from_node(a, nrl_node_at(node, i));
    }
    return out;
}

jinja_value jinja_from_node(arena *a, const nrl_node *node)
{
    switch (nrl_node_kind(node)) {
    case NRL_NODE_BOOL:
        return jinja_bool(nrl_node_bool(node, false));
    case NRL_NODE_INT:
        return jinja_int(nrl_node_int(node, 0));
    case NRL_NODE_FLOAT:
        return jinja_float(nrl_node_f64(node, 0));
    case NRL_NODE_STRING:
        return jinja_string(nrl_node_string(node, ""), nrl_node_string_size(node));
    case NRL_NODE_LIST:
    case NRL_NODE_MAP:
        return from_children(a, node);
    default:
        return jinja_none();
    }
}

/* ---- properties ---- */

const char *jinja_kind_name(const jinja_value *v)
{
    static const char *const names[] = {[JINJA_UNDEFINED] = "Undefined",
                                        [JINJA_NONE] = "None",
                                        [JINJA_BOOL] = "bool",
                                        [JINJA_INT] = "int",
                                        [JINJA_FLOAT] = "float",
                                        [JINJA_STRING] = "str",
                                        [JINJA_LIST] = "list",
                                        [JINJA_TUPLE] = "tuple",
                                        [JINJA_RANGE] = "range",
                                        [JINJA_VIEW] = "dict view",
                                        [JINJA_GENERATOR] = "generator",
                                        [JINJA_MAP] = "dict",
                                        [JINJA_NAMESPACE] = "namespace",
                                        [JINJA_MACRO] = "macro",
                                        [JINJA_METHOD] = "method",
                                        [JINJA_FUNCTION] = "function",
                                        [JINJA_LOOP] = "loop"};
    return names[v->kind];
}

bool jinja_is_number(const jinja_value *v)
{
    return v->kind == JINJA_BOOL || v->kind == JINJA_INT || v->kind == JINJA_FLOAT;
}

bool jinja_is_sequence(const jinja_value *v)
{
    return v->kind >= JINJA_LIST && v->kind <= JINJA_GENERATOR;
}

bool jinja_truth(const jinja_value *v)
{
    switch (v->kind) {
    case JINJA_UNDEFINED:
    case JINJA_NONE:
        return false;
    case JINJA_BOOL:
        return v->boolean;
    case JINJA_INT:
        return v->integer != 0;
    case JINJA_FLOAT:
        return v->real != 0;
    case JINJA_STRING:
        return v->size > 0;
    case JINJA_LIST:
    case JINJA_TUPLE:
    case JINJA_RANGE:
    case JINJA_VIEW:
        return v->list->n > 0;
    case JINJA_MAP:
        return v->map->n > 0;
    default:
        return true;
    }
}

static int64_t whole(const jinja_value *v)
{
    return v->kind == JINJA_BOOL ? v->boolean : v->integer;
}

static bool equal_numbers(const jinja_value *x, const jinja_value *y)
{
    if (x->kind != JINJA_FLOAT && y->kind != JINJA_FLOAT) return whole(x) == whole(y);
    double a = x->kind == JINJA_FLOAT ? x->real : (double)whole(x);
    double b = y->kind == JINJA_FLOAT ? y->real : (double)whole(y);
    return a == b;
}

static bool equal_at(const jinja_value *x, const jinja_value *y, int depth, int64_t *left);

static bool equal_lists(const jinja_list *x, const jinja_list *y, int depth, int64_t *left)
{
    if (x == y) return true;
    bool same = x->n == y->n;
    for (size_t i = 0; same && i < x->n; i++)
        same = equal_at(&x->items[i], &y->items[i], depth, left);
    return same;
}

static bool equal_maps(const jinja_map *x, const jinja_map *y, int depth, int64_t *left)
{
    if (x == y) return true;
    bool same = x->n == y->n;
    for (size_t i = 0; same && i < x->n; i++) {
        size_t j = 0;
        while (j < y->n && !equal_at(&y->keys[j], &x->keys[i], depth, left))
            j++;
        same = j < y->n && equal_at(&x->values[i], &y->values[j], depth, left);
    }
    return same;
}

static bool equal_text(const jinja_value *x, const jinja_value *y, int64_t *left)
{
    if (x->size != y->size) return false;
    *left -= (int64_t)(x->size / 64);
    return !x->size || !memcmp(x->text, y->text, x->size);
}

/* Values that are nested too deeply compare as different. */
static bool equal_at(const jinja_value *x, const jinja_value *y, int depth, int64_t *left)
{
    if (depth > MAX_EQUAL_DEPTH || --*left < 0) return false;
    if (jinja_is_number(x) && jinja_is_number(y)) return equal_numbers(x, y);
    if (x->kind != y->kind) return false;
    switch (x->kind) {
    case JINJA_UNDEFINED:
    case JINJA_NONE:
        return true;
    case JINJA_STRING:
        return equal_text(x, y, left);
    case JINJA_LIST:
    case JINJA_TUPLE:
    case JINJA_RANGE:
        return equal_lists(x->list, y->list, depth + 1, left);
    case JINJA_MAP:
        return equal_maps(x->map, y->map, depth + 1, left);
    case JINJA_MACRO:
        return x->macro == y->macro;
    default:
        return x->list == y->list; /* the same object: all other kinds are pointers */
    }
}

bool jinja_equal_within(const jinja_value *x, const jinja_value *y, int64_t *left)
{
    return equal_at(x, y, 0, left);
}

bool jinja_equal(const jinja_value *x, const jinja_value *y)
{
    int64_t left = MOST_OF_A_KEY;
    return equal_at(x, y, 0, &left);
}
