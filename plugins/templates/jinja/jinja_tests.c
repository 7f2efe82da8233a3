/*
 * jinja_tests.c - tests after `is`, and the filters that select items by a test or map them with
 * another filter.
 */
#include "jinja_parts.h"
#include <string.h>

typedef nrl_status test_call(jinja_vm *m, const jinja_value *v, const jinja_args *args, bool *out);

/* ---- tests of the kind of a value ---- */

#define IS(name, condition)                                                                                            \
    static nrl_status test_##name(jinja_vm *m, const jinja_value *v, const jinja_args *args, bool *out)                \
    {                                                                                                                  \
        (void)m;                                                                                                       \
        *out = (condition);                                                                                            \
        return args->n || args->n_named ? JINJA_FAIL(#name " takes no arguments") : NRL_OK;                            \
    }

static bool is_callable(const jinja_value *v)
{
    return v->kind == JINJA_UNDEFINED || (v->kind >= JINJA_MACRO && v->kind <= JINJA_FUNCTION);
}

/* An undefined value is iterable (and empty), as in Jinja. */
static bool is_iterable(const jinja_value *v)
{
    return v->kind == JINJA_UNDEFINED || v->kind == JINJA_STRING || v->kind == JINJA_MAP || v->kind == JINJA_LOOP ||
           jinja_is_sequence(v);
}

static bool has_items(const jinja_value *v)
{
    return is_iterable(v) && v->kind != JINJA_VIEW && v->kind != JINJA_GENERATOR && v->kind != JINJA_LOOP;
}

IS(defined, v->kind != JINJA_UNDEFINED)
IS(undefined, v->kind == JINJA_UNDEFINED)
IS(none, v->kind == JINJA_NONE)
IS(boolean, v->kind == JINJA_BOOL)
IS(true, v->kind == JINJA_BOOL && v->boolean)
IS(false, v->kind == JINJA_BOOL && !v->boolean)
IS(integer, v->kind == JINJA_INT)
IS(float, v->kind == JINJA_FLOAT)
IS(number, jinja_is_number(v))
IS(string, v->kind == JINJA_STRING)
IS(mapping, v->kind == JINJA_MAP)
IS(iterable, is_iterable(v))
IS(sequence, has_items(v))
IS(callable, is_callable(v))
IS(escaped, v->kind == JINJA_STRING && v->markup)

static nrl_status is_cased(jinja_vm *m, const jinja_value *v, const char *method_name, bool *out)
{
    jinja_value text, method, result;
    NRL_TRY(vm_text(m, v, &text));
    jinja_find_method(m, &text, method_name, strlen(method_name), &method);
    NRL_TRY(vm_call(m, &method, &(jinja_args){0}, &result));
    *out = jinja_truth(&result);
    return NRL_OK;
}

static nrl_status test_lower(jinja_vm *m, const jinja_value *v, const jinja_args *args, bool *out)
{
    (void)args;
    return is_cased(m, v, "islower", out);
}

static nrl_status test_upper(jinja_vm *m, const jinja_value *v, const jinja_args *args, bool *out)
{
    (void)args;
    return is_cased(m, v, "isupper", out);
}

/* ---- tests with another value ---- */

static nrl_status other(const char *who, const jinja_args *args, jinja_value *out)
{
    static const char *const names[] = {"other", NULL};
    jinja_value a[MAX_PARAMS];
    NRL_TRY(args_bind(who, names, 1, args, a));
    *out = a[0];
    return NRL_OK;
}

#define COMPARES(name, op)                                                                                             \
    static nrl_status test_##name(jinja_vm *m, const jinja_value *v, const jinja_args *args, bool *out)                \
    {                                                                                                                  \
        jinja_value y;                                                                                                 \
        NRL_TRY(other(#name, args, &y));                                                                               \
        return vm_compare(m, op, v, &y, out);                                                                          \
    }

COMPARES(eq, OP_EQ)
COMPARES(ne, OP_NE)
COMPARES(lt, '<')
COMPARES(le, OP_LE)
COMPARES(gt, '>')
COMPARES(ge, OP_GE)
COMPARES(in, OP_IN)

/* The same object: small equal values are the same object in Python. */
static nrl_status test_sameas(jinja_vm *m, const jinja_value *v, const jinja_args *args, bool *out)
{
    jinja_value y;
    (void)m;
    NRL_TRY(other("sameas", args, &y));
    *out = v->kind == y.kind && (v->kind < JINJA_LIST ? jinja_equal(v, &y) : v->list == y.list);
    return NRL_OK;
}

static nrl_status remainder_is(jinja_vm *m, const jinja_value *v, jinja_value by, int64_t is, bool *out)
{
    jinja_value r, expected = jinja_int(is);
    NRL_TRY(vm_binary(m, '%', v, &by, &r));
    *out = jinja_equal(&r, &expected);
    return NRL_OK;
}

static nrl_status test_divisibleby(jinja_vm *m, const jinja_value *v, const jinja_args *args, bool *out)
{
    jinja_value y;
    NRL_TRY(other("divisibleby", args, &y));
    return remainder_is(m, v, y, 0, out);
}

static nrl_status test_odd(jinja_vm *m, const jinja_value *v, const jinja_args *args, bool *out)
{
    (void)args;
    return remainder_is(m, v, jinja_int(2), 1, out);
}

static nrl_status test_even(jinja_vm *m, const jinja_value *v, const jinja_args *args, bool *out)
{
    (void)args;
    return remainder_is(m, v, jinja_int(2), 0, out);
}

static nrl_status test_filter(jinja_vm *m, const jinja_value *v, const jinja_args *args, bool *out)
{
    (void)m, (void)args;
    *out = v->kind == JINJA_STRING && jinja_find_filter(v->text, v->size);
    return NRL_OK;
}

static nrl_status test_test(jinja_vm *m, const jinja_value *v, const jinja_args *args, bool *out)
{
    (void)m, (void)args;
    *out = v->kind == JINJA_STRING && jinja_find_test(v->text, v->size);
    return NRL_OK;
}

static const jinja_test tests[] = {
    {"defined", test_defined},
    {"undefined", test_undefined},
    {"none", test_none},
    {"boolean", test_boolean},
    {"true", test_true},
    {"false", test_false},
    {"integer", test_integer},
    {"float", test_float},
    {"number", test_number},
    {"string", test_string},
    {"mapping", test_mapping},
    {"iterable", test_iterable},
    {"sequence", test_sequence},
    {"callable", test_callable},
    {"escaped", test_escaped},
    {"lower", test_lower},
    {"upper", test_upper},
    {"eq", test_eq},
    {"equalto", test_eq},
    {"==", test_eq},
    {"ne", test_ne},
    {"!=", test_ne},
    {"lt", test_lt},
    {"lessthan", test_lt},
    {"<", test_lt},
    {"le", test_le},
    {"<=", test_le},
    {"gt", test_gt},
    {"greaterthan", test_gt},
    {">", test_gt},
    {"ge", test_ge},
    {">=", test_ge},
    {"in", test_in},
    {"sameas", test_sameas},
    {"divisibleby", test_divisibleby},
    {"odd", test_odd},
    {"even", test_even},
    {"filter", test_filter},
    {"test", test_test},
};

const jinja_test *jinja_find_test(const char *name, size_t size)
{
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
        if (strlen(tests[i].name) == size && !memcmp(tests[i].name, name, size)) return &tests[i];
    return NULL;
}

/* ---- select, reject, selectattr, rejectattr ---- */

typedef struct {
    bool attribute, keep;
    const char *who;
} pick_rule;

static nrl_status find_picking_test(const pick_rule *rule, const jinja_args *args, const jinja_test **test,
                                    jinja_args *rest)
{
    size_t skip = rule->attribute;
    *test = NULL;
    *rest = *args;
    if (args->n <= skip) rest->n = 0;
    if (args->n < skip) return JINJA_FAIL("%s: argument 'attribute' is missing", rule->who);
    if (!rest->n) return NRL_OK;
    rest->at += skip;
    rest->n -= skip;
    jinja_value name;
    NRL_TRY(args_text(rule->who, &rest->at[0], &name));
    *test = jinja_find_test(name.text, name.size);
    if (!*test)
        return nrl_fail(NRL_ERR_CONFIG, "unknown test '%.*s'", (int)(name.size < 60 ? name.size : 60), name.text);
    rest->at++;
    rest->n--;
    return NRL_OK;
}

static nrl_status pick(jinja_vm *m, const pick_rule *rule, const jinja_value *v, const jinja_args *args,
                       jinja_value *out)
{
    const jinja_test *test;
    jinja_args rest;
    jinja_value *items, of;
    size_t n, kept = 0;
    NRL_TRY(find_picking_test(rule, args, &test, &rest));
    NRL_TRY(vm_items(m, v, &items, &n));
    NRL_TRY(vm_room(m, n * sizeof *items));
    jinja_value *to = vm_alloc(m, (n + 1) * sizeof *to);
    for (size_t i = 0; i < n; i++) {
        bool is;
        of = items[i];
        NRL_TRY(vm_work(m, 1));
        if (rule->attribute) NRL_TRY(vm_path(m, &items[i], &args->at[0], &of));
        NRL_TRY(vm_read(m, &of));
        if (test)
            NRL_TRY(test->call(m, &of, &rest, &is));
        else
            is = jinja_truth(&of);
        if (is == rule->keep) to[kept++] = items[i];
    }
    *out = vm_list(m, JINJA_GENERATOR, to, kept);
    return NRL_OK;
}

#define PICKS(name, with_attribute, keeps)                                                                             \
    static nrl_status filter_##name(jinja_vm *m, const jinja_value *v, const jinja_args *args, jinja_value *out)       \
    {                                                                                                                  \
        static const pick_rule rule = {with_attribute, keeps, #name};                                                  \
        return pick(m, &rule, v, args, out);                                                                           \
    }

PICKS(select, false, true)
PICKS(reject, false, false)
PICKS(selectattr, true, true)
PICKS(rejectattr, true, false)

/* ---- map ---- */

static nrl_status map_attribute(jinja_vm *m, const jinja_args *args, const jinja_value *item, jinja_value *out)
{
    const jinja_value *path = NULL, *or_value = NULL;
    for (size_t i = 0; i < args->n_named; i++) {
        if (!strcmp(args->names[i], "attribute"))
            path = &args->named[i];
        else if (!strcmp(args->names[i], "default"))
            or_value = &args->named[i];
        else
            return JINJA_FAIL("map: no argument is called '%.60s'", args->names[i]);
    }
    if (!path) return JINJA_FAIL("map: expected the name of a filter, or attribute=");
    NRL_TRY(vm_path(m, item, path, out));
    if (out->kind == JINJA_UNDEFINED && or_value) *out = *or_value;
    return NRL_OK;
}

static nrl_status map_one(jinja_vm *m, const jinja_args *args, const jinja_value *item, jinja_value *out)
{
    jinja_value name;
    if (!args->n) return map_attribute(m, args, item, out);
    NRL_TRY(args_text("map", &args->at[0], &name));
    const jinja_filter *f = jinja_find_filter(name.text, name.size);
    if (!f) return nrl_fail(NRL_ERR_CONFIG, "unknown filter '%.*s'", (int)(name.size < 60 ? name.size : 60), name.text);
    jinja_args rest = *args;
    rest.at++;
    rest.n--;
    NRL_TRY(vm_read(m, item));
    return f->call(m, item, &rest, out);
}

static nrl_status filter_map(jinja_vm *m, const jinja_value *v, const jinja_args *args, jinja_value *out)
{
    jinja_value *items;
    size_t n;
    NRL_TRY(vm_items(m, v, &items, &n));
    NRL_TRY(vm_room(m, n * sizeof *items));
    NRL_TRY(vm_enter(m)); /* map of map of map */
    jinja_value *to = vm_alloc(m, (n + 1) * sizeof *to);
    for (size_t i = 0; i < n; i++) {
        NRL_TRY(vm_work(m, 1));
        NRL_TRY(map_one(m, args, &items[i], &to[i]));
    }
    m->depth--;
    *out = vm_list(m, JINJA_GENERATOR, to, n);
    return NRL_OK;
}

const jinja_filter jinja_pick_filters[] = {
    {"select", filter_select},         {"reject", filter_reject}, {"selectattr", filter_selectattr},
    {"rejectattr", filter_rejectattr}, {"map", filter_map},       {0},
};
