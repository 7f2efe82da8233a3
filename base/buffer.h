/*
 * buffer.h - a growing text, for writers (JSON, YAML, messages) that do not know the length in advance.
 * Initialise with {0}; the text is always NUL-terminated. One thread at a time.
 */
#ifndef BASE_BUFFER_H
#define BASE_BUFFER_H
#include <stddef.h>

typedef struct {
    char *text; /* NULL while empty */
    size_t size, capacity;
} buffer;

void buffer_add(buffer *b, const char *text, size_t size);
void buffer_puts(buffer *b, const char *text);
void buffer_print(buffer *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void buffer_spaces(buffer *b, size_t n);
char *buffer_take(buffer *b); /* returns the text, malloc'd, never NULL, and empties the buffer */
void buffer_free(buffer *b);

#endif
