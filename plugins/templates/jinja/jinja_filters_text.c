/*
 * jinja_filters_text.c - filters of text and numbers. `tojson` is that of transformers, which does
 * not escape HTML; all others are Jinja's own without autoescape.
 */
#include "jinja_parts.h"
#include "base/utf8.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- text ---- */

static nrl_status filter_trim(jinja_vm *m, const jinja_value *v, const jinja_args *args, jinja_value *out)
{
    static const char *const names[] = {"chars", NULL};
    jinja_value a[MAX_PARAMS], set = {.kind = JINJA_UNDEFINED};
    NRL_TRY(args_bind("trim", names, 0, args, a));
    if (!args_absent(&a[0]) && a[0].kind != JINJA_NONE) NRL_TRY(args_text("trim", &a[0], &set));
    NRL_TRY(vm_text(m, v, out));
    NRL_TRY(vm_strip(m, out->size, set.kind == JINJA_STRING ? set.size : 0));
    text_strip(&out->text, &out->size, set.kind == JINJA_STRING ? set.text : NULL, set.size, true, true);
    return NRL_OK;
}

static nrl_status convert(jinja_vm *m, const jinja_value *v, const jinja_args *args, text_case to, jinja_value *out)
{
    jinja_value text;
    buffer b = {0};
    if (args->n || args->n_named) return JINJA_FAIL("upper, lower, title and capitalize take no arguments");
    NRL_TRY(vm_text(m, v, &text));
    NRL_TRY(vm_room(m, text.size * 2));
    NRL_TRY(vm_work(m, text.size / 16));
    text_convert(text.text, text.size, to, &b);
    *out = vm_take(m, &b);
    out->markup = text.markup;
    return NRL_OK;
}

static nrl_status filter_upper(jinja_vm *m, const jinja_value *v, const jinja_args *args, jinja_value *out)
{
    return convert(m, v, args, TEXT_UPPER, out);
}

static nrl_status filter_lower(jinja_vm *m, const jinja_value *v, const jinja_args *args, jinja_value *out)
{
    return convert(m, v, args, TEXT_LOWER, out);
}

static nrl_status filter_title(jinja_vm *m, const jinja_value *v, const jinja_args *args, jinja_value *out)
{
    return convert(m, v, args, TEXT_TITLE_WORDS, out);
}

static nrl_status filter_capitalize(jinja_vm *m, const jinja_value *v, const jinja_args *args, jinja_value *out)
{
    return convert(m, v, args, TEXT_CAPITALIZE, out);
}

static nrl_status replace_all(jinja_vm *m, const jinja_value *of, const jinja_value *from, const jinja_value *to,
                              int64_t count, buffer *b)
{
    const char *p = of->text, *end = p + of->size, *found;
    NRL_TRY(vm_work(m, of->size / 16));
    while (count-- != 0 && (found = from->size ? text_find(p, (size_t)(end - p), from->text, from->size) : p)) {
        /* an empty pattern matches between all characters */
        size_t step = 0;
        if (!from->size && found < end) utf8_next(found, end, &step);
        NRL_TRY(vm_room(m, b->size + to->size));
        buffer_add(b, p, (size_t)(found - p));
        buffer_add(b, to->text, to->size);
        buffer_add(b, found, step);
        p = found + from->size + step;
        if (!from->size && !step) return NRL_OK;
    }
    buffer_add(b, p, (size_t)(end - p));
    return NRL_OK;
}

static nrl_status filter_replace(jinja_vm *m, const jinja_value *v, const jinja_args *args, jinja_value *out)
{
    static const char *const names[] = {"old", "new", "count", NULL};
    jinja_value a[MAX_PARAMS], text;
    int64_t count;
    buffer b = {0};
    NRL_TRY(args_bind("replace", names, 2, args, a));
    NRL_TRY(args_int("replace", &a[2], -1, &count));
    NRL_TRY(vm_text(m, v, &text));
    NRL_TRY(vm_text(m, &a[0], &a[0]));
    NRL_TRY(vm_text(m, &a[1], &a[1]));
    if (!text.text) text.text = "";
    nrl_status st = replace_all(m, &text, &a[0], &a[1], count, &b);
    *out = vm_take(m, &b);
    return st;
}

static nrl_status filter_string(jinja_vm *m, const jinja_value *v, const jinja_args *args, jinja_value *out)
{
    if (args->n || args->n_named) return JINJA_FAIL("string takes no arguments");
    return vm_text(m, v, out);
}

