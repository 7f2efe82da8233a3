/*
 * unicode.h - growing text with origins, and the few character properties that tokenizers need. The
 * tables of properties are those of utf8proc. White space is the Unicode property White_Space
 * (utf8_is_space), which is the meaning of \s in the regular expressions of tokenizer files.
 */
#ifndef TEXT_UNICODE_H
#define TEXT_UNICODE_H
#include "base/utf8.h"
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
/* text_buffer_put: all n bytes come from `from`. text_buffer_copy: byte i comes from from + i, or
 * from map[i]. */
void text_buffer_put(text_buffer *b, const char *bytes, size_t n, uint32_t from);
void text_buffer_copy(text_buffer *b, const char *bytes, size_t n, uint32_t from, const uint32_t *map);
void text_buffer_free(text_buffer *b);

typedef enum { CHAR_OTHER = 0, CHAR_LETTER, CHAR_NUMBER, CHAR_SPACE } char_class;

/* Appends text with U+FFFD for each maximal invalid part. */
void utf8_repair(const char *text, size_t size, text_buffer *out);

char_class unicode_class(int32_t c);
bool unicode_is_word(int32_t c);        /* \w: letters, marks, decimal digits, connectors, joiners */
bool unicode_is_punctuation(int32_t c); /* category P, or an ASCII symbol */

typedef enum { FORM_NONE = 0, FORM_NFC, FORM_NFD, FORM_NFKC, FORM_NFKD } unicode_form;
/* Appends text in a normalization form in linear time, except for sorting runs of marks. */
void unicode_normalize(unicode_form form, const char *text, size_t size, const uint32_t *map, text_buffer *out);
/* Appends lower case, character by character. */
void unicode_lower(const char *text, size_t size, const uint32_t *map, text_buffer *out);

#endif
