/*
 * jinja_eval.c - evaluates expressions. Every step counts against the limits of the rendering, and
 * the innermost expression that fails determines the line in the message.
 */
#include "jinja_parts.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- memory and limits ---- */

void *vm_alloc(jinja_vm *m, size_t size)
{
    m->bytes += size + 16;
    return arena_alloc(&m->memory, size ? size : 1);
}

nrl_status vm_room(jinja_vm *m, size_t bytes)
{
    if (bytes <= m->limits.memory && m->bytes <= m->limits.memory - bytes) return NRL_OK;
    return nrl_fail(NRL_ERR_CONFIG, "the template needs more than %zu MiB of memory, the limit of a rendering",
                    m->limits.memory >> 20);
}

nrl_status vm_work(jinja_vm *m, size_t steps)
{
    int64_t n = steps > INT32_MAX ? INT32_MAX : (int64_t)steps;
    m->steps += n;
    if (m->steps <= m->limits.steps) return vm_room(m, 0);
    return nrl_fail(NRL_ERR_CONFIG, "the template takes more than %lld steps, the limit of a row",
                    (long long)m->limits.steps);
}

nrl_status vm_read(jinja_vm *m, const jinja_value *v)
{
    return v->kind == JINJA_STRING ? vm_work(m, v->size / 16) : NRL_OK;
}

nrl_status vm_enter(jinja_vm *m)
{
    if (++m->depth <= m->limits.depth) return vm_work(m, 1);
    return nrl_fail(NRL_ERR_CONFIG, "more than %d nested expressions, statements and macros", m->limits.depth);
}

jinja_value vm_string(jinja_vm *m, const char *text, size_t size)
{
    m->bytes += size + 16;
    return jinja_string(arena_strndup(&m->memory, text, size), size);
}

jinja_value vm_list(jinja_vm *m, jinja_kind kind, jinja_value *items, size_t n)
{
    m->bytes += sizeof(jinja_list) + 16;
    return jinja_list_of(&m->memory, kind, items, n);
}

jinja_value vm_map(jinja_vm *m)
{
    m->bytes += sizeof(jinja_map) + 16;
    return jinja_map_new(&m->memory);
}

/* Both arrays double; the old ones stay in the arena. */
void vm_map_set(jinja_vm *m, jinja_map *map, jinja_value key, jinja_value value)
{
    m->bytes += 4 * sizeof value;
    jinja_map_set(&m->memory, map, key, value);
}

jinja_value vm_take(jinja_vm *m, buffer *b)
{
    jinja_value v = vm_string(m, b->text ? b->text : "", b->size);
    buffer_free(b);
    return v;
}

jinja_value vm_undefined(jinja_vm *m, const char *fmt, ...)
{
    char text[160];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    jinja_value v = vm_string(m, text, strlen(text));
    v.kind = JINJA_UNDEFINED;
    return v;
}

/* ---- names ---- */

jinja_scope *scope_new(jinja_vm *m, jinja_scope *parent)
{
    jinja_scope *s = vm_alloc(m, sizeof *s);
    s->parent = parent;
    return s;
}

static jinja_value *slot_of(const jinja_scope *s, int32_t symbol)
{
    for (size_t i = 0; i < s->n; i++)
        if (s->slots[i].symbol == symbol) return &s->slots[i].value;
    return NULL;
}

const jinja_value *scope_find(const jinja_scope *s, int32_t symbol)
{
    const jinja_value *found = NULL;
    for (; s && !found; s = s->parent)
        found = slot_of(s, symbol);
    return found;
}

void scope_set(jinja_vm *m, jinja_scope *s, int32_t symbol, jinja_value value)
{
    jinja_value *slot = slot_of(s, symbol);
    if (slot) {
        *slot = value;
        return;
    }
    if (s->n == s->room) {
        s->room = s->room ? s->room * 2 : 4;
        scope_slot *more = vm_alloc(m, s->room * sizeof *more);
        if (s->n) memcpy(more, s->slots, s->n * sizeof *more);
        s->slots = more;
    }
    s->slots[s->n++] = (scope_slot){symbol, value};
}