static nrl_status filter_safe(jinja_vm *m, const jinja_value *v, const jinja_args *args, jinja_value *out)
{
    NRL_TRY(filter_string(m, v, args, out));
    out->markup = true;
    return NRL_OK;
}

/* Joining plain text to something safe escapes it; safe text stays as it is. */
static nrl_status filter_escape(jinja_vm *m, const jinja_value *v, const jinja_args *args, jinja_value *out)
{
    jinja_value text, empty = jinja_string("", 0);
    empty.markup = true;
    NRL_TRY(filter_string(m, v, args, &text));
    return vm_binary(m, '+', &empty, &text, out);
}

static jinja_value blanks_of(jinja_vm *m, int64_t width)
{
    size_t n = width < 0 ? 0 : (size_t)width;
    char *blanks = vm_alloc(m, n + 1);
    memset(blanks, ' ', n);
    return jinja_string(blanks, n);
}

static nrl_status filter_indent(jinja_vm *m, const jinja_value *v, const jinja_args *args, jinja_value *out)
{
    static const char *const names[] = {"width", "first", "blank", NULL};
    jinja_value a[MAX_PARAMS], method, lines, none = {0};
    int64_t width = 4;
    buffer b = {0};
    NRL_TRY(args_bind("indent", names, 0, args, a));
    if (a[0].kind != JINJA_STRING) NRL_TRY(args_int("indent", &a[0], 4, &width));
    if (v->kind != JINJA_STRING) return JINJA_FAIL("indent: expected text, found %s", jinja_kind_name(v));
    if (width > 10000) return JINJA_FAIL("indent: more than 10000 spaces");
    jinja_value in = a[0];
    if (in.kind != JINJA_STRING) in = blanks_of(m, width);
    (void)none;
    jinja_find_method(m, v, "splitlines", 10, &method);
    NRL_TRY(vm_call(m, &method, &(jinja_args){0}, &lines));
    /* a final line end begins an empty line */
    bool open = v->size && memchr("\n\r\v\f", v->text[v->size - 1], 4);
    size_t n = lines.list->n + (open || !v->size);
    nrl_status st = NRL_OK;
    if (jinja_truth(&a[1])) buffer_add(&b, in.text, in.size);
    for (size_t i = 0; i < n && st == NRL_OK; i++) {
        jinja_value line = i < lines.list->n ? lines.list->items[i] : jinja_string("", 0);
        st = vm_room(m, b.size + in.size + line.size);
        if (i) buffer_puts(&b, "\n");
        if (i && (line.size || jinja_truth(&a[2]))) buffer_add(&b, in.text, in.size);
        buffer_add(&b, line.text, line.size);
    }
    *out = vm_take(m, &b);
    out->markup = v->markup;
    return st;
}

static nrl_status filter_format(jinja_vm *m, const jinja_value *v, const jinja_args *args, jinja_value *out)
{
    jinja_value text;
    if (args->n && args->n_named) return JINJA_FAIL("format: values with names or without, not both");
    NRL_TRY(vm_text(m, v, &text));
    jinja_value values = vm_list(m, JINJA_TUPLE, args->at, args->n);
    if (args->n_named) values = vm_map(m);
    for (size_t i = 0; i < args->n_named; i++)
        vm_map_set(m, values.map, jinja_string(args->names[i], strlen(args->names[i])), args->named[i]);
    return vm_percent(m, &text, &values, out);
}

static nrl_status filter_center(jinja_vm *m, const jinja_value *v, const jinja_args *args, jinja_value *out)
{
    static const char *const names[] = {"width", NULL};
    jinja_value a[MAX_PARAMS], text, method;
    NRL_TRY(args_bind("center", names, 0, args, a));
    if (args_absent(&a[0])) a[0] = jinja_int(80);
    NRL_TRY(vm_text(m, v, &text));
    if (!jinja_find_method(m, &text, "center", 6, &method)) return JINJA_FAIL("center: expected text");
    return vm_call(m, &method, &(jinja_args){.at = a, .n = 1}, out);
}

static nrl_status filter_wordcount(jinja_vm *m, const jinja_value *v, const jinja_args *args, jinja_value *out)
{
    jinja_value text;
    int64_t n = 0;
    bool inside = false;
    size_t bytes;
    NRL_TRY(filter_string(m, v, args, &text));
    NRL_TRY(vm_work(m, text.size / 16));
    for (size_t i = 0; i < text.size; i += bytes) {
        bool word = text_is_word(utf8_next(text.text + i, text.text + text.size, &bytes));
        n += word && !inside;
        inside = word;
    }
    *out = jinja_int(n);
    return NRL_OK;
}

