/*
 * unicode.c - growing text with the origin of each byte, and character classes.
 */
#include "unicode.h"
#include "base/arena.h"
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

void text_buffer_room(text_buffer *b, size_t more)
{
    if (b->room - b->n >= more) return;
    size_t room = b->room ? b->room * 2 : 256;
    if (room < b->n + more) room = b->n + more;
    b->data = mem_realloc(b->data, room);
    if (b->mapped || b->from) b->from = mem_realloc(b->from, room * sizeof *b->from);
    b->room = room;
}

/* A buffer may become mapped after it has grown. */
static void map_room(text_buffer *b)
{
    if (b->mapped && !b->from) b->from = mem_realloc(NULL, b->room * sizeof *b->from);
}

void text_buffer_put(text_buffer *b, const char *bytes, size_t n, uint32_t from)
{
    if (!n) return;
    text_buffer_room(b, n);
    memcpy(b->data + b->n, bytes, n);
    if (b->mapped) {
        map_room(b);
        for (size_t i = 0; i < n; i++)
            b->from[b->n + i] = from;
    }
    b->n += n;
}

void text_buffer_copy(text_buffer *b, const char *bytes, size_t n, uint32_t from, const uint32_t *map)
{
    if (!n) return;
    text_buffer_room(b, n);
    memcpy(b->data + b->n, bytes, n);
    if (b->mapped) {
        map_room(b);
        for (size_t i = 0; i < n; i++)
            b->from[b->n + i] = map ? map[i] : from + (uint32_t)i;
    }
    b->n += n;
}

void text_buffer_free(text_buffer *b)
{
    free(b->data);
    free(b->from);
    *b = (text_buffer){0};
}

void utf8_repair(const char *text, size_t size, text_buffer *out)
{
    size_t n;
    for (size_t i = 0; i < size; i += n) {
        if (utf8_check(text + i, text + size, &n) >= 0)
            text_buffer_copy(out, text + i, n, (uint32_t)i, NULL);
        else
            text_buffer_put(out, "\xef\xbf\xbd", 3, (uint32_t)i);
    }
}

/* Letters and numbers of Unicode 15.1 and 16.0, for versions of utf8proc that do not know them: the
 * tokenizers that models were trained with do. */
static char_class newer_class(int32_t c)
{
    static const struct {
        int32_t first, last;
        char_class class;
    } ranges[] = {{0x1c89, 0x1c8a, CHAR_LETTER},   {0xa7cb, 0xa7cd, CHAR_LETTER},   {0xa7da, 0xa7dc, CHAR_LETTER},
                  {0x105c0, 0x105f3, CHAR_LETTER}, {0x10d40, 0x10d49, CHAR_NUMBER}, {0x10d4a, 0x10d65, CHAR_LETTER},
                  {0x10d6f, 0x10d85, CHAR_LETTER}, {0x10ec2, 0x10ec4, CHAR_LETTER}, {0x11380, 0x11389, CHAR_LETTER},
                  {0x1138b, 0x1138b, CHAR_LETTER}, {0x1138e, 0x1138e, CHAR_LETTER}, {0x11390, 0x113b5, CHAR_LETTER},
                  {0x113b7, 0x113b7, CHAR_LETTER}, {0x113d1, 0x113d1, CHAR_LETTER}, {0x113d3, 0x113d3, CHAR_LETTER},
                  {0x116d0, 0x116e3, CHAR_NUMBER}, {0x11bc0, 0x11be0, CHAR_LETTER}, {0x11bf0, 0x11bf9, CHAR_NUMBER},
                  {0x13460, 0x143fa, CHAR_LETTER}, {0x16100, 0x1611d, CHAR_LETTER}, {0x16130, 0x16139, CHAR_NUMBER},
                  {0x16d40, 0x16d6c, CHAR_LETTER}, {0x16d70, 0x16d79, CHAR_NUMBER}, {0x18cff, 0x18cff, CHAR_LETTER},
                  {0x1ccf0, 0x1ccf9, CHAR_NUMBER}, {0x1e5d0, 0x1e5ed, CHAR_LETTER}, {0x1e5f0, 0x1e5f0, CHAR_LETTER},
                  {0x1e5f1, 0x1e5fa, CHAR_NUMBER}, {0x2ebf0, 0x2ee5d, CHAR_LETTER}};
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges && c >= ranges[i].first; i++)
        if (c <= ranges[i].last) return ranges[i].class;
    return CHAR_OTHER;
}

char_class unicode_class(int32_t c)
{
    if (c < 0x80) {
        if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) return CHAR_LETTER;
        if (c >= '0' && c <= '9') return CHAR_NUMBER;
        return utf8_is_space(c) ? CHAR_SPACE : CHAR_OTHER;
    }
    switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
        return CHAR_LETTER;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
        return CHAR_NUMBER;
    case UTF8PROC_CATEGORY_CN:
        return newer_class(c);
    default:
        return utf8_is_space(c) ? CHAR_SPACE : CHAR_OTHER;
    }
}

/* Symbols that are Alphabetic: circled and squared letters. */
static bool is_letter_symbol(int32_t c)
{
    return (c >= 0x24b6 && c <= 0x24e9) || (c >= 0x1f130 && c <= 0x1f149) || (c >= 0x1f150 && c <= 0x1f169) ||
           (c >= 0x1f170 && c <= 0x1f189);
}

bool unicode_is_word(int32_t c)
{
    if (c < 0x80) return unicode_class(c) == CHAR_LETTER || unicode_class(c) == CHAR_NUMBER || c == '_';
    switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_PC:
        return true;
    default:
        return unicode_class(c) == CHAR_LETTER || c == 0x200c || c == 0x200d || is_letter_symbol(c);
    }
}

bool unicode_is_punctuation(int32_t c)
{
    if (c < 0x80) return c > ' ' && c < 0x7f && unicode_class(c) == CHAR_OTHER;
    utf8proc_category_t k = utf8proc_category(c);
    return k >= UTF8PROC_CATEGORY_PC && k <= UTF8PROC_CATEGORY_PO;
}
