/*
 * unicode.h - UTF-8 and the few character properties that tokenizers ask about.
 * Property tables are utf8proc's; this folder is its only home. White space is the Unicode
 * property White_Space, which is what the regular expressions of tokenizer files mean by \s.
 */
#ifndef TEXT_UNICODE_H
#define TEXT_UNICODE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Growing bytes; with `mapped`, from[i] is the byte of the caller's text that data[i] came from. */
typedef struct {
    char *data;
    uint32_t *from;
    size_t n, room;
    bool mapped;
} text_buffer;

void text_buffer_room(text_buffer *b, size_t more);
/* All n bytes come from `from`; text_buffer_copy: byte i comes from from + i, or from map[i]. */
void text_buffer_put(text_buffer *b, const char *bytes, size_t n, uint32_t from);
void text_buffer_copy(text_buffer *b, const char *bytes, size_t n, uint32_t from,
                      const uint32_t *map);
void text_buffer_free(text_buffer *b);

/* First place of part in text, NULL if there is none. An empty part stands at the beginning. */
const char *text_find(const char *text, size_t size, const char *part, size_t part_size);

typedef enum { CHAR_OTHER = 0, CHAR_LETTER, CHAR_NUMBER, CHAR_SPACE } char_class;

/* Decodes the character at p < end of valid UTF-8; *size is its bytes. */
int32_t utf8_next(const char *p, const char *end, size_t *size);
/* The same for any bytes: -1 for a broken sequence, *size its maximal subpart (Unicode 3.9 D93b).*/
int32_t utf8_check(const char *p, const char *end, size_t *size);
size_t utf8_write(int32_t c, char *out); /* 1 to 4 bytes */
bool utf8_valid(const char *text, size_t size);
/* Appends text with U+FFFD for each maximal broken part. */
void utf8_repair(const char *text, size_t size, text_buffer *out);
/* Start of the character that ends at p. */
const char *utf8_back(const char *begin, const char *p);

char_class unicode_class(int32_t c);
bool unicode_is_space(int32_t c);
bool unicode_is_word(int32_t c); /* \w: letters, marks, decimal digits, connectors, joiners */
bool unicode_is_punctuation(int32_t c); /* category P, or an ASCII symbol */

typedef enum { FORM_NONE = 0, FORM_NFC, FORM_NFD, FORM_NFKC, FORM_NFKD } unicode_form;
/* Appends text in a normalization form; work is linear but for sorting runs of marks. */
void unicode_normalize(unicode_form form, const char *text, size_t size, const uint32_t *map,
                       text_buffer *out);
/* Appends lower case, character by character. */
void unicode_lower(const char *text, size_t size, const uint32_t *map, text_buffer *out);

#endif
