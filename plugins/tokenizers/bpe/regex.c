/*
 * regex.c - PCRE2 with its just-in-time compiler, and with limits so that no pattern hangs.
 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "regex.h"
#include "base/arena.h"
#include "base/buffer.h"
#include "unicode.h"
#include <pcre2.h>
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

static nrl_status rewrite(const char *pattern, size_t size, buffer *out)
{
    bool in_class = false;
    for (size_t i = 0; i < size; i++) {
        char c = pattern[i];
        if (c == '\\' && i + 1 < size) {
            const char *other = rewritten(pattern[++i], in_class);
            if (other)
                buffer_puts(out, other);
            else
                buffer_add(out, pattern + i - 1, 2);
            continue;
        }
        if (in_class && is_set_algebra(pattern, size, i))
            return nrl_fail(NRL_ERR_DATA, "regular expression '%.*s': nested sets are not supported",
                            size < 200 ? (int)size : 200, pattern);
        if (c == '[' && in_class) { /* [:name:] has a bracket of its own */
            const char *stop = text_find(pattern + i, size - i, ":]", 2);
            size_t n = stop ? (size_t)(stop - pattern) + 2 - i : 1;
            buffer_add(out, pattern + i, n);
            i += n - 1;
            continue;
        }
        if (c == '[')
            in_class = true;
        else if (c == ']')
            in_class = false;
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

nrl_status regex_find(const regex *r, void **matches, const char *text, size_t size, size_t from, size_t *begin,
                      size_t *end, bool *found)
{
    if (!*matches) *matches = pcre2_match_data_create(1, NULL);
    uint32_t options = PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY;
    int rc = pcre2_match(r->code, (PCRE2_SPTR)text, size, from, options, *matches, r->limits);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
        rc = pcre2_match(r->code, (PCRE2_SPTR)text, size, from, options | PCRE2_NO_JIT, *matches, r->limits);
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
    return NRL_OK;
}
