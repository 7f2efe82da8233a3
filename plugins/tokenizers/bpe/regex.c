/*
 * regex.c - PCRE2 with its just-in-time compiler, and with limits so that no pattern hangs.
 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "regex.h"
#include "base/arena.h"
#include "base/buffer.h"
#include "unicode.h"
#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct regex {
    pcre2_code *code;
    pcre2_match_context *limits;
};

enum { MATCH_LIMIT = 10000000, DEPTH_LIMIT = 100000, HEAP_LIMIT_KIB = 64 * 1024 };

/* PCRE2's \s includes U+180E, which lost White_Space in Unicode 6.3. */
#define WHITE_SPACE                                                                                                    \
    "\\x09-\\x0d "                                                                                                     \
    "\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"

/* Oniguruma's \w; PCRE2's does not include marks. The six numbers are a peculiarity of its Latin-1
 * table. */
#define WORD "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}"

#define HEX "0-9a-fA-F"

enum { GROUPS = 256 }; /* in each other; PCRE2 allows 250 */

/* The replacement of \s, \w, \h and, outside of a class, of their opposites; NULL for other
 * escapes. */
static const char *rewritten(char escape, bool in_class)
{
    if (escape == 's') return in_class ? WHITE_SPACE : "[" WHITE_SPACE "]";
    if (escape == 'w') return in_class ? WORD : "[" WORD "]";
    if (escape == 'h') return in_class ? HEX : "[" HEX "]"; /* \h is a horizontal space in PCRE2 */
    if (escape == 'H' && !in_class) return "[^" HEX "]";
    if (escape == 'S' && !in_class) return "[^" WHITE_SPACE "]";
    return escape == 'W' && !in_class ? "[^" WORD "]" : NULL;
}

/* A set in a set, or an intersection, which PCRE2 would read as plain characters. */
static bool is_set_algebra(const char *pattern, size_t size, size_t i)
{
    char next = i + 1 < size ? pattern[i + 1] : 0;
    return (pattern[i] == '[' && next != ':') || (pattern[i] == '&' && next == '&');
}

/* The pattern as written so far, and where its last atom begins. */
typedef struct {
    buffer *out;
    size_t atom;
    size_t groups[GROUPS], n_groups; /* where the open ones begin */
} rewriting;

/* Bytes of the braces at `text` and what is in them; 0 if there are none. */
static size_t braces(const char *text, size_t size)
{
    const char *stop = size && *text == '{' ? memchr(text, '}', size) : NULL;
    return stop ? (size_t)(stop - text) + 1 : 0;
}

/* Since 10.40 \p{Han} means Script_Extensions in PCRE2, as \p{scx:Han}; it means the script in Oniguruma. */
static bool is_script(const char *name, size_t size)
{
    char pattern[64];
    int code;
    PCRE2_SIZE at;
    if (size < 3 || size > 40 || memchr(name, ':', size)) return false;
    snprintf(pattern, sizeof pattern, "\\p{sc:%.*s}", (int)size, name);
    pcre2_code *compiled = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, PCRE2_UTF, &code, &at, NULL);
    pcre2_code_free(compiled);
    return compiled;
}

/* Writes the escape at `text`, which begins with a backslash, and returns its size. */
static size_t rewrite_escape(buffer *out, const char *text, size_t size, bool in_class)
{
    const char *other = rewritten(text[1], in_class);
    const size_t n = strchr("pPx", text[1]) ? braces(text + 2, size - 2) : 0;
    const bool negates = n > 2 && text[3] == '^';
    if (other) {
        buffer_puts(out, other);
    } else if (n > 2 && text[1] != 'x' && is_script(text + 3 + negates, n - 2 - negates)) {
        buffer_add(out, text, 3 + negates);
        buffer_puts(out, "sc:");
        buffer_add(out, text + 3 + negates, n - 1 - negates);
    } else {
        buffer_add(out, text, 2 + n);
    }
    return 2 + n;
}

/* Whether the braces hold a number of repetitions: {3}, {1,3}, {1,} or {,3}. */
static bool is_interval(const char *text, size_t n)
{
    static const char digits[] = "0123456789";
    if (n < 3) return false;
    const char *end = text + n - 1, *at = text + 1 + strspn(text + 1, digits);
    return at == end || (*at == ',' && n > 3 && at + 1 + strspn(at + 1, digits) == end);
}

static void put_interval(buffer *out, const char *text, size_t n)
{
    buffer_puts(out, text[1] == ',' ? "{0" : "{"); /* before 10.43 PCRE2 reads {,3} as plain characters */
    buffer_add(out, text + 1, n - 1);
}

/* X{1,3}+ repeats X{1,3} in Oniguruma, and does not give back what it matched in PCRE2. */
static void repeat_interval(rewriting *r, const char *interval, size_t n)
{
    const size_t size = r->out->size - r->atom;
    char *atom = mem_printf("%.*s", (int)size, r->out->text + r->atom);
    r->out->size = r->atom;
    buffer_puts(r->out, "(?:");
    buffer_puts(r->out, atom);
    put_interval(r->out, interval, n);
    buffer_puts(r->out, ")+");
    free(atom);
}

