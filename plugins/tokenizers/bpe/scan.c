/*
 * scan.c - see scan.h. Alternatives are tried in the order of the pattern; each function advances
 * *i over the match of its alternative and returns whether it matched.
 */
#include "scan.h"
#include <string.h>

const char scan_gpt2_pattern[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
const char scan_llama3_pattern[] =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+"
    "[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
const char scan_qwen2_pattern[] =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+"
    "[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

typedef struct {
    const char *p, *end;
} scanner;

/* The class of the character at p and its length; CHAR_OTHER and 0 at the end. */
static char_class class_at(const scanner *s, const char *p, size_t *n)
{
    *n = 0;
    return p < s->end ? unicode_class(utf8_next(p, s->end, n)) : CHAR_OTHER;
}

static const char *skip_class(const scanner *s, const char *p, char_class class)
{
    for (size_t n; p < s->end && class_at(s, p, &n) == class; p += n)
        ;
    return p;
}

static bool is_newline(char c)
{
    return c == '\r' || c == '\n';
}

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c + 32) : c;
}

/* 's 't 're 've 'm 'll 'd */
static bool take_contraction(scanner *s, bool any_case)
{
    if (*s->p != '\'' || s->end - s->p < 2) return false;
    char a = s->p[1], b = s->end - s->p > 2 ? s->p[2] : 0;
    if (any_case) {
        a = lower(a);
        b = lower(b);
    }
    size_t n = 0;
    if (a == 's' || a == 't' || a == 'm' || a == 'd')
        n = 2;
    else if ((b == 'e' && (a == 'r' || a == 'v')) || (a == 'l' && b == 'l'))
        n = 3;
    else if (any_case && a == '\xc5' && b == '\xbf') /* long s folds to s */
        n = 3;
    s->p += n;
    return n;
}

/* \s+(?!\S) then \s+: a run of spaces leaves its last space to the following word. */
static void take_spaces(scanner *s)
{
    const char *stop = skip_class(s, s->p, CHAR_SPACE);
    const char *last = utf8_back(s->p, stop);
    s->p = stop < s->end && last > s->p ? last : stop;
}

static void next_gpt2(scanner *s)
{
    if (take_contraction(s, false)) return;
    size_t n, m;
    char_class class = class_at(s, s->p, &n), after = class_at(s, s->p + n, &m);
    if (*s->p == ' ' && m && after != CHAR_SPACE)
        s->p = skip_class(s, s->p + 1, after);
    else if (class != CHAR_SPACE)
        s->p = skip_class(s, s->p, class);
    else
        take_spaces(s);
}

/* [^\r\n\p{L}\p{N}]?\p{L}+ */
static bool take_letters(scanner *s)
{
    size_t n, m;
    char_class class = class_at(s, s->p, &n);
    const char *from = s->p;
    if (class != CHAR_LETTER) {
        if (class == CHAR_NUMBER || is_newline(*s->p)) return false;
        from += n;
        if (class_at(s, from, &m) != CHAR_LETTER || !m) return false;
    }
    s->p = skip_class(s, from, CHAR_LETTER);
    return true;
}

static bool take_digits(scanner *s, int most)
{
    size_t n;
    const char *begin = s->p;
    for (; most-- && s->p < s->end && class_at(s, s->p, &n) == CHAR_NUMBER; s->p += n)
        ;
    return s->p > begin;
}

/*  ?[^\s\p{L}\p{N}]+[\r\n]* */
static bool take_symbols(scanner *s)
{
    const char *from = s->p + (*s->p == ' ');
    const char *stop = skip_class(s, from, CHAR_OTHER);
    if (stop == from) return false;
    while (stop < s->end && is_newline(*stop))
        stop++;
    s->p = stop;
    return true;
}

/* \s*[\r\n]+: up to the last line break in the run of spaces. */
static bool take_lines(scanner *s)
{
    const char *stop = skip_class(s, s->p, CHAR_SPACE);
    while (stop > s->p && !is_newline(stop[-1]))
        stop--;
    if (stop == s->p) return false;
    s->p = stop;
    return true;
}

void scan_gpt2(const char *text, size_t begin, size_t end, spans *out)
{
    scanner s = {text + begin, text + end};
    while (s.p < s.end) {
        const char *from = s.p;
        next_gpt2(&s);
        spans_push(out, (size_t)(from - text), (size_t)(s.p - text));
    }
}

void scan_llama3(const char *text, size_t begin, size_t end, int max_digits, spans *out)
{
    scanner s = {text + begin, text + end};
    while (s.p < s.end) {
        const char *from = s.p;
        if (!take_contraction(&s, true) && !take_letters(&s) && !take_digits(&s, max_digits) && !take_symbols(&s) &&
            !take_lines(&s))
            take_spaces(&s);
        spans_push(out, (size_t)(from - text), (size_t)(s.p - text));
    }
}
