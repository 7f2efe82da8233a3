/*
 * buffer.c - a growing text; its capacity doubles.
 */
#include "base/buffer.h"
#include "base/arena.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_SIZE = 128 };

/* Makes room for `more` bytes and the NUL; returns the end of the text, or NULL if the text cannot be completed. */
static char *reserve(buffer *b, size_t more)
{
    if (b->lacks) return NULL;
    if (b->capacity - b->size <= more) {
        size_t want = b->capacity ? b->capacity : FIRST_SIZE;
        while (want - b->size <= more)
            want *= 2;
        char *text = b->what ? mem_try_grow(b->text, want, b->what) : mem_realloc(b->text, want);
        if (!text) {
            b->lacks = want;
            return NULL;
        }
        b->text = text;
        b->capacity = want;
    }
    return b->text + b->size;
}

void buffer_add(buffer *b, const char *text, size_t size)
{
    char *at = reserve(b, size);
    if (!at) return;
    if (size) memcpy(at, text, size);
    at[size] = 0;
    b->size += size;
}

void buffer_puts(buffer *b, const char *text)
{
    buffer_add(b, text, strlen(text));
}

void buffer_print(buffer *b, const char *fmt, ...)
{
    va_list a;
    va_start(a, fmt);
    int n = vsnprintf(NULL, 0, fmt, a);
    va_end(a);
    if (n <= 0) return;
    char *at = reserve(b, (size_t)n);
    if (!at) return;
    va_start(a, fmt);
    vsnprintf(at, (size_t)n + 1, fmt, a);
    va_end(a);
    b->size += (size_t)n;
}

void buffer_spaces(buffer *b, size_t n)
{
    char *at = reserve(b, n);
    if (!at) return;
    memset(at, ' ', n);
    b->size += n;
    b->text[b->size] = 0;
}

nrl_status buffer_check(const buffer *b)
{
    return b->lacks ? mem_fail(b->lacks, b->what) : NRL_OK;
}

char *buffer_take(buffer *b)
{
    char *end = reserve(b, 0), *text = b->text;
    if (!end) {
        buffer_check(b);
        buffer_free(b);
        return NULL;
    }
    *end = 0;
    *b = (buffer){.what = b->what};
    return text;
}

void buffer_free(buffer *b)
{
    free(b->text);
    *b = (buffer){.what = b->what};
}