/* ---- JSON ---- */

/* indent: a number of spaces, or text; separators: (", ", ": "), where the first is "," if there is
 * an indent. */
static nrl_status json_options(jinja_vm *m, const jinja_value *a, json_style *style)
{
    int64_t width;
    *style = (json_style){.item = ", ", .key = ": ", .ascii = jinja_truth(&a[0]), .sort = jinja_truth(&a[3])};
    if (a[1].kind == JINJA_STRING) {
        style->indent = vm_string(m, a[1].text, a[1].size).text;
    } else if (!args_absent(&a[1]) && a[1].kind != JINJA_NONE) {
        NRL_TRY(args_int("tojson: indent", &a[1], 0, &width));
        if (width > 1000) return JINJA_FAIL("tojson: an indent of more than 1000 spaces");
        style->indent = blanks_of(m, width).text;
    }
    if (style->indent) style->item = ",";
    if (args_absent(&a[2]) || a[2].kind == JINJA_NONE) return NRL_OK;
    if ((a[2].kind != JINJA_TUPLE && a[2].kind != JINJA_LIST) || a[2].list->n != 2)
        return JINJA_FAIL("tojson: separators: expected two texts");
    const jinja_value *both = a[2].list->items;
    if (both[0].kind != JINJA_STRING || both[1].kind != JINJA_STRING)
        return JINJA_FAIL("tojson: separators: expected two texts");
    style->item = vm_string(m, both[0].text, both[0].size).text;
    style->key = vm_string(m, both[1].text, both[1].size).text;
    return NRL_OK;
}

static nrl_status filter_tojson(jinja_vm *m, const jinja_value *v, const jinja_args *args, jinja_value *out)
{
    static const char *const names[] = {"ensure_ascii", "indent", "separators", "sort_keys", NULL};
    jinja_value a[MAX_PARAMS];
    json_style style;
    buffer b = {0};
    NRL_TRY(args_bind("tojson", names, 0, args, a));
    NRL_TRY(json_options(m, a, &style));
    nrl_status st = vm_write_json(m, v, &style, 0, &b);
    *out = vm_take(m, &b);
    return st;
}

/* ---- numbers ---- */

/* Parses a number as Python's int() and float() do: white space around it, _ between digits. */
static bool read_number(const jinja_value *v, double *real, int64_t *whole, bool *is_whole)
{
    const char *text = v->text;
    size_t size = v->size, n = 0;
    char digits[64], *end;
    text_strip(&text, &size, NULL, 0, true, true);
    for (size_t i = 0; i < size; i++) {
        bool joint = text[i] == '_' && i && i + 1 < size && text[i - 1] >= '0' && text[i - 1] <= '9' &&
                     text[i + 1] >= '0' && text[i + 1] <= '9';
        if (joint) continue;
        if (n + 1 == sizeof digits || text[i] == 'x' || text[i] == 'X' || text[i] == '_' || text[i] == '(')
            return false;
        digits[n++] = text[i];
    }
    digits[n] = 0;
    if (!n || strlen(digits) != n || strchr(" \t\n\v\f\r", digits[0])) return false;
    char *stop;
    *whole = strtoll(digits, &stop, 10);
    *real = strtod(digits, &end);
    *is_whole = !*stop && fabs(*real) < 9e18;
    return !*end;
}

static nrl_status filter_int(jinja_vm *m, const jinja_value *v, const jinja_args *args, jinja_value *out)
{
    static const char *const names[] = {"default", "base", NULL};
    jinja_value a[MAX_PARAMS];
    int64_t base, whole = 0;
    double real = 0;
    bool is_whole = false, reads = false;
    (void)m;
    NRL_TRY(args_bind("int", names, 0, args, a));
    NRL_TRY(args_int("int", &a[1], 10, &base));
    NRL_TRY(vm_need_defined(v));
    if (base != 10) return nrl_fail(NRL_ERR_CONFIG, "int: a base other than 10 is not supported");
    *out = args_absent(&a[0]) ? jinja_int(0) : a[0];
    if (v->kind == JINJA_INT || v->kind == JINJA_BOOL) {
        *out = jinja_int(v->kind == JINJA_BOOL ? v->boolean : v->integer);
        return NRL_OK;
    }
    if (v->kind == JINJA_FLOAT) real = v->real;
    reads = v->kind == JINJA_FLOAT || (v->kind == JINJA_STRING && read_number(v, &real, &whole, &is_whole));
    if (!reads || !isfinite(real)) return NRL_OK;
    if (fabs(real) >= 9e18) return nrl_fail(NRL_ERR_CONFIG, "an integer beyond 64 bits is not supported");
    *out = jinja_int(is_whole ? whole : (int64_t)real);
    return NRL_OK;
}

