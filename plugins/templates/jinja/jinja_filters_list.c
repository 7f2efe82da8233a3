/*
 * jinja_filters_list.c - filters of lists and maps, and the lookup of filters by name.
 */
#include "jinja_parts.h"
#include "base/utf8.h"
#include <string.h>

static nrl_status no_arguments(const char *who, const jinja_args *args)
{
    return args->n || args->n_named ? JINJA_FAIL("%s takes no arguments", who) : NRL_OK;
}

static jinja_value list_of(jinja_vm *m, jinja_kind kind, jinja_value *items, size_t n)
{
    jinja_value v = vm_list(m, kind, items, n);
    v.list->name = "generator";
    return v;
}

/* A copy that can be sorted. */
static nrl_status copy_items(jinja_vm *m, const jinja_value *v, jinja_value **items, size_t *n)
{
    jinja_value *from;
    NRL_TRY(vm_items(m, v, &from, n));
    NRL_TRY(vm_room(m, *n * sizeof **items));
    NRL_TRY(vm_work(m, *n / 8));
    *items = vm_alloc(m, (*n + 1) * sizeof **items);
    if (*n) memcpy(*items, from, *n * sizeof **items);
    return NRL_OK;
}

static nrl_status path_step(jinja_vm *m, const char *name, size_t size, jinja_value *v)
{
    int64_t index = 0;
    bool digits = size > 0 && size < 10;
    for (size_t i = 0; digits && i < size; i++) {
        digits = name[i] >= '0' && name[i] <= '9';
        index = index * 10 + (name[i] - '0');
    }
    jinja_value key = digits ? jinja_int(index) : jinja_string(name, size), of = *v;
    return vm_item(m, &of, &key, v);
}

nrl_status vm_path(jinja_vm *m, const jinja_value *of, const jinja_value *path, jinja_value *out)
{
    *out = *of;
    if (path->kind == JINJA_INT) return vm_item(m, of, path, out);
    if (path->kind != JINJA_STRING) return JINJA_FAIL("attribute: expected a name, found %s", jinja_kind_name(path));
    const char *p = path->text, *end = p + path->size;
    while (p <= end) {
        const char *dot = memchr(p, '.', (size_t)(end - p));
        const char *stop = dot ? dot : end;
        NRL_TRY(path_step(m, p, (size_t)(stop - p), out));
        p = stop + 1;
    }
    return NRL_OK;
}

/* ---- single items and counts ---- */

static nrl_status filter_length(jinja_vm *m, const jinja_value *v, const jinja_args *args, jinja_value *out)
{
    NRL_TRY(no_arguments("length", args));
    NRL_TRY(vm_work(m, v->kind == JINJA_STRING ? v->size / 4 : 0));
    switch (v->kind) {
    case JINJA_UNDEFINED:
        *out = jinja_int(0);
        return NRL_OK;
    case JINJA_STRING:
        *out = jinja_int((int64_t)text_length(v->text, v->size));
        return NRL_OK;
    case JINJA_MAP:
        *out = jinja_int((int64_t)v->map->n);
        return NRL_OK;
    case JINJA_LOOP:
        *out = jinja_int((int64_t)v->loop->n);
        return NRL_OK;
    case JINJA_GENERATOR:
        return JINJA_FAIL("length: a generator has no length, expected a list");
    default:
        break;
    }
    if (!jinja_is_sequence(v)) return JINJA_FAIL("length: a %s has no length", jinja_kind_name(v));
    *out = jinja_int((int64_t)v->list->n);
    return NRL_OK;
}

static nrl_status filter_first(jinja_vm *m, const jinja_value *v, const jinja_args *args, jinja_value *out)
{
    jinja_value *items;
    size_t n, read = v->kind == JINJA_GENERATOR ? v->list->at : 0;
    NRL_TRY(no_arguments("first", args));
    NRL_TRY(vm_items(m, v, &items, &n));
    *out = n ? items[0] : vm_undefined(m, "the first item of an empty list");
    if (v->kind == JINJA_GENERATOR) v->list->at = read + (n > 0);
    return NRL_OK;
}

static nrl_status filter_last(jinja_vm *m, const jinja_value *v, const jinja_args *args, jinja_value *out)
{
    jinja_value *items;
    size_t n;
    NRL_TRY(no_arguments("last", args));
    if (v->kind == JINJA_GENERATOR) return JINJA_FAIL("last: expected a list, found a generator");
    NRL_TRY(vm_items(m, v, &items, &n));
    *out = n ? items[n - 1] : vm_undefined(m, "the last item of an empty list");
    return NRL_OK;
}

