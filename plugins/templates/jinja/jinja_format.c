/*
 * jinja_format.c - "%s of %d" % values, and dates. Features of Python's % that templates do not use
 * (%c of numbers, %a, stars for widths) are refused.
 */
#include "jinja_parts.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { MAX_WIDTH = 1000 };

typedef struct {
    const jinja_value *args;
    size_t next, n;
    const jinja_value *map; /* for %(name)s */
} percent_args;

typedef struct {
    char flags[8];
    int width, precision; /* -1 = not given */
    char kind;
} percent_spec;

static nrl_status parse_count(const char **p, const char *end, int *out)
{
    int n = 0;
    for (; *p < end && **p >= '0' && **p <= '9'; ++*p) {
        n = n * 10 + (**p - '0');
        if (n > MAX_WIDTH) return JINJA_FAIL("%% of a text: a width beyond %d", MAX_WIDTH);
    }
    *out = n;
    return NRL_OK;
}

static nrl_status parse_spec(const char **p, const char *end, percent_spec *s)
{
    size_t n = 0;
    *s = (percent_spec){.width = 0, .precision = -1};
    for (; *p < end && strchr("-+ 0#", **p) && **p; ++*p)
        if (n + 1 < sizeof s->flags && !strchr(s->flags, **p)) s->flags[n++] = **p;
    NRL_TRY(parse_count(p, end, &s->width));
    if (*p < end && **p == '.') {
        ++*p;
        NRL_TRY(parse_count(p, end, &s->precision));
    }
    if (*p >= end || !strchr("sdiufFeEgGxXor%", **p) || !**p)
        return JINJA_FAIL("%% of a text: an unsupported conversion");
    s->kind = *(*p)++;
    return NRL_OK;
}

static void pad(const char *text, size_t size, const percent_spec *s, buffer *out)
{
    size_t n = text_length(text, size), blanks = (size_t)s->width > n ? (size_t)s->width - n : 0;
    bool left = strchr(s->flags, '-') != NULL;
    if (!left) buffer_spaces(out, blanks);
    buffer_add(out, text, size);
    if (left) buffer_spaces(out, blanks);
}

static nrl_status put_text(jinja_vm *m, const percent_spec *s, const jinja_value *v, buffer *out)
{
    buffer b = {0};
    nrl_status st = s->kind == 'r' ? vm_write_repr(m, v, 0, &b) : vm_write(m, v, &b);
    size_t size = s->precision < 0 ? b.size : text_offset(b.text ? b.text : "", b.size, (size_t)s->precision);
    if (st == NRL_OK) pad(b.text ? b.text : "", size, s, out);
    buffer_free(&b);
    return st;
}

static nrl_status put_number(const percent_spec *s, const jinja_value *v, buffer *out)
{
    char format[24], text[1400];
    if (!jinja_is_number(v)) return JINJA_FAIL("%%%c: expected a number, found %s", s->kind, jinja_kind_name(v));
    double x = v->kind == JINJA_FLOAT ? v->real : v->kind == JINJA_INT ? (double)v->integer : v->boolean;
    int precision = s->precision > 300 ? 300 : s->precision;
    int n;
    if (strchr("fFeEgG", s->kind)) {
        snprintf(format, sizeof format, "%%%s*.*%c", s->flags, s->kind);
        n = snprintf(text, sizeof text, format, s->width, precision < 0 ? 6 : precision, x);
    } else {
        if (v->kind == JINJA_FLOAT && (s->kind == 'x' || s->kind == 'X' || s->kind == 'o' || !(x > -9e18 && x < 9e18)))
            return JINJA_FAIL("%%%c: expected a whole number", s->kind);
        int64_t i = v->kind == JINJA_FLOAT ? (int64_t)x : v->kind == JINJA_INT ? v->integer : v->boolean;
        bool hex = s->kind == 'x' || s->kind == 'X' || s->kind == 'o';
        if (hex && i < 0) return JINJA_FAIL("%%%c of a negative number is not supported", s->kind);
        snprintf(format, sizeof format, "%%%s*.*ll%c", s->flags, hex ? s->kind : 'd');
        n = snprintf(text, sizeof text, format, s->width, precision, (long long)i);
    }
    buffer_add(out, text, n < 0 ? 0 : (size_t)n < sizeof text ? (size_t)n : sizeof text - 1);
    return NRL_OK;
}

static nrl_status next_value(const char **p, const char *end, percent_args *a, const jinja_value **out)
{
    if (*p < end && **p == '(') {
        const char *close = memchr(*p, ')', (size_t)(end - *p));
        *out = close && a->map ? jinja_map_find(a->map->map, jinja_string(*p + 1, (size_t)(close - *p - 1))) : NULL;
        if (!*out) return JINJA_FAIL("%% of a text: no value with the requested name");
        *p = close + 1;
        return NRL_OK;
    }
    *out = a->next < a->n ? &a->args[a->next] : NULL;
    return NRL_OK;
}

static nrl_status put_spec(jinja_vm *m, const char **p, const char *end, percent_args *a, buffer *out)
{
    const jinja_value *v;
    percent_spec s;
    bool named = *p < end && **p == '(';
    NRL_TRY(next_value(p, end, a, &v));
    NRL_TRY(parse_spec(p, end, &s));
    if (s.kind == '%') {
        buffer_puts(out, "%");
        return NRL_OK;
    }
    if (!v) return JINJA_FAIL("%% of a text: more conversions than values");
    a->next += !named;
    NRL_TRY(vm_room(m, out->size + (size_t)s.width));
    return s.kind == 's' || s.kind == 'r' ? put_text(m, &s, v, out) : put_number(&s, v, out);
}

static nrl_status percent_all(jinja_vm *m, const jinja_value *format, percent_args *a, buffer *out)
{
    const char *p = format->text, *end = p + format->size;
    while (p < end) {
        if (*p != '%') {
            buffer_add(out, p++, 1);
            continue;
        }
        p++;
        NRL_TRY(put_spec(m, &p, end, a, out));
    }
    return a->map || a->next == a->n ? NRL_OK : JINJA_FAIL("%% of a text: more values than conversions");
}

nrl_status vm_percent(jinja_vm *m, const jinja_value *format, const jinja_value *args, jinja_value *out)
{
    buffer b = {0};
    percent_args a = {.args = args, .n = 1};
    if (args->kind == JINJA_TUPLE)
        a = (percent_args){.args = args->list->items, .n = args->list->n};
    else if (args->kind == JINJA_MAP)
        a.map = args;
    nrl_status st = percent_all(m, format, &a, &b);
    *out = vm_take(m, &b);
    return st;
}

/* ---- dates ---- */

nrl_status vm_strftime(jinja_vm *m, const jinja_value *format, jinja_value *out)
{
    jinja_value text;
    char made[512];
    time_t now = (time_t)m->in->now;
    struct tm parts;
    NRL_TRY(args_text("strftime_now", format, &text));
    if (text.size > 200 || memchr(text.text, 0, text.size))
        return JINJA_FAIL("strftime_now: a format of more than 200 bytes");
    if (!localtime_r(&now, &parts)) return JINJA_FAIL("strftime_now: cannot convert the time to a date");
    const char *f = vm_string(m, text.text, text.size).text;
    size_t n = *f ? strftime(made, sizeof made, f, &parts) : 0;
    *out = vm_string(m, made, n);
    return NRL_OK;
}
