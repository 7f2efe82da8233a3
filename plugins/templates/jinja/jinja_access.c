/*
 * jinja_access.c - x.name, x[key], x[a:b:c] and iteration, as in Jinja's environment: the dot looks
 * for a method first, brackets look for an item first. A missing attribute is undefined; an
 * attribute of an undefined value is an error.
 */
#include "jinja_parts.h"
#include "base/utf8.h"
#include <string.h>

/* ---- loop.name ---- */

static jinja_value at_or_undefined(jinja_vm *m, const jinja_loop *l, size_t i, const char *what)
{
    return i < l->n ? l->items[i] : vm_undefined(m, "there is no %s item, loop.%s", what, what);
}

static bool loop_attribute(jinja_vm *m, const jinja_loop *l, const char *name, jinja_value *out)
{
    const struct {
        const char *name;
        int64_t value;
    } numbers[] = {{"index", (int64_t)l->index + 1},
                   {"index0", (int64_t)l->index},
                   {"length", (int64_t)l->n},
                   {"revindex", (int64_t)(l->n - l->index)},
                   {"revindex0", (int64_t)(l->n - l->index) - 1},
                   {"depth", (int64_t)l->depth},
                   {"depth0", (int64_t)l->depth - 1}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (!strcmp(numbers[i].name, name)) {
            *out = jinja_int(numbers[i].value);
            return true;
        }
    if (!strcmp(name, "first"))
        *out = jinja_bool(l->index == 0);
    else if (!strcmp(name, "last"))
        *out = jinja_bool(l->index + 1 == l->n);
    else if (!strcmp(name, "previtem"))
        *out = at_or_undefined(m, l, l->index - 1, "previous");
    else if (!strcmp(name, "nextitem"))
        *out = at_or_undefined(m, l, l->index + 1, "next");
    else
        return false;
    return true;
}

static bool macro_attribute(jinja_vm *m, const jinja_macro *macro, const char *name, jinja_value *out)
{
    const node *d = macro->definition;
    if (!strcmp(name, "name")) {
        *out = d->symbol < 0 ? jinja_string("caller", 6) : d->value;
        return true;
    }
    if (strcmp(name, "arguments") != 0) return false;
    jinja_value *names = vm_alloc(m, (d->n + 1) * sizeof *names);
    for (size_t i = 0; i < d->n; i++)
        names[i] = d->list[i]->value;
    *out = vm_list(m, JINJA_TUPLE, names, d->n);
    return true;
}

/* The result of getattr on a Python object of this kind. */
static bool find_attribute(jinja_vm *m, const jinja_value *of, const char *name, size_t size, jinja_value *out)
{
    if (of->kind == JINJA_LOOP && loop_attribute(m, of->loop, name, out)) return true;
    if (of->kind == JINJA_MACRO && macro_attribute(m, of->macro, name, out)) return true;
    if (of->kind == JINJA_NAMESPACE) {
        const jinja_value *found = jinja_map_find(of->map, jinja_string(name, size));
        if (found) *out = *found;
        return found != NULL;
    }
    return jinja_find_method(m, of, name, size, out);
}

static jinja_value missing(jinja_vm *m, const jinja_value *of, const char *name, size_t size)
{
    return vm_undefined(m, "'%s' of a %s", arena_strndup(&m->memory, name, size < 80 ? size : 80), jinja_kind_name(of));
}

nrl_status vm_attribute(jinja_vm *m, const jinja_value *of, const char *name, size_t size, jinja_value *out)
{
    NRL_TRY(vm_need_defined(of));
    if (find_attribute(m, of, name, size, out)) return NRL_OK;
    const jinja_value *found = of->kind == JINJA_MAP ? jinja_map_find(of->map, jinja_string(name, size)) : NULL;
    *out = found ? *found : missing(m, of, name, size);
    return NRL_OK;
}

/* ---- items ---- */

static bool is_index(const jinja_value *v)
{
    return v->kind == JINJA_INT || v->kind == JINJA_BOOL;
}

static int64_t index_of(const jinja_value *v)
{
    return v->kind == JINJA_BOOL ? v->boolean : v->integer;
}

static bool can_index(const jinja_value *v)
{
    return v->kind == JINJA_LIST || v->kind == JINJA_TUPLE || v->kind == JINJA_RANGE;
}

static jinja_value character(const jinja_value *of, size_t index)
{
    size_t at = text_offset(of->text, of->size, index), n = 0;
    utf8_next(of->text + at, of->text + of->size, &n);
    jinja_value v = jinja_string(of->text + at, n);
    v.markup = of->markup;
    return v;
}

static bool find_index(jinja_vm *m, const jinja_value *of, int64_t i, jinja_value *out)
{
    bool text = of->kind == JINJA_STRING;
    if (!text && !can_index(of)) return false;
    int64_t n = (int64_t)(text ? text_length(of->text, of->size) : of->list->n);
    if (text) m->steps += (int64_t)of->size / 16;
    if (i < 0) i += n;
    if (i < 0 || i >= n) return false;
    *out = text ? character(of, (size_t)i) : of->list->items[i];
    return true;
}

nrl_status vm_look_up(jinja_vm *m, const jinja_map *map, const jinja_value *key)
{
    size_t each = key->kind == JINJA_STRING ? 1 + key->size / 64 : 1;
    return vm_work(m, map->n * each / 8);
}

nrl_status vm_item(jinja_vm *m, const jinja_value *of, const jinja_value *key, jinja_value *out)
{
    NRL_TRY(vm_need_defined(of));
    if (of->kind == JINJA_MAP) {
        NRL_TRY(vm_look_up(m, of->map, key));
        const jinja_value *found = jinja_map_find(of->map, *key);
        if (found) {
            *out = *found;
            return NRL_OK;
        }
    } else if (is_index(key) && find_index(m, of, index_of(key), out))
        return NRL_OK;
    if (key->kind == JINJA_STRING) {
        const char *name = vm_string(m, key->text, key->size).text;
        if (find_attribute(m, of, name, key->size, out)) return NRL_OK;
        *out = missing(m, of, key->text, key->size);
        return NRL_OK;
    }
    if (is_index(key))
        *out = vm_undefined(m, "item %lld of a %s", (long long)index_of(key), jinja_kind_name(of));
    else
        *out = vm_undefined(m, "an item of a %s", jinja_kind_name(of));
    return NRL_OK;
}

/* ---- slices ---- */

static nrl_status slice_bound(const jinja_value *v, int64_t n, int64_t step, int64_t or_value, int64_t *out)
{
    int64_t low = step < 0 ? -1 : 0, high = step < 0 ? n - 1 : n;
    *out = or_value;
    if (v->kind == JINJA_NONE) return NRL_OK;
    if (!is_index(v)) return JINJA_FAIL("a slice: expected whole numbers, found %s", jinja_kind_name(v));
    int64_t i = index_of(v);
    if (i < 0) i = i < -n ? low : i + n;
    *out = i < low ? low : i > high ? high : i;
    return NRL_OK;
}

static nrl_status slice_list(jinja_vm *m, const jinja_value *of, int64_t begin, int64_t step, size_t n,
                             jinja_value *out)
{
    NRL_TRY(vm_room(m, n * sizeof(jinja_value)));
    NRL_TRY(vm_work(m, n / 8));
    jinja_value *items = vm_alloc(m, (n + 1) * sizeof *items);
    for (size_t i = 0; i < n; i++)
        items[i] = of->list->items[begin + (int64_t)i * step];
    *out = vm_list(m, of->kind == JINJA_RANGE ? JINJA_LIST : of->kind, items, n);
    return NRL_OK;
}

static nrl_status slice_text(jinja_vm *m, const jinja_value *of, int64_t begin, int64_t step, size_t n,
                             jinja_value *out)
{
    if (step == 1) {
        size_t from = text_offset(of->text, of->size, (size_t)begin);
        *out = jinja_string(of->text + from, text_offset(of->text + from, of->size - from, n));
        out->markup = of->markup;
        return NRL_OK;
    }
    size_t length = text_length(of->text, of->size), k = 0, bytes;
    NRL_TRY(vm_room(m, (length + 1) * sizeof(size_t)));
    NRL_TRY(vm_work(m, length / 8));
    size_t *starts = vm_alloc(m, (length + 1) * sizeof *starts);
    for (size_t i = 0; i < of->size; i += bytes) {
        utf8_next(of->text + i, of->text + of->size, &bytes);
        starts[k++] = i;
    }
    starts[k] = of->size;
    buffer b = {0};
    for (size_t i = 0; i < n; i++) {
        const size_t *at = starts + begin + (int64_t)i * step;
        buffer_add(&b, of->text + at[0], at[1] - at[0]);
    }
    *out = vm_take(m, &b);
    return NRL_OK;
}

nrl_status vm_slice(jinja_vm *m, const jinja_value *of, const jinja_value part[3], jinja_value *out)
{
    int64_t begin, end, step = part[2].kind == JINJA_NONE ? 1 : index_of(&part[2]);
    bool text = of->kind == JINJA_STRING;
    NRL_TRY(vm_need_defined(of));
    if (part[2].kind != JINJA_NONE && !is_index(&part[2]))
        return JINJA_FAIL("a slice: expected whole numbers, found %s", jinja_kind_name(&part[2]));
    if (!step) return JINJA_FAIL("a slice: a step of 0");
    if (of->kind == JINJA_MAP) return JINJA_FAIL("a slice of a dict");
    if (!text && !can_index(of)) {
        *out = vm_undefined(m, "a slice of a %s", jinja_kind_name(of));
        return NRL_OK;
    }
    int64_t n = (int64_t)(text ? text_length(of->text, of->size) : of->list->n);
    if (step > n) step = n + 1; /* only the first item, without overflow */
    if (step < -n) step = -n - 1;
    NRL_TRY(vm_read(m, of));
    NRL_TRY(slice_bound(&part[0], n, step, step < 0 ? n - 1 : 0, &begin));
    NRL_TRY(slice_bound(&part[1], n, step, step < 0 ? -1 : n, &end));
    NRL_ASSERT(step, !=, 0);
    int64_t count = step > 0 ? (end - begin + step - 1) / step : (begin - end - step - 1) / -step;
    if (step > 0 ? end <= begin : begin <= end) count = 0;
    return text ? slice_text(m, of, begin, step, (size_t)count, out)
                : slice_list(m, of, begin, step, (size_t)count, out);
}

/* ---- iteration ---- */

static nrl_status characters(jinja_vm *m, const jinja_value *of, jinja_value **items, size_t *n)
{
    size_t count = text_length(of->text, of->size), bytes, k = 0;
    NRL_TRY(vm_room(m, count * sizeof(jinja_value)));
    NRL_TRY(vm_work(m, count / 8));
    *items = vm_alloc(m, (count + 1) * sizeof **items);
    for (size_t i = 0; i < of->size; i += bytes) {
        utf8_next(of->text + i, of->text + of->size, &bytes);
        (*items)[k++] = jinja_string(of->text + i, bytes);
    }
    *n = k;
    return NRL_OK;
}

nrl_status vm_items(jinja_vm *m, const jinja_value *of, jinja_value **items, size_t *n)
{
    *items = NULL;
    *n = 0;
    if (of->kind == JINJA_UNDEFINED) return NRL_OK;
    if (of->kind == JINJA_STRING) return characters(m, of, items, n);
    if (of->kind == JINJA_MAP) {
        *items = of->map->keys;
        *n = of->map->n;
        return NRL_OK;
    }
    if (!jinja_is_sequence(of)) return JINJA_FAIL("a %s is not iterable", jinja_kind_name(of));
    *items = of->list->items + of->list->at;
    *n = of->list->n - of->list->at;
    if (of->kind == JINJA_GENERATOR) of->list->at = of->list->n;
    return NRL_OK;
}
