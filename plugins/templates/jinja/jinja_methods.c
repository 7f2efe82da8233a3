/*
 * jinja_methods.c - methods of lists, maps and loops, with Python's names, and the lookup of
 * methods. Methods that change their object (append, update, pop) are refused, as in the sandbox of
 * transformers.
 */
#include "jinja_parts.h"
#include <string.h>

nrl_status args_positional(const char *name, const jinja_args *args, size_t least, size_t most, jinja_value v[3])
{
    if (args->n_named) return JINJA_FAIL("%s takes no named arguments", name);
    if (args->n < least || args->n > most)
        return JINJA_FAIL("%s: expected %zu to %zu arguments, found %zu", name, least, most, args->n);
    for (size_t i = 0; i < most; i++)
        v[i] = i < args->n ? args->at[i] : (jinja_value){.kind = JINJA_UNDEFINED};
    return NRL_OK;
}

/* ---- lists ---- */

static nrl_status call_index(jinja_vm *m, const jinja_value *self, const char *name, const jinja_args *args,
                             jinja_value *out)
{
    jinja_value v[3];
    NRL_TRY(args_positional(name, args, 1, 1, v));
    NRL_TRY(vm_work(m, self->list->n / 8));
    for (size_t i = 0; i < self->list->n; i++)
        if (vm_equal(m, &self->list->items[i], &v[0])) {
            *out = jinja_int((int64_t)i);
            return NRL_OK;
        }
    NRL_TRY(vm_work(m, 0));
    return JINJA_FAIL("index: the value is not in the list");
}

static nrl_status call_copy(jinja_vm *m, const jinja_value *self, const char *name, const jinja_args *args,
                            jinja_value *out)
{
    jinja_value v[3];
    (void)m;
    NRL_TRY(args_positional(name, args, 0, 0, v));
    *out = *self;
    return NRL_OK;
}

static nrl_status call_unsafe(jinja_vm *m, const jinja_value *self, const char *name, const jinja_args *args,
                              jinja_value *out)
{
    (void)m, (void)args, (void)out;
    return JINJA_FAIL(
        "'%s' changes a %s, which templates must not do\nhint: templates can set attributes of a namespace", name,
        jinja_kind_name(self));
}

/* ---- maps ---- */

static nrl_status call_get(jinja_vm *m, const jinja_value *self, const char *name, const jinja_args *args,
                           jinja_value *out)
{
    jinja_value v[3];
    NRL_TRY(args_positional(name, args, 1, 2, v));
    NRL_TRY(vm_look_up(m, self->map, &v[0]));
    const jinja_value *found = jinja_map_find(self->map, v[0]);
    *out = found ? *found : args_absent(&v[1]) ? jinja_none() : v[1];
    return NRL_OK;
}

static nrl_status call_view(jinja_vm *m, const jinja_value *self, const char *name, const jinja_args *args,
                            jinja_value *out)
{
    jinja_value v[3];
    const jinja_map *map = self->map;
    NRL_TRY(args_positional(name, args, 0, 0, v));
    NRL_TRY(vm_work(m, map->n / 4));
    jinja_value *items = *name == 'k'   ? map->keys
                         : *name == 'v' ? map->values
                                        : vm_alloc(m, (map->n + 1) * sizeof *items);
    for (size_t i = 0; *name == 'i' && i < map->n; i++) {
        jinja_value *pair = vm_alloc(m, 2 * sizeof *pair);
        pair[0] = map->keys[i];
        pair[1] = map->values[i];
        items[i] = vm_list(m, JINJA_TUPLE, pair, 2);
    }
    *out = vm_list(m, JINJA_VIEW, items, map->n);
    out->list->name = *name == 'k' ? "dict_keys" : *name == 'v' ? "dict_values" : "dict_items";
    return NRL_OK;
}

/* ---- loops ---- */

static nrl_status call_cycle(jinja_vm *m, const jinja_value *self, const char *name, const jinja_args *args,
                             jinja_value *out)
{
    (void)m;
    if (args->n_named || !args->n) return JINJA_FAIL("%s: expected values, without names", name);
    *out = args->at[self->loop->index % args->n];
    return NRL_OK;
}

static nrl_status call_changed(jinja_vm *m, const jinja_value *self, const char *name, const jinja_args *args,
                               jinja_value *out)
{
    if (args->n_named) return JINJA_FAIL("%s: expected values, without names", name);
    jinja_value seen = vm_list(m, JINJA_TUPLE, args->at, args->n);
    *out = jinja_bool(!vm_equal(m, &seen, &self->loop->changed));
    self->loop->changed = seen;
    return vm_work(m, 0);
}

static const method_row methods[] = {
    {JINJA_LIST, "index", call_index},     {JINJA_LIST, "count", method_count},
    {JINJA_LIST, "copy", call_copy},       {JINJA_LIST, "append", call_unsafe},
    {JINJA_LIST, "extend", call_unsafe},   {JINJA_LIST, "insert", call_unsafe},
    {JINJA_LIST, "pop", call_unsafe},      {JINJA_LIST, "remove", call_unsafe},
    {JINJA_LIST, "reverse", call_unsafe},  {JINJA_LIST, "sort", call_unsafe},
    {JINJA_LIST, "clear", call_unsafe},    {JINJA_TUPLE, "index", call_index},
    {JINJA_TUPLE, "count", method_count},  {JINJA_MAP, "get", call_get},
    {JINJA_MAP, "keys", call_view},        {JINJA_MAP, "values", call_view},
    {JINJA_MAP, "items", call_view},       {JINJA_MAP, "copy", call_copy},
    {JINJA_MAP, "update", call_unsafe},    {JINJA_MAP, "pop", call_unsafe},
    {JINJA_MAP, "popitem", call_unsafe},   {JINJA_MAP, "setdefault", call_unsafe},
    {JINJA_MAP, "clear", call_unsafe},     {JINJA_LOOP, "cycle", call_cycle},
    {JINJA_LOOP, "changed", call_changed}, {0},
};

bool jinja_find_method(jinja_vm *m, const jinja_value *self, const char *name, size_t size, jinja_value *out)
{
    const method_row *table = self->kind == JINJA_STRING ? jinja_text_methods : methods;
    for (size_t i = 0; table[i].name; i++) {
        if (table[i].kind != self->kind || strlen(table[i].name) != size || memcmp(table[i].name, name, size) != 0)
            continue;
        jinja_method *bound = vm_alloc(m, sizeof *bound);
        *bound = (jinja_method){&table[i], *self};
        *out = (jinja_value){.kind = JINJA_METHOD, .method = bound};
        return true;
    }
    return false;
}

nrl_status vm_call_method(jinja_vm *m, const jinja_method *method, const jinja_args *args, jinja_value *out)
{
    NRL_TRY(vm_read(m, &method->self));
    return method->row->call(m, &method->self, method->row->name, args, out);
}