static nrl_status filter_join(jinja_vm *m, const jinja_value *v, const jinja_args *args, jinja_value *out)
{
    static const char *const names[] = {"d", "attribute", NULL};
    jinja_value a[MAX_PARAMS], *items, by = jinja_string("", 0), item;
    size_t n;
    buffer b = {0};
    NRL_TRY(args_bind("join", names, 0, args, a));
    if (!args_absent(&a[0])) NRL_TRY(vm_text(m, &a[0], &by));
    NRL_TRY(vm_items(m, v, &items, &n));
    bool path = !args_absent(&a[1]) && a[1].kind != JINJA_NONE;
    nrl_status st = NRL_OK;
    for (size_t i = 0; i < n && st == NRL_OK; i++) {
        item = items[i];
        st = vm_work(m, 1);
        if (st == NRL_OK && path) st = vm_path(m, &items[i], &a[1], &item);
        if (st == NRL_OK) st = vm_room(m, b.size + by.size);
        if (st != NRL_OK) break;
        if (i) buffer_add(&b, by.text, by.size);
        st = vm_write(m, &item, &b);
    }
    *out = vm_take(m, &b);
    return st;
}

static nrl_status filter_sum(jinja_vm *m, const jinja_value *v, const jinja_args *args, jinja_value *out)
{
    static const char *const names[] = {"attribute", "start", NULL};
    jinja_value a[MAX_PARAMS], *items, item, sum;
    size_t n;
    NRL_TRY(args_bind("sum", names, 0, args, a));
    sum = args_absent(&a[1]) ? jinja_int(0) : a[1];
    NRL_TRY(vm_items(m, v, &items, &n));
    for (size_t i = 0; i < n; i++) {
        item = items[i];
        NRL_TRY(vm_work(m, 1));
        if (!args_absent(&a[0]) && a[0].kind != JINJA_NONE) NRL_TRY(vm_path(m, &items[i], &a[0], &item));
        jinja_value left = sum;
        NRL_TRY(vm_binary(m, '+', &left, &item, &sum));
    }
    *out = sum;
    return NRL_OK;
}

/* ---- order ---- */

typedef struct {
    const jinja_value *path; /* NULL: the items themselves */
    bool cased, reverse;
} order_by;

static nrl_status key_of(jinja_vm *m, const order_by *o, const jinja_value *item, jinja_value *key)
{
    buffer b = {0};
    *key = *item;
    if (o->path) NRL_TRY(vm_path(m, item, o->path, key));
    if (o->cased || key->kind != JINJA_STRING) return NRL_OK;
    NRL_TRY(vm_room(m, key->size * 2));
    text_convert(key->text, key->size, TEXT_LOWER, &b);
    *key = vm_take(m, &b);
    return NRL_OK;
}

static nrl_status merge(jinja_vm *m, jinja_value *at[2], jinja_value *to[2], size_t a, size_t b, size_t end,
                        bool reverse)
{
    size_t i = a, j = b;
    for (size_t k = a; k < end; k++) {
        int order = 0;
        NRL_TRY(vm_work(m, 1));
        if (i < b && j < end) NRL_TRY(vm_order(m, &at[0][j], &at[0][i], &order));
        bool right = i == b || (j < end && (reverse ? order > 0 : order < 0));
        size_t from = right ? j++ : i++;
        to[0][k] = at[0][from];
        to[1][k] = at[1][from];
    }
    return NRL_OK;
}

/* Stable sort by keys [n]; the items are moved along. */
static nrl_status sort_items(jinja_vm *m, const order_by *o, jinja_value *items, size_t n)
{
    jinja_value *at[2] = {vm_alloc(m, (n + 1) * sizeof **at), items};
    jinja_value *to[2] = {vm_alloc(m, (n + 1) * sizeof **to), vm_alloc(m, (n + 1) * sizeof **to)};
    for (size_t i = 0; i < n; i++)
        NRL_TRY(key_of(m, o, &items[i], &at[0][i]));
    for (size_t run = 1; run < n; run *= 2) {
        for (size_t a = 0; a < n; a += 2 * run) {
            size_t b = a + run < n ? a + run : n, end = a + 2 * run < n ? a + 2 * run : n;
            NRL_TRY(merge(m, at, to, a, b, end, o->reverse));
        }
        for (int k = 0; k < 2; k++) {
            jinja_value *swap = at[k];
            at[k] = to[k];
            to[k] = swap;
        }
    }
    if (at[1] != items) memcpy(items, at[1], n * sizeof *items);
    return NRL_OK;
}

static const jinja_value *path_or_null(const jinja_value *v)
{
    return args_absent(v) || v->kind == JINJA_NONE ? NULL : v;
}