static nrl_status filter_float(jinja_vm *m, const jinja_value *v, const jinja_args *args, jinja_value *out)
{
    static const char *const names[] = {"default", NULL};
    jinja_value a[MAX_PARAMS];
    int64_t whole;
    double real;
    bool is_whole;
    (void)m;
    NRL_TRY(args_bind("float", names, 0, args, a));
    NRL_TRY(vm_need_defined(v));
    *out = args_absent(&a[0]) ? jinja_float(0) : a[0];
    if (v->kind == JINJA_FLOAT)
        *out = *v;
    else if (jinja_is_number(v))
        *out = jinja_float(v->kind == JINJA_BOOL ? v->boolean : (double)v->integer);
    else if (v->kind == JINJA_STRING && read_number(v, &real, &whole, &is_whole))
        *out = jinja_float(real);
    return NRL_OK;
}

static nrl_status filter_abs(jinja_vm *m, const jinja_value *v, const jinja_args *args, jinja_value *out)
{
    if (args->n || args->n_named) return JINJA_FAIL("abs takes no arguments");
    if (!jinja_is_number(v)) return JINJA_FAIL("abs: expected a number, found %s", jinja_kind_name(v));
    if (v->kind == JINJA_FLOAT) {
        *out = jinja_float(fabs(v->real));
        return NRL_OK;
    }
    jinja_value zero = jinja_int(0);
    if (v->kind == JINJA_INT && v->integer < 0) return vm_binary(m, '-', &zero, v, out);
    return vm_binary(m, '+', &zero, v, out);
}

static double round_common(double x, int64_t places)
{
    char text[400];
    if (places < 0) return nearbyint(x / pow(10, (double)-places)) * pow(10, (double)-places);
    snprintf(text, sizeof text, "%.*f", (int)(places > 40 ? 40 : places), x);
    return strtod(text, NULL);
}

static nrl_status filter_round(jinja_vm *m, const jinja_value *v, const jinja_args *args, jinja_value *out)
{
    static const char *const names[] = {"precision", "method", NULL};
    jinja_value a[MAX_PARAMS], method = jinja_string("common", 6);
    int64_t places;
    (void)m;
    NRL_TRY(args_bind("round", names, 0, args, a));
    NRL_TRY(args_int("round", &a[0], 0, &places));
    if (!args_absent(&a[1])) NRL_TRY(args_text("round", &a[1], &method));
    if (!jinja_is_number(v)) return JINJA_FAIL("round: expected a number, found %s", jinja_kind_name(v));
    if (places > 300 || places < -300) return JINJA_FAIL("round: a precision beyond 300");
    double x = v->kind == JINJA_FLOAT ? v->real : v->kind == JINJA_INT ? (double)v->integer : v->boolean;
    double scale = pow(10, (double)places);
    if (method.size == 6 && !memcmp(method.text, "common", 6)) {
        bool whole = v->kind != JINJA_FLOAT && places >= 0;
        if (whole)
            *out = jinja_int(v->kind == JINJA_BOOL ? v->boolean : v->integer);
        else
            *out = v->kind == JINJA_FLOAT ? jinja_float(isfinite(x) ? round_common(x, places) : x)
                                          : jinja_int((int64_t)round_common(x, places));
        return NRL_OK;
    }
    bool up = method.size == 4 && !memcmp(method.text, "ceil", 4);
    if (!up && !(method.size == 5 && !memcmp(method.text, "floor", 5)))
        return JINJA_FAIL("round: expected common, ceil or floor");
    *out = jinja_float((up ? ceil(x * scale) : floor(x * scale)) / scale);
    return NRL_OK;
}

const jinja_filter jinja_text_filters[] = {
    {"trim", filter_trim},
    {"upper", filter_upper},
    {"lower", filter_lower},
    {"title", filter_title},
    {"capitalize", filter_capitalize},
    {"replace", filter_replace},
    {"string", filter_string},
    {"safe", filter_safe},
    {"escape", filter_escape},
    {"e", filter_escape},
    {"indent", filter_indent},
    {"format", filter_format},
    {"center", filter_center},
    {"wordcount", filter_wordcount},
    {"tojson", filter_tojson},
    {"int", filter_int},
    {"float", filter_float},
    {"abs", filter_abs},
    {"round", filter_round},
    {0},
};
