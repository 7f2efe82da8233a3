/*
 * jinja_lex.c - splits the source of a template into tokens: text between tags with the white space
 * rules applied (trim_blocks, lstrip_blocks, the signs - and +), and the contents of tags. The
 * rules are exactly those of Jinja2's lexer.
 */
#include "jinja_parts.h"
#include "base/utf8.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_NESTING = 256 };

typedef struct {
    arena *a;
    token_list *out;
    const char *at, *end;
    uint32_t line;
    bool line_start; /* the preceding text ended with a line end */
} lexer;

/* ---- tokens ---- */

static token *push(lexer *l, token_kind kind)
{
    token_list *o = l->out;
    if (o->n == o->room) {
        o->room = o->room ? o->room * 2 : 64;
        o->at = mem_realloc(o->at, o->room * sizeof *o->at);
    }
    o->at[o->n] = (token){.kind = kind, .line = l->line};
    return &o->at[o->n++];
}

static nrl_status fail(const lexer *l, const char *what)
{
    return nrl_fail(NRL_ERR_CONFIG, "line %u: %s", l->line, what);
}

static void move(lexer *l, const char *to)
{
    for (; l->at < to; l->at++)
        l->line += *l->at == '\n';
}

static bool starts(const lexer *l, const char *text)
{
    size_t n = strlen(text);
    return (size_t)(l->end - l->at) >= n && !memcmp(l->at, text, n);
}

/* Skips white space; with `one`, at most one line end. */
static const char *skip_space(const char *p, const char *end)
{
    size_t n;
    while (p < end && text_is_space(utf8_next(p, end, &n)))
        p += n;
    return p;
}

/* Skips white space after the end of a block or comment: -%} takes all of it, %} one line end, +%}
 * nothing. */
static void after_tag(lexer *l, char sign, bool trims)
{
    const char *to = l->at;
    if (sign == '-')
        to = skip_space(to, l->end);
    else if (trims && sign != '+' && to < l->end && *to == '\n')
        to++;
    l->line_start = to > l->at && to[-1] == '\n';
    move(l, to);
}

/* ---- text between tags ---- */

/* The text before a tag, without the white space that the tag's sign or lstrip_blocks removes. */
static void push_data(lexer *l, const char *end, char sign, bool lstrips)
{
    const char *begin = l->at;
    size_t size = (size_t)(end - begin);
    if (sign == '-') {
        text_strip(&begin, &size, NULL, 0, false, true);
    } else if (sign != '+' && lstrips) {
        const char *line = end;
        while (line > begin && line[-1] != '\n')
            line--;
        if ((line > begin || l->line_start) && skip_space(line, end) == end) size = (size_t)(line - begin);
    }
    if (size) {
        token *t = push(l, TOKEN_DATA);
        t->text = arena_strndup(l->a, begin, size);
        t->size = size;
    }
    move(l, end);
}

static char take_sign(lexer *l)
{
    return l->at < l->end && (*l->at == '-' || *l->at == '+') ? *l->at++ : 0;
}

static const char *next_tag(const char *p, const char *end)
{
    for (; p + 1 < end; p++)
        if (*p == '{' && (p[1] == '%' || p[1] == '{' || p[1] == '#')) return p;
    return NULL;
}

/* ---- inside tags ---- */