static nrl_status filter_sort(jinja_vm *m, const jinja_value *v, const jinja_args *args, jinja_value *out)
{
    static const char *const names[] = {"reverse", "case_sensitive", "attribute", NULL};
    jinja_value a[MAX_PARAMS], *items;
    size_t n;
    NRL_TRY(args_bind("sort", names, 0, args, a));
    NRL_TRY(copy_items(m, v, &items, &n));
    const order_by o = {.path = path_or_null(&a[2]), .cased = jinja_truth(&a[1]), .reverse = jinja_truth(&a[0])};
    if (o.path && o.path->kind == JINJA_STRING && memchr(o.path->text, ',', o.path->size))
        return nrl_fail(NRL_ERR_CONFIG, "sort by several attributes is not supported");
    NRL_TRY(sort_items(m, &o, items, n));
    *out = list_of(m, JINJA_LIST, items, n);
    return NRL_OK;
}

static nrl_status filter_dictsort(jinja_vm *m, const jinja_value *v, const jinja_args *args, jinja_value *out)
{
    static const char *const names[] = {"case_sensitive", "by", "reverse", NULL};
    jinja_value a[MAX_PARAMS], method, view, *items, place = jinja_int(0);
    size_t n;
    NRL_TRY(args_bind("dictsort", names, 0, args, a));
    if (v->kind != JINJA_MAP) return JINJA_FAIL("dictsort: expected a dict, found %s", jinja_kind_name(v));
    if (!args_absent(&a[1])) {
        NRL_TRY(args_text("dictsort", &a[1], &method));
        bool value = method.size == 5 && !memcmp(method.text, "value", 5);
        place = jinja_int(value);
        if (!value && (method.size != 3 || memcmp(method.text, "key", 3) != 0))
            return JINJA_FAIL("dictsort: by: expected key or value");
    }
    jinja_find_method(m, v, "items", 5, &method);
    NRL_TRY(vm_call(m, &method, &(jinja_args){0}, &view));
    NRL_TRY(copy_items(m, &view, &items, &n));
    const order_by o = {.path = &place, .cased = jinja_truth(&a[0]), .reverse = jinja_truth(&a[2])};
    NRL_TRY(sort_items(m, &o, items, n));
    *out = list_of(m, JINJA_LIST, items, n);
    return NRL_OK;
}

static nrl_status extreme(jinja_vm *m, const jinja_value *v, const jinja_args *args, int sign, jinja_value *out)
{
    static const char *const names[] = {"case_sensitive", "attribute", NULL};
    jinja_value a[MAX_PARAMS], *items, best = {0}, key;
    size_t n;
    int order = 0;
    NRL_TRY(args_bind(sign < 0 ? "min" : "max", names, 0, args, a));
    NRL_TRY(vm_items(m, v, &items, &n));
    const order_by o = {.path = path_or_null(&a[1]), .cased = jinja_truth(&a[0])};
    *out = vm_undefined(m, "the smallest or largest item of an empty list");
    for (size_t i = 0; i < n; i++) {
        NRL_TRY(vm_work(m, 1));
        NRL_TRY(key_of(m, &o, &items[i], &key));
        if (i) NRL_TRY(vm_order(m, &key, &best, &order));
        if (i && order * sign <= 0) continue;
        best = key;
        *out = items[i];
    }
    return NRL_OK;
}

static nrl_status filter_min(jinja_vm *m, const jinja_value *v, const jinja_args *args, jinja_value *out)
{
    return extreme(m, v, args, -1, out);
}

static nrl_status filter_max(jinja_vm *m, const jinja_value *v, const jinja_args *args, jinja_value *out)
{
    return extreme(m, v, args, 1, out);
}

static nrl_status filter_unique(jinja_vm *m, const jinja_value *v, const jinja_args *args, jinja_value *out)
{
    static const char *const names[] = {"case_sensitive", "attribute", NULL};
    jinja_value a[MAX_PARAMS], *items, *keys;
    size_t n, kept = 0;
    NRL_TRY(args_bind("unique", names, 0, args, a));
    NRL_TRY(copy_items(m, v, &items, &n));
    const order_by o = {.path = path_or_null(&a[1]), .cased = jinja_truth(&a[0])};
    keys = vm_alloc(m, (n + 1) * sizeof *keys);
    for (size_t i = 0; i < n; i++) {
        size_t j = 0;
        NRL_TRY(key_of(m, &o, &items[i], &keys[kept]));
        NRL_TRY(vm_work(m, 1 + kept / 8));
        while (j < kept && !vm_equal(m, &keys[j], &keys[kept]))
            j++;
        if (j == kept) items[kept++] = items[i];
    }
    *out = list_of(m, JINJA_GENERATOR, items, kept);
    return vm_work(m, 0);
}

