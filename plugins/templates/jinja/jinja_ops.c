/*
 * jinja_ops.c - arithmetic, comparisons and `in`, with the rules and errors of Python.
 */
#include "jinja_parts.h"
#include "base/utf8.h"
#include <math.h>
#include <string.h>

nrl_status vm_need_defined(const jinja_value *v)
{
    if (v->kind != JINJA_UNDEFINED) return NRL_OK;
    return JINJA_FAIL("%.*s is undefined", (int)(v->size < 200 ? v->size : 200), v->text ? v->text : "a value");
}

static int64_t whole(const jinja_value *v)
{
    return v->kind == JINJA_BOOL ? v->boolean : v->integer;
}

static double real(const jinja_value *v)
{
    return v->kind == JINJA_FLOAT ? v->real : (double)whole(v);
}

/* ---- numbers ---- */

static nrl_status fail_large(void)
{
    return nrl_fail(NRL_ERR_CONFIG, "an integer beyond 64 bits is not supported");
}

static nrl_status int_power(int64_t x, int64_t n, jinja_value *out)
{
    int64_t r = 1;
    if (n < 0) {
        if (!x) return JINJA_FAIL("0 to a negative power");
        *out = jinja_float(pow((double)x, (double)n));
        return NRL_OK;
    }
    if (x == 1 || x == 0 || x == -1) { /* whose powers are small for any exponent */
        *out = jinja_int(x == -1 ? (n % 2 ? -1 : 1) : n ? x : 1);
        return NRL_OK;
    }
    for (; n; n--)
        if (__builtin_mul_overflow(r, x, &r)) return fail_large();
    *out = jinja_int(r);
    return NRL_OK;
}

static nrl_status int_divide(char op, int64_t x, int64_t y, jinja_value *out)
{
    if (!y) return JINJA_FAIL("division by zero");
    if (op == '/') {
        *out = jinja_float((double)x / (double)y);
        return NRL_OK;
    }
    if (y == -1) { /* INT64_MIN / -1 has no result */
        if (op == OP_FLOOR && x == INT64_MIN) return fail_large();
        *out = jinja_int(op == OP_FLOOR ? -x : 0);
        return NRL_OK;
    }
    int64_t q = x / y, r = x % y;
    if (r && (r < 0) != (y < 0)) {
        q--;
        r += y;
    }
    *out = jinja_int(op == OP_FLOOR ? q : r);
    return NRL_OK;
}

static nrl_status int_binary(char op, int64_t x, int64_t y, jinja_value *out)
{
    int64_t r = 0;
    bool large = false;
    switch (op) {
    case '+':
        large = __builtin_add_overflow(x, y, &r);
        break;
    case '-':
        large = __builtin_sub_overflow(x, y, &r);
        break;
    case '*':
        large = __builtin_mul_overflow(x, y, &r);
        break;
    case OP_POW:
        return int_power(x, y, out);
    default:
        return int_divide(op, x, y, out);
    }
    if (large) return fail_large();
    *out = jinja_int(r);
    return NRL_OK;
}

static nrl_status float_binary(char op, double x, double y, jinja_value *out)
{
    bool divides = op == '/' || op == '%' || op == OP_FLOOR;
    if (divides && y == 0) return JINJA_FAIL("division by zero");
    double r = 0;
    switch (op) {
    case '+':
        r = x + y;
        break;
    case '-':
        r = x - y;
        break;
    case '*':
        r = x * y;
        break;
    case '/':
        r = x / y;
        break;
    case OP_FLOOR:
        r = floor(x / y);
        break;
    case '%':
        r = fmod(x, y);
        if (r != 0 && (r < 0) != (y < 0)) r += y;
        break;
    default:
        if (x == 0 && y < 0) return JINJA_FAIL("0 to a negative power");
        r = pow(x, y);
        if (isnan(r) && !isnan(x) && !isnan(y)) return JINJA_FAIL("a root of a negative number");
    }
    *out = jinja_float(r);
    return NRL_OK;
}

/* ---- text and lists ---- */

static void add_escaped(buffer *b, const jinja_value *v, bool escape)
{
    for (size_t i = 0; i < v->size; i++) {
        const char *name = NULL;
        switch (escape ? v->text[i] : 0) {
        case '&':
            name = "&amp;";
            break;
        case '<':
            name = "&lt;";
            break;
        case '>':
            name = "&gt;";
            break;
        case '\'':
            name = "&#39;";
            break;
        case '"':
            name = "&#34;";
            break;
        default:
            break;
        }
        if (name)
            buffer_puts(b, name);
        else
            buffer_add(b, &v->text[i], 1);
    }
}

