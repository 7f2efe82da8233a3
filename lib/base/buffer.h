/*
 * buffer.h - a growing text, for writers (JSON, YAML, messages) that do not know the length in advance.
 * Initialise with {0}, or with {.what = "..."} if the text grows with the model or the data. The text is always
 * NUL-terminated. One thread at a time.
 *
 * Without memory a buffer {0} exits, as mem_alloc does. A buffer with `what` drops what does not fit and all later
 * text; its owner calls buffer_check or buffer_take when the text is complete.
 */
#ifndef BASE_BUFFER_H
#define BASE_BUFFER_H
#include <nrl/status.h>

typedef struct buffer {
    char *text; /* NULL while empty */
    size_t size, capacity;
    const char *what; /* for the error; NULL = bookkeeping */
    size_t lacks;     /* bytes that could not be allocated; 0 = the text is complete */
} buffer;

void buffer_add(buffer *b, const char *text, size_t size);
void buffer_puts(buffer *b, const char *text);
void buffer_print(buffer *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void buffer_spaces(buffer *b, size_t n);
nrl_status buffer_check(const buffer *b); /* NRL_ERR_MEMORY if the text is not complete */
/* Returns the text, malloc'd, and empties the buffer. NULL, with the error set, only if the text is not complete. */
char *buffer_take(buffer *b);
void buffer_free(buffer *b); /* keeps `what` */

#endif