static nrl_status filter_reverse(jinja_vm *m, const jinja_value *v, const jinja_args *args, jinja_value *out)
{
    jinja_value *items, parts[3] = {jinja_none(), jinja_none(), jinja_int(-1)};
    size_t n;
    NRL_TRY(no_arguments("reverse", args));
    if (v->kind == JINJA_STRING) return vm_slice(m, v, parts, out);
    NRL_TRY(copy_items(m, v, &items, &n));
    for (size_t i = 0; i < n / 2; i++) {
        jinja_value swap = items[i];
        items[i] = items[n - 1 - i];
        items[n - 1 - i] = swap;
    }
    *out = list_of(m, JINJA_GENERATOR, items, n);
    return NRL_OK;
}

/* ---- lists of lists, and conversions ---- */

static nrl_status filter_list(jinja_vm *m, const jinja_value *v, const jinja_args *args, jinja_value *out)
{
    jinja_value *items;
    size_t n;
    NRL_TRY(no_arguments("list", args));
    NRL_TRY(copy_items(m, v, &items, &n));
    *out = list_of(m, JINJA_LIST, items, n);
    return NRL_OK;
}

static nrl_status filter_batch(jinja_vm *m, const jinja_value *v, const jinja_args *args, jinja_value *out)
{
    static const char *const names[] = {"linecount", "fill_with", NULL};
    jinja_value a[MAX_PARAMS], *items;
    int64_t width;
    size_t n;
    NRL_TRY(args_bind("batch", names, 1, args, a));
    NRL_TRY(args_int("batch", &a[0], 0, &width));
    NRL_TRY(copy_items(m, v, &items, &n));
    if (width < 1) return JINJA_FAIL("batch: expected a number from 1");
    size_t w = (size_t)width, rows = n / w + (n % w != 0);
    jinja_value *lists = vm_alloc(m, (rows + 1) * sizeof *lists);
    for (size_t i = 0; i < rows; i++) {
        size_t have = i + 1 < rows || !(n % w) ? w : n % w;
        bool fill = have < w && path_or_null(&a[1]);
        if (fill) NRL_TRY(vm_room(m, w > SIZE_MAX / 64 ? SIZE_MAX / 2 : w * sizeof *items));
        jinja_value *row = fill ? vm_alloc(m, w * sizeof *row) : items + i * w;
        if (fill) memcpy(row, items + i * w, have * sizeof *row);
        for (; fill && have < w; have++)
            row[have] = a[1];
        lists[i] = list_of(m, JINJA_LIST, row, have);
    }
    *out = list_of(m, JINJA_GENERATOR, lists, rows);
    return NRL_OK;
}

static nrl_status filter_items(jinja_vm *m, const jinja_value *v, const jinja_args *args, jinja_value *out)
{
    jinja_value method;
    NRL_TRY(no_arguments("items", args));
    *out = list_of(m, JINJA_GENERATOR, NULL, 0);
    if (v->kind == JINJA_UNDEFINED) return NRL_OK;
    if (v->kind != JINJA_MAP) return JINJA_FAIL("items: expected a dict, found %s", jinja_kind_name(v));
    jinja_find_method(m, v, "items", 5, &method);
    NRL_TRY(vm_call(m, &method, &(jinja_args){0}, out));
    out->kind = JINJA_GENERATOR;
    return NRL_OK;
}

static nrl_status filter_default(jinja_vm *m, const jinja_value *v, const jinja_args *args, jinja_value *out)
{
    static const char *const names[] = {"default_value", "boolean", NULL};
    jinja_value a[MAX_PARAMS];
    (void)m;
    NRL_TRY(args_bind("default", names, 0, args, a));
    bool keep = v->kind != JINJA_UNDEFINED && (!jinja_truth(&a[1]) || jinja_truth(v));
    *out = keep ? *v : args_absent(&a[0]) ? jinja_string("", 0) : a[0];
    return NRL_OK;
}

const jinja_filter jinja_list_filters[] = {
    {"length", filter_length},   {"count", filter_length},      {"first", filter_first},
    {"last", filter_last},       {"join", filter_join},         {"sum", filter_sum},
    {"sort", filter_sort},       {"dictsort", filter_dictsort}, {"min", filter_min},
    {"max", filter_max},         {"unique", filter_unique},     {"reverse", filter_reverse},
    {"list", filter_list},       {"batch", filter_batch},       {"items", filter_items},
    {"default", filter_default}, {"d", filter_default},         {0},
};

const jinja_filter *jinja_find_filter(const char *name, size_t size)
{
    const jinja_filter *const tables[] = {jinja_text_filters, jinja_list_filters, jinja_pick_filters};
    for (int i = 0; i < 3; i++)
        for (const jinja_filter *f = tables[i]; f->name; f++)
            if (strlen(f->name) == size && !memcmp(f->name, name, size)) return f;
    return NULL;
}
