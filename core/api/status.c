/*
 * status.c - the per-thread error record behind nrl_fail, nrl_add_context and nrl_error_text; and where warnings go: to
 * the events of the open run, without one to stderr. A broken invariant is printed here.
 * Long texts (a config with many mistakes) are kept whole up to RECORD_SIZE; then the end is cut
 * and says so. Nothing here allocates, so errors about memory can be told too.
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

/* A text is formatted beside the one before, which may be among its arguments, and takes its place then. */
static _Thread_local char records[2][RECORD_SIZE];
static _Thread_local int current;

/* The text in the other record, of which `wanted` bytes were to be written, takes the place of this one. */
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

/* Behind `used` bytes, as much as there is room for. */
static size_t record_add(char *to, size_t used, const char *text)
{
    size_t n = strlen(text), room = used < RECORD_SIZE ? RECORD_SIZE - 1 - used : 0, taken = n < room ? n : room;
    if (taken) memcpy(to + used, text, taken);
    if (used < RECORD_SIZE) to[used + taken] = 0;
    return used + n;
}

nrl_status nrl_fail(nrl_status code, const char *fmt, ...)
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
    flockfile(stderr); /* of whatever length, in one piece */
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
    const char *shown = n >= 0 ? text : fmt; /* no memory for it: better unfilled than untold */
    if (!sink || !sink(shown)) status_print_warning(shown);
    if (n >= 0) free(text);
}

void nrl_assert_failed(const char *file, int line, const char *text, long long a, long long b)
{
    fprintf(stderr, "%s:%d: broken invariant: %s (%lld, %lld)\n", file, line, text, a, b);
    abort();
}
