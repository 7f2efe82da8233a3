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

/* Makes room for `more` bytes and the NUL; returns the end of the text. */
static char *reserve(buffer *b, size_t more)
{
    if (b->capacity - b->size <= more) {
        size_t want = b->capacity ? b->capacity : FIRST_SIZE;
        while (want - b->size <= more)
            want *= 2;
        b->text = mem_realloc(b->text, want);
        b->capacity = want;
    }
    return b->text + b->size;
}

void buffer_add(buffer *b, const char *text, size_t size)
{
    char *at = reserve(b, size);
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
    va_start(a, fmt);
    vsnprintf(at, (size_t)n + 1, fmt, a);
    va_end(a);
    b->size += (size_t)n;
}

void buffer_spaces(buffer *b, size_t n)
{
    memset(reserve(b, n), ' ', n);
    b->size += n;
    b->text[b->size] = 0;
}

char *buffer_take(buffer *b)
{
    reserve(b, 0)[0] = 0;
    char *text = b->text;
    *b = (buffer){0};
    return text;
}

void buffer_free(buffer *b)
{
    free(b->text);
    *b = (buffer){0};
}
