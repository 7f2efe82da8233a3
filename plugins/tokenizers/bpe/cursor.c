/*
 * cursor.c - see cursor.h. Values that are read are checked strictly; the text of skipped values is
 * checked when the caller parses it.
 */
#include "cursor.h"
#include "unicode.h"
#include <string.h>

enum { MAX_DEPTH = 64 };

char cursor_peek(cursor *c)
{
    while (c->p < c->end && (*c->p == ' ' || *c->p == '\n' || *c->p == '\r' || *c->p == '\t'))
        c->p++;
    return c->p < c->end ? *c->p : 0;
}

void cursor_place(const cursor *c, const char *at, int64_t *line, int64_t *column)
{
    const char *start = c->begin;
    *line = 1;
    for (const char *p = c->begin; p < at; p++)
        if (*p == '\n') {
            ++*line;
            start = p + 1;
        }
    *column = at - start + 1;
}

nrl_status cursor_fail(const cursor *c, const char *expected)
{
    int64_t line, column;
    cursor_place(c, c->p, &line, &column);
    return nrl_fail(NRL_ERR_DATA, "%s:%lld:%lld: expected %s", c->source, (long long)line, (long long)column, expected);
}

nrl_status cursor_enter(cursor *c, char bracket)
{
    if (cursor_peek(c) != bracket) return cursor_fail(c, bracket == '{' ? "a map" : "a list");
    c->p++;
    return NRL_OK;
}

nrl_status cursor_next(cursor *c, char closing, bool *first, bool *more)
{
    char next = cursor_peek(c);
    *more = next != closing;
    if (!*more) {
        c->p++;
    } else if (!*first) {
        if (next != ',') return cursor_fail(c, closing == '}' ? "',' or '}'" : "',' or ']'");
        c->p++;
        if (cursor_peek(c) == closing) return cursor_fail(c, "a value after ','");
    }
    *first = false;
    return NRL_OK;
}

static int hex_digit(char ch)
{
    if (ch >= '0' && ch <= '9') return ch - '0';
    if (ch >= 'a' && ch <= 'f') return ch - 'a' + 10;
    if (ch >= 'A' && ch <= 'F') return ch - 'A' + 10;
    return -1;
}

/* The four digits after \u; -1 if there are not four hex digits. */
static int32_t read_hex(cursor *c)
{
    int32_t value = 0;
    if (c->end - c->p < 4) return -1;
    for (int i = 0; i < 4; i++) {
        int digit = hex_digit(c->p[i]);
        if (digit < 0) return -1;
        value = value << 4 | digit;
    }
    c->p += 4;
    return value;
}

static nrl_status read_unicode_escape(cursor *c, buffer *text)
{
    int32_t v = read_hex(c);
    if (v < 0) return cursor_fail(c, "four hex digits after \\u");
    if (v >= 0xdc00 && v < 0xe000) return cursor_fail(c, "no lone surrogate");
    if (v >= 0xd800 && v < 0xdc00) {
        int32_t low = -1;
        if (c->end - c->p >= 2 && c->p[0] == '\\' && c->p[1] == 'u') {
            c->p += 2;
            low = read_hex(c);
        }
        if (low < 0xdc00 || low >= 0xe000) return cursor_fail(c, "a low surrogate");
        v = 0x10000 + ((v - 0xd800) << 10) + (low - 0xdc00);
    }
    char bytes[4];
    buffer_add(text, bytes, utf8_write(v, bytes));
    return NRL_OK;
}

static nrl_status read_escape(cursor *c, buffer *text)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    c->p++;
    if (c->p == c->end) return cursor_fail(c, "the end of a string");
    char ch = *c->p;
    if (ch == 'u') {
        c->p++;
        return read_unicode_escape(c, text);
    }
    const char *at = ch ? strchr(from, ch) : NULL;
    if (!at) return cursor_fail(c, "one of \" \\ / b f n r t u after a backslash");
    c->p++;
    buffer_add(text, &to[at - from], 1);
    return NRL_OK;
}

