/*
 * status.c - the per-thread error record of nrl_fail, nrl_add_context and nrl_error_text; warnings, which go to the
 * events of the open run or, without a run, to stderr; and failed assertions.
 * A text longer than RECORD_SIZE (a config with very many mistakes) is truncated and ends in " ...". Errors allocate
 * nothing, so that running out of memory can be reported too.
 */
#include "api/status.h"
#include "base/escape.h"
#include <nrl/status.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RECORD_SIZE = 32768 };

/* A new text is formatted into the other record, because the current one may be among the arguments. */
static _Thread_local char records[2][RECORD_SIZE];
static _Thread_local int current;

/* Makes the other record the current one. `wanted` is the full length of its text, which may have been truncated. */
static void record_take(size_t wanted)
{
    static const char cut[] = " ...";
    current = !current;
    if (wanted >= RECORD_SIZE) memcpy(records[current] + RECORD_SIZE - sizeof cut, cut, sizeof cut);
}

static size_t record_format(char *to, const char *fmt, va_list a)
{
    int n = vsnprintf(to, RECORD_SIZE, fmt, a);
    return n < 0 ? (size_t)snprintf(to, RECORD_SIZE, "(a text that cannot be formatted)") : (size_t)n;
}

/* Appends text after `used` bytes, as far as there is room; returns the length of the full text. */
static size_t record_add(char *to, size_t used, const char *text)
{
    size_t n = strlen(text), room = used < RECORD_SIZE ? RECORD_SIZE - 1 - used : 0, taken = n < room ? n : room;
    if (taken) memcpy(to + used, text, taken);
    if (used < RECORD_SIZE) to[used + taken] = 0;
    return used + n;
}

nrl_status(nrl_fail)(nrl_status code, const char *fmt, ...) /* parentheses: a macro for analyzers has the name */
{
    va_list a;
    va_start(a, fmt);
    record_take(record_format(records[!current], fmt, a));
    va_end(a);
    return code;
}

void nrl_add_context(const char *fmt, ...)
{
    char *next = records[!current];
    va_list a;
    va_start(a, fmt);
    size_t used = record_format(next, fmt, a);
    va_end(a);
    record_take(record_add(next, record_add(next, used, ": "), records[current]));
}

const char *nrl_error_text(void)
{
    return records[current];
}

static _Atomic(status_sink) warning_sink;

void status_set_warning_sink(status_sink sink)
{
    atomic_store(&warning_sink, sink);
}

void status_print_warning(const char *text)
{
    flockfile(stderr); /* no other thread's output comes between the parts */
    fputs("warning: ", stderr);
    escape_print(stderr, text, strlen(text));
    fputc('\n', stderr);
    funlockfile(stderr);
}

void nrl_warn(const char *fmt, ...)
{
    va_list a;
    char *text = NULL;
    va_start(a, fmt);
    int n = vasprintf(&text, fmt, a);
    va_end(a);
    status_sink sink = atomic_load(&warning_sink);
    const char *shown = n >= 0 ? text : fmt; /* out of memory: print the format string */
    if (!sink || !sink(shown)) status_print_warning(shown);
    if (n >= 0) free(text);
}

void nrl_assert_failed(const char *file, int line, const char *text, long long a, long long b)
{
    fprintf(stderr, "%s:%d: broken invariant: %s (%lld, %lld)\n", file, line, text, a, b);
    abort();
}
