/*
 * jinja_write.c - values as text: Python's str() and repr(), and JSON as json.dumps writes it.
 */
#include "jinja_parts.h"
#include "base/utf8.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

enum { MAX_WRITE_DEPTH = 100 };

/* ---- numbers ---- */

/* The fewest digits that read back as x, as in Python's repr. */
static int shortest(double x, char digits[40])
{
    for (int precision = 1; precision <= 17; precision++) {
        snprintf(digits, 40, "%.*e", precision - 1, x);
        if (strtod(digits, NULL) == x) return precision;
    }
    return 17;
}

void jinja_write_float(double x, buffer *out)
{
    char digits[40];
    if (isnan(x) || isinf(x)) {
        buffer_puts(out, isnan(x) ? "nan" : x < 0 ? "-inf" : "inf");
        return;
    }
    int precision = shortest(x, digits), exponent = atoi(strchr(digits, 'e') + 1);
    if (exponent >= -4 && exponent < 16) {
        int places = precision - 1 - exponent;
        buffer_print(out, "%.*f", places > 1 ? places : 1, x);
        return;
    }
    buffer_print(out, "%.*se%c%02d", (int)(strchr(digits, 'e') - digits), digits, exponent < 0 ? '-' : '+',
                 abs(exponent));
}

/* ---- strings ---- */

static bool is_printable(int32_t c)
{
    if (c == ' ') return true;
    utf8proc_category_t k = utf8proc_category(c);
    return !(k == UTF8PROC_CATEGORY_CC || k == UTF8PROC_CATEGORY_CF || k == UTF8PROC_CATEGORY_CS ||
             k == UTF8PROC_CATEGORY_CO || k == UTF8PROC_CATEGORY_CN || k == UTF8PROC_CATEGORY_ZL ||
             k == UTF8PROC_CATEGORY_ZP || k == UTF8PROC_CATEGORY_ZS);
}

static void write_hidden(int32_t c, buffer *out)
{
    if (c == '\n')
        buffer_puts(out, "\\n");
    else if (c == '\r')
        buffer_puts(out, "\\r");
    else if (c == '\t')
        buffer_puts(out, "\\t");
    else if (c < 0x100)
        buffer_print(out, "\\x%02x", (unsigned)c);
    else
        buffer_print(out, c < 0x10000 ? "\\u%04x" : "\\U%08x", (unsigned)c);
}

static void write_quoted(const jinja_value *v, buffer *out)
{
    bool single = v->size && memchr(v->text, '\'', v->size) && !memchr(v->text, '"', v->size);
    char quote = single ? '"' : '\'';
    size_t n;
    buffer_add(out, &quote, 1);
    for (size_t i = 0; i < v->size; i += n) {
        int32_t c = utf8_next(v->text + i, v->text + v->size, &n);
        if (c == quote || c == '\\') buffer_puts(out, "\\");
        if (is_printable(c))
            buffer_add(out, v->text + i, n);
        else
            write_hidden(c, out);
    }
    buffer_add(out, &quote, 1);
}

/* ---- str() and repr() ---- */

static nrl_status too_deep(int depth)
{
    if (depth < MAX_WRITE_DEPTH) return NRL_OK;
    return nrl_fail(NRL_ERR_CONFIG, "a value of more than %d nested lists and maps", MAX_WRITE_DEPTH);
}

static nrl_status write_items(jinja_vm *m, const jinja_list *list, const char *open, const char *close, int depth,
                              buffer *out)
{
    buffer_puts(out, open);
    for (size_t i = 0; i < list->n; i++) {
        if (i) buffer_puts(out, ", ");
        NRL_TRY(vm_write_repr(m, &list->items[i], depth + 1, out));
    }
    buffer_puts(out, close);
    return NRL_OK;
}

static nrl_status write_map(jinja_vm *m, const jinja_map *map, int depth, buffer *out)
{
    buffer_puts(out, "{");
    for (size_t i = 0; i < map->n; i++) {
        if (i) buffer_puts(out, ", ");
        NRL_TRY(vm_write_repr(m, &map->keys[i], depth + 1, out));
        buffer_puts(out, ": ");
        NRL_TRY(vm_write_repr(m, &map->values[i], depth + 1, out));
    }
    buffer_puts(out, "}");
    return NRL_OK;
}

