/*
 * utf8.h - reading and writing UTF-8, character by character.
 */
#ifndef BASE_UTF8_H
#define BASE_UTF8_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Decodes the character at p < end of valid UTF-8; *size is its bytes. */
int32_t utf8_next(const char *p, const char *end, size_t *size);
/* The same for any bytes: -1 for a broken sequence, *size its maximal subpart (Unicode 3.9 D93b).*/
int32_t utf8_check(const char *p, const char *end, size_t *size);
size_t utf8_write(int32_t c, char *out); /* 1 to 4 bytes */
bool utf8_valid(const char *text, size_t size);
/* Start of the character that ends at p. */
const char *utf8_back(const char *begin, const char *p);
bool utf8_is_space(int32_t c); /* the Unicode property White_Space */

/* First place of part in text, NULL if there is none. An empty part stands at the beginning. */
const char *text_find(const char *text, size_t size, const char *part, size_t part_size);

#endif
