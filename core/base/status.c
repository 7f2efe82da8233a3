/*
 * status.c - the per-thread error record behind nrl_fail, nrl_note and nrl_error_text; and what the core
 * prints itself, which is warnings and a broken invariant.
 * Long texts (a config with many mistakes) are kept whole up to RECORD_SIZE; then the end is cut
 * and says so. Nothing here allocates, so errors about memory can be told too.
 */
#include <nrl/status.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RECORD_SIZE = 32768, NOTE_SIZE = 1024 };

static _Thread_local char record[RECORD_SIZE];

static void mark_cut(int wanted)
{
    static const char cut[] = " ...";
    if (wanted >= RECORD_SIZE) memcpy(record + RECORD_SIZE - sizeof cut, cut, sizeof cut);
}

nrl_status nrl_fail(nrl_status code, const char *fmt, ...)
{
    char old[NOTE_SIZE]; /* an argument may be the old text itself */
    va_list a;
    va_start(a, fmt);
    int n = vsnprintf(old, sizeof old, fmt, a);
    va_end(a);
    if (n >= 0 && n < NOTE_SIZE) {
        memcpy(record, old, (size_t)n + 1);
    } else {
        va_start(a, fmt);
        mark_cut(vsnprintf(record, sizeof record, fmt, a));
        va_end(a);
    }
    return code;
}

void nrl_note(const char *fmt, ...)
{
    char head[NOTE_SIZE];
    va_list a;
    va_start(a, fmt);
    vsnprintf(head, sizeof head, fmt, a);
    va_end(a);
    size_t n = strlen(head), m = strlen(record);
    if (n + 2 + m >= RECORD_SIZE) m = RECORD_SIZE - n - 3;
    memmove(record + n + 2, record, m);
    record[n + 2 + m] = 0;
    memcpy(record, head, n);
    memcpy(record + n, ": ", 2);
}

const char *nrl_error_text(void)
{
    return record;
}

void nrl_warn(const char *fmt, ...)
{
    va_list a;
    va_start(a, fmt);
    flockfile(stderr); /* of whatever length, in one piece */
    fputs("warning: ", stderr);
    vfprintf(stderr, fmt, a);
    fputc('\n', stderr);
    funlockfile(stderr);
    va_end(a);
}

void nrl_assert_failed(const char *file, int line, const char *text, long long a, long long b)
{
    fprintf(stderr, "%s:%d: broken invariant: %s (%lld, %lld)\n", file, line, text, a, b);
    abort();
}