/* If safe text is joined, the result is safe. */
static nrl_status add_text(jinja_vm *m, const jinja_value *x, const jinja_value *y, jinja_value *out)
{
    buffer b = {0};
    bool markup = x->markup || y->markup;
    NRL_TRY(vm_room(m, x->size + y->size));
    if (markup) {
        add_escaped(&b, x, !x->markup);
        add_escaped(&b, y, !y->markup);
        *out = vm_take(m, &b);
        out->markup = true;
        return NRL_OK;
    }
    char *text = vm_alloc(m, x->size + y->size + 1);
    if (x->size) memcpy(text, x->text, x->size);
    if (y->size) memcpy(text + x->size, y->text, y->size);
    *out = jinja_string(text, x->size + y->size);
    return NRL_OK;
}

static nrl_status add_lists(jinja_vm *m, const jinja_value *x, const jinja_value *y, jinja_value *out)
{
    size_t n = x->list->n + y->list->n;
    NRL_TRY(vm_room(m, n * sizeof(jinja_value)));
    NRL_TRY(vm_work(m, n / 8));
    jinja_value *items = vm_alloc(m, (n + 1) * sizeof *items);
    if (x->list->n) memcpy(items, x->list->items, x->list->n * sizeof *items);
    if (y->list->n) memcpy(items + x->list->n, y->list->items, y->list->n * sizeof *items);
    *out = vm_list(m, x->kind, items, n);
    return NRL_OK;
}

static nrl_status repeat(jinja_vm *m, const jinja_value *x, int64_t times, jinja_value *out)
{
    bool text = x->kind == JINJA_STRING;
    size_t n = text ? x->size : x->list->n, unit = text ? 1 : sizeof(jinja_value), total;
    if (times < 0) times = 0;
    if (__builtin_mul_overflow(n * unit, (size_t)times, &total)) total = SIZE_MAX / 2;
    NRL_TRY(vm_room(m, total));
    NRL_TRY(vm_work(m, n ? (size_t)times / 8 : 0));
    char *to = vm_alloc(m, total + 1);
    for (size_t i = 0; total && i < (size_t)times; i++)
        memcpy(to + i * n * unit, text ? (const void *)x->text : (const void *)x->list->items, n * unit);
    *out = text ? jinja_string(to, total) : vm_list(m, x->kind, (jinja_value *)(void *)to, total / unit);
    out->markup = x->markup;
    return NRL_OK;
}

static bool can_repeat(const jinja_value *v)
{
    return v->kind == JINJA_STRING || v->kind == JINJA_LIST || v->kind == JINJA_TUPLE;
}

static bool is_whole(const jinja_value *v)
{
    return v->kind == JINJA_INT || v->kind == JINJA_BOOL;
}

static nrl_status fail_operands(char op, const jinja_value *x, const jinja_value *y)
{
    const char text[2] = {op, 0};
    return JINJA_FAIL("%s is not supported between %s and %s",
                      op == OP_POW     ? "**"
                      : op == OP_FLOOR ? "//"
                                       : text,
                      jinja_kind_name(x), jinja_kind_name(y));
}

nrl_status vm_binary(jinja_vm *m, char op, const jinja_value *x, const jinja_value *y, jinja_value *out)
{
    NRL_TRY(vm_need_defined(x));
    if (op == '%' && x->kind == JINJA_STRING) return vm_percent(m, x, y, out);
    NRL_TRY(vm_need_defined(y));
    if (is_whole(x) && is_whole(y)) return int_binary(op, whole(x), whole(y), out);
    if (jinja_is_number(x) && jinja_is_number(y)) return float_binary(op, real(x), real(y), out);
    if (op == '+' && x->kind == JINJA_STRING && y->kind == JINJA_STRING) return add_text(m, x, y, out);
    if (op == '+' && x->kind == y->kind && (x->kind == JINJA_LIST || x->kind == JINJA_TUPLE))
        return add_lists(m, x, y, out);
    if (op == '*' && can_repeat(x) && is_whole(y)) return repeat(m, x, whole(y), out);
    if (op == '*' && can_repeat(y) && is_whole(x)) return repeat(m, y, whole(x), out);
    return fail_operands(op, x, y);
}

/* ---- order ---- */

bool vm_equal(jinja_vm *m, const jinja_value *x, const jinja_value *y)
{
    enum { A_STEP = 8 };
    const int64_t most = A_STEP * (m->limits.steps - m->steps + 1);
    int64_t left = most;
    bool same = jinja_equal_within(x, y, &left);
    m->steps += (most - left) / A_STEP;
    return same;
}

