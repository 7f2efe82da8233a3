/*
 * jinja_call.c - arguments of functions, filters and methods, and the functions of every template:
 * range, dict, namespace, raise_exception, strftime_now.
 */
#include "jinja_parts.h"
#include <inttypes.h>
#include <string.h>

/* ---- arguments ---- */

bool args_absent(const jinja_value *v)
{
    return v->kind == JINJA_UNDEFINED && !v->text;
}

static int param_index(const char *const *names, const char *name)
{
    for (int i = 0; names[i]; i++)
        if (!strcmp(names[i], name)) return i;
    return -1;
}

nrl_status args_bind(const char *who, const char *const *names, size_t required, const jinja_args *args,
                     jinja_value *out)
{
    size_t n = 0;
    while (names[n])
        out[n++] = (jinja_value){.kind = JINJA_UNDEFINED};
    if (args->n > n) return JINJA_FAIL("%s: expected %zu arguments at most, found %zu", who, n, args->n);
    for (size_t i = 0; i < args->n; i++)
        out[i] = args->at[i];
    for (size_t i = 0; i < args->n_named; i++) {
        int at = param_index(names, args->names[i]);
        if (at < 0) return JINJA_FAIL("%s: no argument is called '%.60s'", who, args->names[i]);
        if ((size_t)at < args->n) return JINJA_FAIL("%s: argument '%s' twice", who, names[at]);
        out[at] = args->named[i];
    }
    for (size_t i = 0; i < required; i++)
        if (args_absent(&out[i])) return JINJA_FAIL("%s: argument '%s' is missing", who, names[i]);
    return NRL_OK;
}

nrl_status args_int(const char *who, const jinja_value *v, int64_t or_value, int64_t *out)
{
    *out = or_value;
    if (args_absent(v) || v->kind == JINJA_NONE) return NRL_OK;
    if (v->kind != JINJA_INT && v->kind != JINJA_BOOL)
        return JINJA_FAIL("%s: expected a whole number, found %s", who, jinja_kind_name(v));
    *out = v->kind == JINJA_BOOL ? v->boolean : v->integer;
    return NRL_OK;
}

nrl_status args_text(const char *who, const jinja_value *v, jinja_value *out)
{
    if (v->kind != JINJA_STRING) return JINJA_FAIL("%s: expected text, found %s", who, jinja_kind_name(v));
    *out = *v;
    return NRL_OK;
}

/* ---- functions ---- */

enum { MAX_RANGE = 100000 }; /* the limit of jinja2.sandbox */

static nrl_status range_bounds(const jinja_args *args, int64_t bound[3])
{
    static const char *const names[] = {"start", "stop", "step", NULL};
    jinja_value v[MAX_PARAMS];
    if (args->n_named) return JINJA_FAIL("range takes no named arguments");
    NRL_TRY(args_bind("range", names, 1, args, v));
    for (int i = 0; i < 3; i++)
        if (!args_absent(&v[i]) && v[i].kind != JINJA_INT && v[i].kind != JINJA_BOOL)
            return JINJA_FAIL("range: expected whole numbers, found %s", jinja_kind_name(&v[i]));
    NRL_TRY(args_int("range", &v[0], 0, &bound[0]));
    NRL_TRY(args_int("range", &v[1], 0, &bound[1]));
    NRL_TRY(args_int("range", &v[2], 1, &bound[2]));
    if (args->n == 1) {
        bound[1] = bound[0];
        bound[0] = 0;
    }
    return bound[2] ? NRL_OK : JINJA_FAIL("range: a step of 0");
}

static nrl_status call_range(jinja_vm *m, const jinja_args *args, jinja_value *out)
{
    int64_t b[3];
    NRL_TRY(range_bounds(args, b));
    double span = b[2] > 0 ? (double)b[1] - (double)b[0] : (double)b[0] - (double)b[1];
    double step = b[2] > 0 ? (double)b[2] : -(double)b[2];
    if (span / step > MAX_RANGE) return JINJA_FAIL("range: more than %d numbers", MAX_RANGE);
    size_t n = 0, room = span > 0 ? (size_t)(span / step) + 1 : 0;
    NRL_TRY(vm_room(m, room * sizeof(jinja_value)));
    NRL_TRY(vm_work(m, room / 8));
    jinja_value *items = vm_alloc(m, (room + 1) * sizeof *items);
    for (int64_t i = b[0]; n < room && (b[2] > 0 ? i < b[1] : i > b[1]);) {
        items[n++] = jinja_int(i);
        if (__builtin_add_overflow(i, b[2], &i)) break;
    }
    *out = vm_list(m, JINJA_RANGE, items, n);
    out->list->name = b[2] == 1
                          ? arena_printf(&m->memory, "range(%" PRId64 ", %" PRId64 ")", b[0], b[1])
                          : arena_printf(&m->memory, "range(%" PRId64 ", %" PRId64 ", %" PRId64 ")", b[0], b[1], b[2]);
    return NRL_OK;
}