static nrl_status write_view(jinja_vm *m, const jinja_value *v, int depth, buffer *out)
{
    buffer_puts(out, v->list->name);
    return write_items(m, v->list, "([", "])", depth, out);
}

nrl_status vm_write_repr(jinja_vm *m, const jinja_value *v, int depth, buffer *out)
{
    NRL_TRY(too_deep(depth));
    NRL_TRY(vm_room(m, out->size));
    NRL_TRY(vm_work(m, 1));
    switch (v->kind) {
    case JINJA_UNDEFINED:
        buffer_puts(out, "Undefined");
        return NRL_OK;
    case JINJA_NONE:
        buffer_puts(out, "None");
        return NRL_OK;
    case JINJA_BOOL:
        buffer_puts(out, v->boolean ? "True" : "False");
        return NRL_OK;
    case JINJA_INT:
        buffer_print(out, "%" PRId64, v->integer);
        return NRL_OK;
    case JINJA_FLOAT:
        jinja_write_float(v->real, out);
        return NRL_OK;
    case JINJA_STRING:
        write_quoted(v, out);
        return NRL_OK;
    case JINJA_LIST:
        return write_items(m, v->list, "[", "]", depth, out);
    case JINJA_TUPLE:
        return write_items(m, v->list, "(", v->list->n == 1 ? ",)" : ")", depth, out);
    case JINJA_VIEW:
        return write_view(m, v, depth, out);
    case JINJA_RANGE:
        buffer_puts(out, v->list->name);
        return NRL_OK;
    case JINJA_MAP:
        return write_map(m, v->map, depth, out);
    case JINJA_NAMESPACE:
        buffer_puts(out, "<Namespace ");
        NRL_TRY(write_map(m, v->map, depth, out));
        buffer_puts(out, ">");
        return NRL_OK;
    default:
        /* Python prints an address, which no template can want */
        return JINJA_FAIL("a %s has no text representation", jinja_kind_name(v));
    }
}

nrl_status vm_write(jinja_vm *m, const jinja_value *v, buffer *out)
{
    if (v->kind == JINJA_UNDEFINED) return NRL_OK;
    if (v->kind != JINJA_STRING) return vm_write_repr(m, v, 0, out);
    NRL_TRY(vm_room(m, out->size + v->size));
    buffer_add(out, v->text, v->size);
    return NRL_OK;
}

nrl_status vm_text(jinja_vm *m, const jinja_value *v, jinja_value *out)
{
    buffer b = {0};
    *out = *v;
    if (v->kind == JINJA_STRING) return NRL_OK;
    nrl_status st = vm_write(m, v, &b);
    *out = vm_take(m, &b);
    return st;
}

/* ---- JSON ---- */