static int order_text(const jinja_value *x, const jinja_value *y)
{
    size_t n = x->size < y->size ? x->size : y->size;
    int r = n ? memcmp(x->text, y->text, n) : 0;
    if (!r) r = (x->size > y->size) - (x->size < y->size);
    return (r > 0) - (r < 0);
}

static nrl_status order_lists(jinja_vm *m, const jinja_list *x, const jinja_list *y, int *out)
{
    for (size_t i = 0; i < x->n && i < y->n; i++) {
        NRL_TRY(vm_work(m, 1));
        if (vm_equal(m, &x->items[i], &y->items[i])) continue;
        NRL_TRY(vm_enter(m));
        nrl_status st = vm_order(m, &x->items[i], &y->items[i], out);
        m->depth--;
        return st;
    }
    *out = (x->n > y->n) - (x->n < y->n);
    return vm_work(m, 0);
}

nrl_status vm_order(jinja_vm *m, const jinja_value *x, const jinja_value *y, int *out)
{
    NRL_TRY(vm_need_defined(x));
    NRL_TRY(vm_need_defined(y));
    if (is_whole(x) && is_whole(y)) {
        *out = (whole(x) > whole(y)) - (whole(x) < whole(y));
        return NRL_OK;
    }
    if (jinja_is_number(x) && jinja_is_number(y)) {
        *out = (real(x) > real(y)) - (real(x) < real(y));
        return NRL_OK;
    }
    if (x->kind == JINJA_STRING && y->kind == JINJA_STRING) {
        NRL_TRY(vm_read(m, x->size < y->size ? x : y));
        *out = order_text(x, y);
        return NRL_OK;
    }
    if (x->kind == y->kind && (x->kind == JINJA_LIST || x->kind == JINJA_TUPLE))
        return order_lists(m, x->list, y->list, out);
    return JINJA_FAIL("%s and %s cannot be ordered", jinja_kind_name(x), jinja_kind_name(y));
}

nrl_status vm_compare(jinja_vm *m, char op, const jinja_value *x, const jinja_value *y, bool *out)
{
    int order = 0;
    if (op == OP_EQ || op == OP_NE) {
        *out = vm_equal(m, x, y) == (op == OP_EQ);
        return vm_work(m, 0);
    }
    if (op == OP_IN || op == OP_NOT_IN) {
        NRL_TRY(vm_contains(m, y, x, out));
        *out = *out == (op == OP_IN);
        return NRL_OK;
    }
    bool nan = (x->kind == JINJA_FLOAT && isnan(x->real)) || (y->kind == JINJA_FLOAT && isnan(y->real));
    NRL_TRY(vm_order(m, x, y, &order));
    *out = !nan && (op == '<' ? order < 0 : op == '>' ? order > 0 : op == OP_LE ? order <= 0 : order >= 0);
    return NRL_OK;
}

/* ---- in ---- */

static nrl_status contains_text(jinja_vm *m, const jinja_value *in, const jinja_value *what, bool *out)
{
    NRL_TRY(vm_need_defined(what));
    if (what->kind != JINJA_STRING)
        return JINJA_FAIL("`in` a text: expected text to look for, found %s", jinja_kind_name(what));
    NRL_TRY(vm_read(m, in));
    NRL_TRY(vm_read(m, what));
    *out = !what->size || (in->size && text_find(in->text, in->size, what->text, what->size));
    return NRL_OK;
}

nrl_status vm_contains(jinja_vm *m, const jinja_value *in, const jinja_value *what, bool *out)
{
    jinja_value *items;
    size_t n;
    *out = false;
    if (in->kind == JINJA_UNDEFINED) return NRL_OK;
    if (in->kind == JINJA_STRING) return contains_text(m, in, what, out);
    if (in->kind == JINJA_MAP) {
        if (what->kind == JINJA_LIST || what->kind == JINJA_MAP)
            return JINJA_FAIL("a %s cannot be a key", jinja_kind_name(what));
        NRL_TRY(vm_look_up(m, in->map, what));
        *out = jinja_map_find(in->map, *what) != NULL;
        return NRL_OK;
    }
    NRL_TRY(vm_items(m, in, &items, &n));
    NRL_TRY(vm_work(m, n / 8));
    for (size_t i = 0; i < n && !*out; i++)
        *out = vm_equal(m, &items[i], what);
    return vm_work(m, 0);
}
