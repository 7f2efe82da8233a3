/*
 * utf8.h - reading and writing UTF-8, character by character.
 */
#ifndef BASE_UTF8_H
#define BASE_UTF8_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Decodes the character at p < end of valid UTF-8; *size is its size in bytes. */
int32_t utf8_next(const char *p, const char *end, size_t *size);
/* The same for arbitrary bytes: returns -1 for an invalid sequence, with *size its maximal subpart (Unicode 3.9 D93b).
 */
int32_t utf8_check(const char *p, const char *end, size_t *size);
size_t utf8_write(int32_t c, char *out); /* 1 to 4 bytes */
bool utf8_valid(const char *text, size_t size);
/* Returns the start of the character that ends at p. */
const char *utf8_back(const char *begin, const char *p);
bool utf8_is_space(int32_t c); /* the Unicode property White_Space */

/* Returns the first occurrence of part in text, or NULL. An empty part occurs at the start. */
const char *text_find(const char *text, size_t size, const char *part, size_t part_size);

#endif