static jinja_value eval_name(jinja_vm *m, const jinja_scope *s, const node *n)
{
    const jinja_value *found = scope_find(s, n->symbol);
    if (found) return *found;
    const jinja_function *f = jinja_find_function(n->value.text);
    if (f) return (jinja_value){.kind = JINJA_FUNCTION, .function = f};
    return vm_undefined(m, "'%.*s'", (int)(n->value.size < 80 ? n->value.size : 80), n->value.text);
}

/* ---- literals ---- */

static nrl_status eval_list(jinja_vm *m, jinja_scope *s, const node *n, jinja_value *out)
{
    jinja_value *items = vm_alloc(m, (n->n + 1) * sizeof *items);
    for (size_t i = 0; i < n->n; i++)
        NRL_TRY(vm_eval(m, s, n->list[i], &items[i]));
    *out = vm_list(m, n->kind == NODE_LIST ? JINJA_LIST : JINJA_TUPLE, items, n->n);
    return NRL_OK;
}

static nrl_status eval_map(jinja_vm *m, jinja_scope *s, const node *n, jinja_value *out)
{
    jinja_value key, value;
    *out = vm_map(m);
    for (size_t i = 0; i + 1 < n->n; i += 2) {
        NRL_TRY(vm_eval(m, s, n->list[i], &key));
        NRL_TRY(vm_eval(m, s, n->list[i + 1], &value));
        NRL_TRY(vm_look_up(m, out->map, &key));
        if (key.kind == JINJA_LIST || key.kind == JINJA_MAP)
            return JINJA_FAIL("a %s cannot be a key", jinja_kind_name(&key));
        vm_map_set(m, out->map, key, value);
    }
    return NRL_OK;
}

static nrl_status eval_concat(jinja_vm *m, jinja_scope *s, const node *n, jinja_value *out)
{
    buffer b = {0};
    nrl_status st = NRL_OK;
    for (size_t i = 0; i < n->n && st == NRL_OK; i++) {
        jinja_value v;
        st = vm_eval(m, s, n->list[i], &v);
        if (st == NRL_OK) st = vm_write(m, &v, &b);
    }
    *out = vm_take(m, &b);
    return st;
}

/* ---- access ---- */

static nrl_status eval_attribute(jinja_vm *m, jinja_scope *s, const node *n, jinja_value *out)
{
    jinja_value of;
    NRL_TRY(vm_eval(m, s, n->a, &of));
    return vm_attribute(m, &of, n->value.text, n->value.size, out);
}

static nrl_status eval_item(jinja_vm *m, jinja_scope *s, const node *n, jinja_value *out)
{
    jinja_value of, key;
    NRL_TRY(vm_eval(m, s, n->a, &of));
    NRL_TRY(vm_eval(m, s, n->b, &key));
    return vm_item(m, &of, &key, out);
}

static nrl_status eval_slice(jinja_vm *m, jinja_scope *s, const node *n, jinja_value *out)
{
    jinja_value of, part[3];
    NRL_TRY(vm_eval(m, s, n->a, &of));
    for (int i = 0; i < 3; i++) {
        part[i] = jinja_none();
        if (n->list[i]) NRL_TRY(vm_eval(m, s, n->list[i], &part[i]));
    }
    return vm_slice(m, &of, part, out);
}

/* ---- calls ---- */

typedef struct {
    jinja_args *args;
    size_t room, named_room;
} args_builder;

static void add_positional(jinja_vm *m, args_builder *b, jinja_value v)
{
    jinja_args *a = b->args;
    if (a->n == b->room) {
        b->room = b->room ? b->room * 2 : 4;
        jinja_value *more = vm_alloc(m, b->room * sizeof *more);
        if (a->n) memcpy(more, a->at, a->n * sizeof *more);
        a->at = more;
    }
    a->at[a->n++] = v;
}

static nrl_status add_named(jinja_vm *m, args_builder *b, const char *name, jinja_value v)
{
    jinja_args *a = b->args;
    for (size_t i = 0; i < a->n_named; i++)
        if (!strcmp(a->names[i], name)) return JINJA_FAIL("argument '%.60s' twice", name);
    if (a->n_named == b->named_room) {
        b->named_room = b->named_room ? b->named_room * 2 : 4;
        jinja_value *more = vm_alloc(m, b->named_room * sizeof *more);
        const char **names = vm_alloc(m, b->named_room * sizeof *names);
        if (a->n_named) memcpy(more, a->named, a->n_named * sizeof *more);
        if (a->n_named) memcpy(names, a->names, a->n_named * sizeof *names);
        a->named = more;
        a->names = names;
    }
    a->names[a->n_named] = name;
    a->named[a->n_named++] = v;
    return vm_work(m, 1 + a->n_named / 8);
}

