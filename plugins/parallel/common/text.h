/*
 * text.h - the text of a strategy in the summary of a run, written in parts.
 */
#ifndef PARALLEL_TEXT_H
#define PARALLEL_TEXT_H
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static inline void text_append(char *text, size_t room, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* Appends to a text of `room` bytes; what does not fit is cut off. */
static inline void text_append(char *text, size_t room, const char *fmt, ...)
{
    const size_t at = strlen(text);
    va_list a;
    va_start(a, fmt);
    vsnprintf(text + at, room - at, fmt, a);
    va_end(a);
}

#endif