static nrl_status rewrite(const char *pattern, size_t size, buffer *out)
{
    bool in_class = false;
    rewriting r = {.out = out};
    for (size_t i = 0, n; i < size; i += n) {
        const char c = pattern[i];
        n = 1;
        if (c == '\\' && i + 1 < size) {
            if (!in_class) r.atom = out->size;
            n = rewrite_escape(out, pattern + i, size - i, in_class);
            continue;
        }
        if (in_class && is_set_algebra(pattern, size, i))
            return nrl_fail(NRL_ERR_DATA, "regular expression '%.*s': nested sets are not supported",
                            size < 200 ? (int)size : 200, pattern);
        if (c == '[' && in_class) { /* [:name:] has a bracket of its own */
            const char *stop = text_find(pattern + i, size - i, ":]", 2);
            n = stop ? (size_t)(stop - pattern) + 2 - i : 1;
            buffer_add(out, pattern + i, n);
            continue;
        }
        const size_t interval = in_class ? 0 : braces(pattern + i, size - i);
        if (is_interval(pattern + i, interval)) {
            n = interval;
            if (i + n < size && pattern[i + n] == '+' && out->size)
                repeat_interval(&r, pattern + i, n++);
            else
                put_interval(out, pattern + i, n);
            continue;
        }
        if (c == ']') {
            in_class = false;
        } else if (!in_class) {
            in_class = c == '[';
            if (c == '(' && r.n_groups < GROUPS) r.groups[r.n_groups++] = out->size;
            if (c == ')' && r.n_groups)
                r.atom = r.groups[--r.n_groups];
            else if (!strchr("*+?", c))
                r.atom = out->size;
        }
        buffer_add(out, &c, 1);
    }
    return NRL_OK;
}

nrl_status regex_create(const char *pattern, size_t size, regex **out)
{
    buffer text = {0};
    nrl_status st = rewrite(pattern, size, &text);
    if (st != NRL_OK) {
        buffer_free(&text);
        return st;
    }
    int code = 0;
    PCRE2_SIZE at = 0;
    /* ^ and $ match at lines in Oniguruma's syntax. */
    pcre2_code *compiled =
        pcre2_compile((PCRE2_SPTR)(text.text ? text.text : ""), text.size,
                      PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &code, &at, NULL);
    buffer_free(&text);
    if (!compiled) {
        PCRE2_UCHAR why[128];
        pcre2_get_error_message(code, why, sizeof why);
        return nrl_fail(NRL_ERR_DATA, "regular expression '%.*s' cannot be used: %s", size < 200 ? (int)size : 200,
                        pattern, (const char *)why);
    }
    pcre2_jit_compile(compiled, PCRE2_JIT_COMPLETE); /* if the compiler fails, the interpreter runs */
    regex *r = mem_alloc(sizeof *r);
    r->code = compiled;
    r->limits = pcre2_match_context_create(NULL);
    pcre2_set_match_limit(r->limits, MATCH_LIMIT);
    pcre2_set_depth_limit(r->limits, DEPTH_LIMIT);
    pcre2_set_heap_limit(r->limits, HEAP_LIMIT_KIB);
    *out = r;
    return NRL_OK;
}

void regex_destroy(regex *r)
{
    if (!r) return;
    pcre2_code_free(r->code);
    pcre2_match_context_free(r->limits);
    free(r);
}

void regex_matches_free(void *matches)
{
    pcre2_match_data_free(matches);
}

nrl_status regex_find(const regex *r, void **matches, const char *text, size_t size, size_t from, bool follows,
                      size_t *begin, size_t *end, bool *found)
{
    const uint32_t options = PCRE2_NO_UTF_CHECK;
    const size_t last = from;
    int rc;
    if (!*matches) *matches = pcre2_match_data_create(1, NULL);
    for (bool again = true; again;) {
        rc = pcre2_match(r->code, (PCRE2_SPTR)text, size, from, options, *matches, r->limits);
        if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
            rc = pcre2_match(r->code, (PCRE2_SPTR)text, size, from, options | PCRE2_NO_JIT, *matches, r->limits);
        const PCRE2_SIZE *at = pcre2_get_ovector_pointer(*matches);
        again = rc >= 0 && follows && at[1] == last && from < size;
        for (from += again; again && from < size && ((unsigned char)text[from] & 0xc0) == 0x80;)
            from++;
    }
    *found = rc >= 0;
    if (rc == PCRE2_ERROR_NOMATCH) return NRL_OK;
    if (rc < 0)
        return nrl_fail(NRL_ERR_DATA,
                        "the tokenizer's regular expression needs too many steps on "
                        "this text of %zu bytes",
                        size);
    const PCRE2_SIZE *at = pcre2_get_ovector_pointer(*matches);
    *begin = at[0];
    *end = at[1];
    *found = !follows || at[1] > last;
    return NRL_OK;
}