static nrl_status spread_map(jinja_vm *m, args_builder *b, const jinja_value *v)
{
    if (v->kind != JINJA_MAP) return JINJA_FAIL("**: expected a dict, found %s", jinja_kind_name(v));
    for (size_t i = 0; i < v->map->n; i++) {
        const jinja_value *key = &v->map->keys[i];
        if (key->kind != JINJA_STRING) return JINJA_FAIL("**: expected names as keys");
        NRL_TRY(add_named(m, b, vm_string(m, key->text, key->size).text, v->map->values[i]));
    }
    return NRL_OK;
}

static nrl_status spread_list(jinja_vm *m, args_builder *b, const jinja_value *v)
{
    jinja_value *items;
    size_t n;
    NRL_TRY(vm_items(m, v, &items, &n));
    for (size_t i = 0; i < n; i++) {
        NRL_TRY(vm_work(m, 1));
        add_positional(m, b, items[i]);
    }
    return NRL_OK;
}

nrl_status vm_arguments(jinja_vm *m, jinja_scope *s, const node *n, jinja_args *out)
{
    *out = (jinja_args){0};
    args_builder b = {.args = out};
    for (size_t i = 0; i < n->n; i++) {
        const node *arg = n->list[i];
        jinja_value v;
        NRL_TRY(vm_eval(m, s, arg->a, &v));
        if (arg->op == '*')
            NRL_TRY(spread_list(m, &b, &v));
        else if (arg->op == OP_STARS)
            NRL_TRY(spread_map(m, &b, &v));
        else if (arg->value.kind == JINJA_STRING)
            NRL_TRY(add_named(m, &b, arg->value.text, v));
        else
            add_positional(m, &b, v);
    }
    return NRL_OK;
}

static nrl_status eval_call(jinja_vm *m, jinja_scope *s, const node *n, jinja_value *out)
{
    jinja_value callee;
    jinja_args args;
    NRL_TRY(vm_eval(m, s, n->a, &callee));
    NRL_TRY(vm_arguments(m, s, n, &args));
    return vm_call(m, &callee, &args, out);
}

static nrl_status one_filter(jinja_vm *m, jinja_scope *s, const node *n, const jinja_value *input, jinja_value *out)
{
    jinja_args args;
    if (!n->filter) return nrl_fail(NRL_ERR_CONFIG, "unknown filter '%s'", n->value.text);
    NRL_TRY(vm_arguments(m, s, n, &args));
    NRL_TRY(vm_read(m, input));
    return n->filter->call(m, input, &args, out);
}

/* A chain of filters applied to `input`, which replaces the value at its head. */
nrl_status vm_filter(jinja_vm *m, jinja_scope *s, const node *n, jinja_value input, jinja_value *out)
{
    *out = input;
    if (!n) return NRL_OK;
    NRL_TRY(vm_enter(m));
    NRL_TRY(vm_filter(m, s, n->a, input, &input));
    m->depth--;
    return one_filter(m, s, n, &input, out);
}

static nrl_status eval_filter(jinja_vm *m, jinja_scope *s, const node *n, jinja_value *out)
{
    jinja_value v;
    NRL_TRY(vm_eval(m, s, n->a, &v));
    return one_filter(m, s, n, &v, out);
}

static nrl_status eval_test(jinja_vm *m, jinja_scope *s, const node *n, jinja_value *out)
{
    jinja_value v;
    jinja_args args;
    bool is;
    NRL_TRY(vm_eval(m, s, n->a, &v));
    if (!n->test) return nrl_fail(NRL_ERR_CONFIG, "unknown test '%s'", n->value.text);
    NRL_TRY(vm_arguments(m, s, n, &args));
    NRL_TRY(vm_read(m, &v));
    NRL_TRY(n->test->call(m, &v, &args, &is));
    *out = jinja_bool(is != n->flag);
    return NRL_OK;
}

/* ---- operators ---- */