nrl_status cursor_string(cursor *c, buffer *text)
{
    if (cursor_peek(c) != '"') return cursor_fail(c, "a string");
    const char *run = ++c->p;
    text->size = 0;
    for (;;) {
        while (c->p < c->end && *c->p != '"' && *c->p != '\\' && (unsigned char)*c->p >= ' ')
            c->p++;
        if (c->p == c->end) return cursor_fail(c, "the end of a string");
        if ((unsigned char)*c->p < ' ') return cursor_fail(c, "no control character in a string");
        if (!utf8_valid(run, (size_t)(c->p - run))) return cursor_fail(c, "UTF-8 in this string");
        buffer_add(text, run, (size_t)(c->p - run));
        if (*c->p == '"') break;
        NRL_TRY(read_escape(c, text));
        run = c->p;
    }
    c->p++;
    return NRL_OK;
}

nrl_status cursor_key(cursor *c, buffer *key)
{
    NRL_TRY(cursor_string(c, key));
    if (cursor_peek(c) != ':') return cursor_fail(c, "':'");
    c->p++;
    return NRL_OK;
}

nrl_status cursor_int(cursor *c, int64_t *value)
{
    bool minus = cursor_peek(c) == '-';
    const char *begin = c->p;
    c->p += minus;
    int64_t v = 0;
    const char *digits = c->p;
    for (; c->p < c->end && *c->p >= '0' && *c->p <= '9' && c->p - digits < 18; c->p++)
        v = v * 10 + (*c->p - '0');
    bool ended = c->p == c->end || !strchr("0123456789.eE", *c->p) || !*c->p;
    if (c->p == digits || !ended) {
        c->p = begin;
        return cursor_fail(c, "a whole number");
    }
    *value = minus ? -v : v;
    return NRL_OK;
}

static nrl_status skip_string(cursor *c)
{
    for (c->p++; c->p < c->end && *c->p != '"'; c->p++)
        if (*c->p == '\\') c->p++;
    if (c->p >= c->end) {
        c->p = c->end;
        return cursor_fail(c, "the end of a string");
    }
    c->p++;
    return NRL_OK;
}

nrl_status cursor_skip(cursor *c, const char **from, size_t *size)
{
    int depth = 0;
    char ch = cursor_peek(c);
    *from = c->p;
    if (!ch || strchr(",:]}", ch)) return cursor_fail(c, "a value");
    do {
        ch = cursor_peek(c);
        if (!ch) return cursor_fail(c, "the end of a map or list");
        if (ch == '"') {
            NRL_TRY(skip_string(c));
        } else if (ch == '{' || ch == '[') {
            if (++depth > MAX_DEPTH) return cursor_fail(c, "fewer than 64 nested maps and lists");
            c->p++;
        } else if (ch == '}' || ch == ']') {
            depth--;
            c->p++;
        } else if (ch == ',' || ch == ':') {
            c->p++;
        } else {
            while (c->p < c->end && !strchr(" \n\r\t,:[]{}\"", *c->p))
                c->p++;
        }
    } while (depth > 0);
    *size = (size_t)(c->p - *from);
    return NRL_OK;
}

nrl_status cursor_members(cursor *c, const char *const *names, int n, cursor_member *out, buffer *rest)
{
    buffer key = {0};
    bool first = true, more = true;
    nrl_status st = cursor_enter(c, '{');
    while (st == NRL_OK) {
        NRL_TRY_DONE(cursor_next(c, '}', &first, &more));
        if (!more) break;
        cursor_peek(c);
        const char *key_text = c->p;
        NRL_TRY_DONE(cursor_key(c, &key));
        cursor_member m = {0};
        NRL_TRY_DONE(cursor_skip(c, &m.text, &m.size));
        int i = 0;
        while (i < n && (key.size != strlen(names[i]) || memcmp(key.text, names[i], key.size)))
            i++;
        if (i < n && out[i].text) {
            c->p = key_text;
            st = cursor_fail(c, "each key once");
        } else if (i < n) {
            out[i] = m;
        } else if (rest) {
            buffer_puts(rest, rest->size ? "," : "{");
            buffer_add(rest, key_text, (size_t)(m.text + m.size - key_text));
        }
    }
done:
    buffer_free(&key);
    return st;
}