static bool is_name_char(char c)
{
    return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || (c & 0x80);
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static int hex_of(char c)
{
    return is_digit(c) ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* \xhh, \uhhhh, \Uhhhhhhhh: reads n digits at p. */
static nrl_status hex_escape(const lexer *l, const char **p, const char *end, int n, buffer *out)
{
    uint32_t c = 0;
    char bytes[4];
    for (int i = 0; i < n; i++) {
        int digit = *p < end ? hex_of(*(*p)++) : -1;
        if (digit < 0) return fail(l, "expected hexadecimal digits after \\x, \\u or \\U in a string");
        c = c << 4 | (uint32_t)digit;
    }
    if (c > 0x10FFFF || (c >= 0xD800 && c < 0xE000))
        return fail(l, "a string contains the escape of an invalid character");
    buffer_add(out, bytes, utf8_write((int32_t)c, bytes));
    return NRL_OK;
}

static void octal_escape(const char **p, const char *end, buffer *out)
{
    int32_t c = 0;
    char bytes[4];
    for (int i = 0; i < 3 && *p < end && **p >= '0' && **p <= '7'; i++)
        c = c * 8 + (*(*p)++ - '0');
    buffer_add(out, bytes, utf8_write(c, bytes));
}

static nrl_status escape(const lexer *l, const char **p, const char *end, buffer *out)
{
    static const char from[] = "\\'\"abfnrtv", to[] = "\\'\"\a\b\f\n\r\t\v";
    char c = *(*p)++;
    const char *found = c ? strchr(from, c) : NULL;
    if (found)
        buffer_add(out, to + (found - from), 1);
    else if (c == 'x')
        return hex_escape(l, p, end, 2, out);
    else if (c == 'u')
        return hex_escape(l, p, end, 4, out);
    else if (c == 'U')
        return hex_escape(l, p, end, 8, out);
    else if (c == 'N')
        return fail(l, "\\N{...} in a string is not supported");
    else if (c >= '0' && c <= '7') {
        --*p;
        octal_escape(p, end, out);
    } else if (c != '\n') {
        buffer_add(out, *p - 2, 2);
    }
    return NRL_OK;
}

static nrl_status lex_string(lexer *l)
{
    char quote = *l->at;
    const char *p = l->at + 1, *stop = p;
    while (stop < l->end && *stop != quote)
        stop += *stop == '\\' && stop + 1 < l->end ? 2 : 1;
    if (stop >= l->end) return fail(l, "a string has no end");
    buffer b = {0};
    nrl_status st = NRL_OK;
    while (p < stop && st == NRL_OK) {
        if (*p == '\\') {
            p++;
            st = escape(l, &p, stop, &b);
        } else
            buffer_add(&b, p++, 1);
    }
    if (st == NRL_OK) {
        token *t = push(l, TOKEN_STRING);
        t->text = arena_strndup(l->a, b.text ? b.text : "", b.size);
        t->size = b.size;
        move(l, stop + 1);
    }
    buffer_free(&b);
    return st;
}

static const char *skip_digits(const char *p, const char *end)
{
    while (p < end && (is_digit(*p) || (*p == '_' && p + 1 < end && is_digit(p[1]))))
        p++;
    return p;
}

/* The end of a float whose digits begin before p, or p if it is not a float. */
static const char *float_end(const char *p, const char *end)
{
    const char *q = p;
    if (q + 1 < end && *q == '.' && is_digit(q[1])) q = skip_digits(q + 1, end);
    const char *e = q;
    if (e < end && (*e == 'e' || *e == 'E')) {
        e++;
        if (e < end && (*e == '+' || *e == '-')) e++;
        if (e < end && is_digit(*e)) return skip_digits(e, end);
    }
    return q;
}

static nrl_status lex_based(lexer *l, int base)
{
    const char *p = l->at + 2;
    int64_t value = 0;
    for (; p < l->end && ((hex_of(*p) >= 0 && hex_of(*p) < base) || *p == '_'); p++)
        if (*p != '_' &&
            (__builtin_mul_overflow(value, base, &value) || __builtin_add_overflow(value, hex_of(*p), &value)))
            return fail(l, "a number has more than 64 bits");
    if (p == l->at + 2) return fail(l, "expected digits after 0x, 0o or 0b");
    push(l, TOKEN_INT)->integer = value;
    move(l, p);
    return NRL_OK;
}

static nrl_status lex_decimal(lexer *l)
{
    const char *whole = skip_digits(l->at, l->end), *stop = float_end(whole, l->end);
    if (stop == whole && *l->at == '0' && strspn(l->at, "0_") < (size_t)(whole - l->at))
        return fail(l, "a number begins with 0");
    char *digits = arena_strndup(l->a, l->at, (size_t)(stop - l->at)), *to = digits;
    for (const char *p = l->at; p < stop; p++)
        if (*p != '_') *to++ = *p;
    *to = 0;
    errno = 0;
    if (stop > whole)
        push(l, TOKEN_FLOAT)->real = strtod(digits, NULL);
    else
        push(l, TOKEN_INT)->integer = strtoll(digits, NULL, 10);
    if (errno && stop == whole) return fail(l, "a number has more than 64 bits");
    move(l, stop);
    return NRL_OK;
}

static nrl_status lex_number(lexer *l)
{
    char second = l->at + 1 < l->end ? (char)(l->at[1] | 32) : 0;
    if (*l->at != '0') return lex_decimal(l);
    return second == 'x'   ? lex_based(l, 16)
           : second == 'o' ? lex_based(l, 8)
           : second == 'b' ? lex_based(l, 2)
                           : lex_decimal(l);
}

static void lex_name(lexer *l)
{
    const char *stop = l->at;
    while (stop < l->end && is_name_char(*stop))
        stop++;
    token *t = push(l, TOKEN_NAME);
    t->size = (size_t)(stop - l->at);
    t->text = arena_strndup(l->a, l->at, t->size);
    move(l, stop);
}

typedef struct {
    char open[MAX_NESTING];
    int n;
} brackets;

static nrl_status balance(const lexer *l, brackets *b, char c)
{
    static const char opening[] = "([{", closing[] = ")]}";
    if (strchr(opening, c)) {
        if (b->n == MAX_NESTING) return fail(l, "brackets are nested too deeply");
        b->open[b->n++] = c;
    } else if (strchr(closing, c)) {
        if (!b->n || opening[strchr(closing, c) - closing] != b->open[b->n - 1])
            return fail(l, "a closing bracket has no opening one");
        b->n--;
    }
    return NRL_OK;
}

static nrl_status lex_operator(lexer *l, brackets *b)
{
    static const char *const operators[] = {"**", "//", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
                                            "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};
    for (size_t i = 0; i < sizeof operators / sizeof *operators; i++) {
        if (!starts(l, operators[i])) continue;
        NRL_TRY(balance(l, b, *operators[i]));
        token *t = push(l, TOKEN_OP);
        t->text = operators[i];
        t->size = strlen(operators[i]);
        move(l, l->at + t->size);
        return NRL_OK;
    }
    return nrl_fail(NRL_ERR_CONFIG, "line %u: unexpected character '%.*s' in a tag", l->line,
                    (int)(*l->at & 0x80 ? 0 : 1), l->at);
}

/* The end of a tag: "%}", "-%}", "+%}" (blocks only), "}}", "-}}". */
static bool take_end(lexer *l, bool block, char *sign)
{
    const char *ends[3] = {block ? "%}" : "}}", block ? "-%}" : "-}}", block ? "+%}" : NULL};
    for (int i = 0; i < 3 && ends[i]; i++)
        if (starts(l, ends[i])) {
            *sign = i == 0 ? 0 : *ends[i];
            l->at += strlen(ends[i]);
            return true;
        }
    return false;
}

static nrl_status lex_tag(lexer *l, bool block)
{
    brackets b = {.n = 0};
    char sign;
    for (;;) {
        move(l, skip_space(l->at, l->end));
        if (l->at >= l->end) return fail(l, block ? "a tag has no end, expected %}" : "a tag has no end, expected }}");
        if (!b.n && take_end(l, block, &sign)) break;
        char c = *l->at;
        if (c == '"' || c == '\'')
            NRL_TRY(lex_string(l));
        else if (is_digit(c))
            NRL_TRY(lex_number(l));
        else if (is_name_char(c))
            lex_name(l);
        else
            NRL_TRY(lex_operator(l, &b));
    }
    push(l, block ? TOKEN_BLOCK_END : TOKEN_PRINT_END);
    after_tag(l, sign, block);
    return NRL_OK;
}

/* ---- comments and raw text ---- */

static nrl_status lex_comment(lexer *l)
{
    const char *stop = l->at;
    while (stop + 1 < l->end && !(*stop == '#' && stop[1] == '}'))
        stop++;
    if (stop + 1 >= l->end) return fail(l, "a comment has no end, expected #}");
    char sign = stop > l->at && (stop[-1] == '-' || stop[-1] == '+') ? stop[-1] : 0;
    move(l, stop + 2);
    after_tag(l, sign, true);
    return NRL_OK;
}

/* Parses the sign, the word and the end of a tag after "{%" at p. *sign_in and *sign_out are 0, '-'
 * or '+'. */
static const char *word_tag(const char *p, const char *end, const char *word, char *sign_in, char *sign_out)
{
    size_t n = strlen(word);
    *sign_in = p < end && (*p == '-' || *p == '+') ? *p++ : 0;
    p = skip_space(p, end);
    if ((size_t)(end - p) < n || memcmp(p, word, n) != 0) return NULL;
    p = skip_space(p + n, end);
    *sign_out = p < end && (*p == '-' || *p == '+') ? *p++ : 0;
    return end - p >= 2 && p[0] == '%' && p[1] == '}' ? p + 2 : NULL;
}

static nrl_status lex_raw(lexer *l, const char *body, char sign)
{
    char in, out;
    move(l, body);
    after_tag(l, sign, false);
    for (const char *p = l->at; (p = next_tag(p, l->end)); p++) {
        const char *behind = p[1] == '%' ? word_tag(p + 2, l->end, "endraw", &in, &out) : NULL;
        if (!behind) continue;
        push_data(l, p, in, true);
        move(l, behind);
        after_tag(l, out, true);
        return NRL_OK;
    }
    return fail(l, "expected {% endraw %}");
}

/* ---- the main loop ---- */

static nrl_status lex_one(lexer *l, const char *tag)
{
    char in, out;
    const char *raw = tag[1] == '%' ? word_tag(tag + 2, l->end, "raw", &in, &out) : NULL;
    if (raw && out != '+') {
        push_data(l, tag, in, true);
        return lex_raw(l, raw, out);
    }
    char sign = tag + 2 < l->end ? tag[2] : 0;
    push_data(l, tag, sign, tag[1] != '{');
    l->at += 2;
    if (tag[1] == '#') {
        /* {#-#} has a single sign, which also applies to the end */
        if (sign == '-' || sign == '+') l->at++;
        return lex_comment(l);
    }
    push(l, tag[1] == '%' ? TOKEN_BLOCK_BEGIN : TOKEN_PRINT_BEGIN);
    take_sign(l);
    return lex_tag(l, tag[1] == '%');
}

/* Line ends become \n, and one at the end of the template is removed. */
static char *clean(arena *a, const char *text, size_t *size)
{
    char *out = arena_alloc(a, *size + 1), *to = out;
    for (size_t i = 0; i < *size; i++) {
        bool pair = text[i] == '\r' && i + 1 < *size && text[i + 1] == '\n';
        if (!pair) *to++ = text[i] == '\r' ? '\n' : text[i];
    }
    if (to > out && to[-1] == '\n') to--;
    *size = (size_t)(to - out);
    return out;
}

nrl_status jinja_lex(arena *a, const char *text, size_t size, token_list *out)
{
    if (!utf8_valid(text, size)) return nrl_fail(NRL_ERR_CONFIG, "line 1: the template is not valid UTF-8");
    const char *source = clean(a, text, &size), *tag;
    lexer l = {.a = a, .out = out, .at = source, .end = source + size, .line = 1, .line_start = true};
    while ((tag = next_tag(l.at, l.end)))
        NRL_TRY(lex_one(&l, tag));
    push_data(&l, l.end, '+', false);
    push(&l, TOKEN_END);
    return NRL_OK;
}