static nrl_status eval_sign(jinja_vm *m, jinja_scope *s, const node *n, jinja_value *out)
{
    jinja_value v, zero = jinja_int(0);
    NRL_TRY(vm_eval(m, s, n->a, &v));
    NRL_TRY(vm_need_defined(&v));
    if (!jinja_is_number(&v)) return JINJA_FAIL("a sign: expected a number, found %s", jinja_kind_name(&v));
    if (v.kind != JINJA_FLOAT) return vm_binary(m, n->op, &zero, &v, out);
    *out = jinja_float(n->op == '-' ? -v.real : v.real);
    return NRL_OK;
}

static nrl_status eval_logic(jinja_vm *m, jinja_scope *s, const node *n, jinja_value *out)
{
    NRL_TRY(vm_eval(m, s, n->a, out));
    return jinja_truth(out) == (n->kind == NODE_AND) ? vm_eval(m, s, n->b, out) : NRL_OK;
}

static nrl_status eval_compare(jinja_vm *m, jinja_scope *s, const node *n, jinja_value *out)
{
    jinja_value left, right;
    bool is = true;
    NRL_TRY(vm_eval(m, s, n->a, &left));
    for (size_t i = 0; i < n->n && is; i++) {
        NRL_TRY(vm_eval(m, s, n->list[i]->a, &right));
        NRL_TRY(vm_compare(m, n->list[i]->op, &left, &right, &is));
        left = right;
    }
    *out = jinja_bool(is);
    return NRL_OK;
}

static nrl_status eval_condition(jinja_vm *m, jinja_scope *s, const node *n, jinja_value *out)
{
    jinja_value is;
    NRL_TRY(vm_eval(m, s, n->a, &is));
    if (jinja_truth(&is)) return vm_eval(m, s, n->b, out);
    if (n->c) return vm_eval(m, s, n->c, out);
    *out = vm_undefined(m, "the value of an `if` without `else`");
    return NRL_OK;
}

static nrl_status eval_binary(jinja_vm *m, jinja_scope *s, const node *n, jinja_value *out)
{
    jinja_value x, y;
    NRL_TRY(vm_eval(m, s, n->a, &x));
    NRL_TRY(vm_eval(m, s, n->b, &y));
    return vm_binary(m, n->op, &x, &y, out);
}

static nrl_status eval_not(jinja_vm *m, jinja_scope *s, const node *n, jinja_value *out)
{
    jinja_value v;
    NRL_TRY(vm_eval(m, s, n->a, &v));
    *out = jinja_bool(!jinja_truth(&v));
    return NRL_OK;
}

static nrl_status eval_node(jinja_vm *m, jinja_scope *s, const node *n, jinja_value *out)
{
    switch (n->kind) {
    case NODE_CONST:
        *out = n->value;
        return NRL_OK;
    case NODE_NAME:
        *out = eval_name(m, s, n);
        return NRL_OK;
    case NODE_LIST:
    case NODE_TUPLE:
        return eval_list(m, s, n, out);
    case NODE_MAP:
        return eval_map(m, s, n, out);
    case NODE_ATTR:
        return eval_attribute(m, s, n, out);
    case NODE_ITEM:
        return eval_item(m, s, n, out);
    case NODE_SLICE:
        return eval_slice(m, s, n, out);
    case NODE_CALL:
        return eval_call(m, s, n, out);
    case NODE_FILTER:
        return eval_filter(m, s, n, out);
    case NODE_TEST:
        return eval_test(m, s, n, out);
    case NODE_NOT:
        return eval_not(m, s, n, out);
    case NODE_NEG:
        return eval_sign(m, s, n, out);
    case NODE_BINARY:
        return eval_binary(m, s, n, out);
    case NODE_AND:
    case NODE_OR:
        return eval_logic(m, s, n, out);
    case NODE_CONCAT:
        return eval_concat(m, s, n, out);
    case NODE_COMPARE:
        return eval_compare(m, s, n, out);
    case NODE_COND:
        return eval_condition(m, s, n, out);
    default:
        return nrl_fail(NRL_ERR_BUG, "no expression: %d", (int)n->kind);
    }
}

nrl_status vm_eval(jinja_vm *m, jinja_scope *s, const node *n, jinja_value *out)
{
    nrl_status st = vm_enter(m);
    if (st == NRL_OK) st = eval_node(m, s, n, out);
    if (st != NRL_OK && !m->failed_line) m->failed_line = n->line;
    m->depth--;
    return st;
}