/* Adds a map, or pairs. */
static nrl_status add_all(jinja_vm *m, const jinja_value *from, jinja_map *to)
{
    jinja_value *items;
    size_t n;
    if (from->kind == JINJA_MAP) {
        NRL_TRY(vm_room(m, from->map->n * 4 * sizeof(jinja_value)));
        for (size_t i = 0; i < from->map->n; i++) {
            NRL_TRY(vm_look_up(m, to, &from->map->keys[i]));
            vm_map_set(m, to, from->map->keys[i], from->map->values[i]);
        }
        return NRL_OK;
    }
    NRL_TRY(vm_items(m, from, &items, &n));
    for (size_t i = 0; i < n; i++) {
        if (!jinja_is_sequence(&items[i]) || items[i].list->n != 2)
            return JINJA_FAIL("dict: expected pairs of key and value");
        NRL_TRY(vm_work(m, 1));
        NRL_TRY(vm_look_up(m, to, &items[i].list->items[0]));
        vm_map_set(m, to, items[i].list->items[0], items[i].list->items[1]);
    }
    return NRL_OK;
}

static nrl_status call_dict(jinja_vm *m, const jinja_args *args, jinja_value *out)
{
    *out = vm_map(m);
    if (args->n > 1) return JINJA_FAIL("dict: expected 1 argument at most, found %zu", args->n);
    if (args->n) NRL_TRY(add_all(m, &args->at[0], out->map));
    for (size_t i = 0; i < args->n_named; i++)
        vm_map_set(m, out->map, jinja_string(args->names[i], strlen(args->names[i])), args->named[i]);
    return NRL_OK;
}

static nrl_status call_namespace(jinja_vm *m, const jinja_args *args, jinja_value *out)
{
    NRL_TRY(call_dict(m, args, out));
    for (size_t i = 0; i < out->map->n; i++)
        if (out->map->keys[i].kind == JINJA_STRING && *out->map->keys[i].text == '_')
            return JINJA_FAIL("names in a namespace must not begin with _");
    out->kind = JINJA_NAMESPACE;
    return NRL_OK;
}

static nrl_status call_raise(jinja_vm *m, const jinja_args *args, jinja_value *out)
{
    static const char *const names[] = {"message", NULL};
    jinja_value v[MAX_PARAMS], text;
    NRL_TRY(args_bind("raise_exception", names, 1, args, v));
    NRL_TRY(vm_text(m, &v[0], &text));
    *out = text;
    return JINJA_FAIL("%.*s", (int)(text.size < 2000 ? text.size : 2000), text.text);
}

static nrl_status call_strftime(jinja_vm *m, const jinja_args *args, jinja_value *out)
{
    static const char *const names[] = {"format", NULL};
    jinja_value v[MAX_PARAMS];
    NRL_TRY(args_bind("strftime_now", names, 1, args, v));
    return vm_strftime(m, &v[0], out);
}

static nrl_status call_unknown(jinja_vm *m, const jinja_args *args, jinja_value *out)
{
    (void)m, (void)args, (void)out;
    return nrl_fail(NRL_ERR_CONFIG, "cycler, joiner and lipsum are not supported");
}

static const jinja_function functions[] = {
    {"range", call_range},           {"dict", call_dict},
    {"namespace", call_namespace},   {"raise_exception", call_raise},
    {"strftime_now", call_strftime}, {"cycler", call_unknown},
    {"joiner", call_unknown},        {"lipsum", call_unknown},
};

const jinja_function *jinja_find_function(const char *name)
{
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        if (!strcmp(functions[i].name, name)) return &functions[i];
    return NULL;
}

nrl_status vm_call(jinja_vm *m, const jinja_value *callee, const jinja_args *args, jinja_value *out)
{
    NRL_TRY(vm_need_defined(callee));
    switch (callee->kind) {
    case JINJA_MACRO:
        return vm_call_macro(m, callee->macro, args, out);
    case JINJA_FUNCTION:
        return callee->function->call(m, args, out);
    case JINJA_METHOD:
        return vm_call_method(m, callee->method, args, out);
    default:
        return JINJA_FAIL("a %s cannot be called", jinja_kind_name(callee));
    }
}
