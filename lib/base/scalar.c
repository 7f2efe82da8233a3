/*
 * scalar.c - types of plain scalars. Integers that do not fit into 64 bits become floats, so that the error of the
 * option can show the value.
 */
#include "base/scalar.h"
#include <ctype.h>
#include <errno.h>
#include <langinfo.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool is_one_of(const char *text, const char *const *words)
{
    for (; *words; words++)
        if (!strcmp(text, *words)) return true;
    return false;
}

static const char *skip_digits(const char *s)
{
    while (isdigit((unsigned char)*s))
        s++;
    return s;
}

static const char *skip_sign(const char *s)
{
    return s + (*s == '+' || *s == '-');
}

static bool is_integer(const char *text)
{
    const char *s = skip_sign(text), *end = skip_digits(s);
    return end > s && !*end;
}

nrl_status scalar_check_locale(void)
{
    const char *point = nl_langinfo(RADIXCHAR);
    if (!strcmp(point, ".")) return NRL_OK;
    return nrl_fail(NRL_ERR_CONFIG,
                    "the decimal point of the program's locale is '%s', expected '.'\n"
                    "hint: setlocale(LC_NUMERIC, \"C\")",
                    point);
}

/* [-+]? ( digits [. digits?] | . digits ) ( [eE] [-+]? digits )? */
static bool is_real(const char *text)
{
    const char *s = skip_sign(text), *end = skip_digits(s);
    bool digits = end > s;
    if (*end == '.') {
        s = end + 1;
        end = skip_digits(s);
        digits = digits || end > s;
    }
    if (!digits) return false;
    if (*end == 'e' || *end == 'E') {
        s = skip_sign(end + 1);
        end = skip_digits(s);
        if (end == s) return false;
    }
    return !*end;
}

static bool is_special(const char *text, double *value)
{
    static const char *const inf[] = {".inf", ".Inf", ".INF", NULL};
    static const char *const nan_[] = {".nan", ".NaN", ".NAN", NULL};
    *value = is_one_of(text, nan_) ? (double)NAN : *text == '-' ? -(double)INFINITY : (double)INFINITY;
    return is_one_of(text, nan_) || is_one_of(skip_sign(text), inf);
}

/* Parses 0x1F and 0o17; false for other texts. */
static bool is_based_integer(const char *text, int64_t *value)
{
    int base = text[0] != '0' ? 0 : text[1] == 'x' ? 16 : text[1] == 'o' ? 8 : 0;
    if (!base || !isxdigit((unsigned char)text[2])) return false;
    char *end;
    errno = 0;
    *value = strtoll(text + 2, &end, base);
    return !*end && !errno;
}

static bool assign_number(nrl_node *n, const char *text)
{
    double real;
    int64_t integer;
    bool based = is_based_integer(text, &integer), plain = !based && is_integer(text);
    errno = 0;
    if (plain) integer = strtoll(text, NULL, 10);
    if (based || (plain && !errno)) {
        n->kind = NRL_NODE_INT;
        n->as.integer = integer;
        return true;
    }
    bool special = is_special(text, &real);
    if (!special && !is_real(text)) return false;
    n->kind = NRL_NODE_FLOAT;
    n->as.real = special ? real : strtod(text, NULL);
    return true;
}

static bool assign_word(nrl_node *n, const char *text)
{
    static const char *const yes[] = {"true", "True", "TRUE", NULL};
    static const char *const no[] = {"false", "False", "FALSE", NULL};
    static const char *const null[] = {"", "~", "null", "Null", "NULL", NULL};
    bool is_true = is_one_of(text, yes);
    if (is_true || is_one_of(text, no)) {
        n->kind = NRL_NODE_BOOL;
        n->as.boolean = is_true;
        return true;
    }
    n->kind = NRL_NODE_NULL;
    return is_one_of(text, null);
}

void scalar_assign(arena *a, nrl_node *n, const char *text, size_t size)
{
    n->text = arena_strndup(a, text, size);
    n->plain = true;
    n->size = 0;
    if (assign_word(n, n->text) || assign_number(n, n->text)) return;
    n->kind = NRL_NODE_STRING;
    n->as.string = n->text;
    n->size = size;
}

nrl_node *scalar_node(arena *a, const char *text, size_t size)
{
    nrl_node *n = node_new(a, NRL_NODE_NULL);
    scalar_assign(a, n, text, size);
    return n;
}