static void write_json_text(const jinja_value *v, bool ascii, buffer *out)
{
    static const char plain[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
    size_t n;
    buffer_puts(out, "\"");
    for (size_t i = 0; i < v->size; i += n) {
        int32_t c = utf8_next(v->text + i, v->text + v->size, &n);
        const char *found = c && c < 128 ? strchr(plain, c) : NULL;
        if (found)
            buffer_print(out, "\\%c", letters[found - plain]);
        else if (c < 32 || (ascii && c > 126 && c < 0x10000))
            buffer_print(out, "\\u%04x", (unsigned)c);
        else if (ascii && c >= 0x10000)
            buffer_print(out, "\\u%04x\\u%04x", 0xD800u + ((unsigned)(c - 0x10000) >> 10),
                         0xDC00u + ((unsigned)c & 0x3FF));
        else
            buffer_add(out, v->text + i, n);
    }
    buffer_puts(out, "\"");
}

static void new_line(const json_style *style, int depth, buffer *out)
{
    if (!style->indent) return;
    buffer_puts(out, "\n");
    for (int i = 0; i < depth; i++)
        buffer_puts(out, style->indent);
}

static nrl_status write_json_list(jinja_vm *m, const jinja_value *v, const json_style *style, int depth, buffer *out)
{
    buffer_puts(out, "[");
    for (size_t i = 0; i < v->list->n; i++) {
        if (i) buffer_puts(out, style->item);
        new_line(style, depth + 1, out);
        NRL_TRY(vm_write_json(m, &v->list->items[i], style, depth + 1, out));
    }
    if (v->list->n) new_line(style, depth, out);
    buffer_puts(out, "]");
    return NRL_OK;
}

static nrl_status write_json_key(jinja_vm *m, const jinja_value *key, const json_style *style, buffer *out)
{
    if (key->kind == JINJA_STRING) {
        write_json_text(key, style->ascii, out);
        return NRL_OK;
    }
    if (!jinja_is_number(key) && key->kind != JINJA_NONE)
        return JINJA_FAIL("keys of JSON are text, numbers, booleans or None, found %s", jinja_kind_name(key));
    buffer_puts(out, "\"");
    NRL_TRY(vm_write_json(m, key, style, 0, out));
    buffer_puts(out, "\"");
    return NRL_OK;
}

/* The positions of the keys in the order in which they are written. */
static nrl_status key_order(jinja_vm *m, const jinja_map *map, bool sort, size_t **order)
{
    *order = vm_alloc(m, (map->n + 1) * sizeof **order);
    for (size_t i = 0; i < map->n; i++) {
        size_t j = i;
        int less = 0;
        for (; sort && j; j--) {
            NRL_TRY(vm_work(m, 1));
            NRL_TRY(vm_order(m, &map->keys[i], &map->keys[(*order)[j - 1]], &less));
            if (less >= 0) break;
            (*order)[j] = (*order)[j - 1];
        }
        (*order)[j] = i;
    }
    return NRL_OK;
}

static nrl_status write_json_map(jinja_vm *m, const jinja_map *map, const json_style *style, int depth, buffer *out)
{
    size_t *order;
    NRL_TRY(key_order(m, map, style->sort, &order));
    buffer_puts(out, "{");
    for (size_t i = 0; i < map->n; i++) {
        if (i) buffer_puts(out, style->item);
        new_line(style, depth + 1, out);
        NRL_TRY(write_json_key(m, &map->keys[order[i]], style, out));
        buffer_puts(out, style->key);
        NRL_TRY(vm_write_json(m, &map->values[order[i]], style, depth + 1, out));
    }
    if (map->n) new_line(style, depth, out);
    buffer_puts(out, "}");
    return NRL_OK;
}

static void write_json_float(double x, buffer *out)
{
    if (isnan(x))
        buffer_puts(out, "NaN");
    else if (isinf(x))
        buffer_puts(out, x < 0 ? "-Infinity" : "Infinity");
    else
        jinja_write_float(x, out);
}

nrl_status vm_write_json(jinja_vm *m, const jinja_value *v, const json_style *style, int depth, buffer *out)
{
    NRL_TRY(too_deep(depth));
    NRL_TRY(vm_room(m, out->size));
    NRL_TRY(vm_work(m, 1));
    switch (v->kind) {
    case JINJA_NONE:
        buffer_puts(out, "null");
        return NRL_OK;
    case JINJA_BOOL:
        buffer_puts(out, v->boolean ? "true" : "false");
        return NRL_OK;
    case JINJA_INT:
        buffer_print(out, "%" PRId64, v->integer);
        return NRL_OK;
    case JINJA_FLOAT:
        write_json_float(v->real, out);
        return NRL_OK;
    case JINJA_STRING:
        write_json_text(v, style->ascii, out);
        return NRL_OK;
    case JINJA_LIST:
    case JINJA_TUPLE:
        return write_json_list(m, v, style, depth, out);
    case JINJA_MAP:
        return write_json_map(m, v->map, style, depth, out);
    case JINJA_UNDEFINED:
        return JINJA_FAIL("%.*s cannot be written as JSON", (int)v->size, v->text);
    default:
        return JINJA_FAIL("a %s cannot be written as JSON", jinja_kind_name(v));
    }
}
