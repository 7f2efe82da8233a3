/*
 * escape.c - see escape.h.
 */
#include "base/escape.h"
#include "base/json.h"
#include <stdbool.h>
#include <string.h>

static bool is_between(const unsigned char *s, const char *low, const char *high, size_t n)
{
    return memcmp(s, low, n) >= 0 && memcmp(s, high, n) <= 0;
}

/* Whether a character of n bytes is a control character or changes the direction of the text after it. */
static bool is_control(const unsigned char *s, size_t n)
{
    if (n == 1) return (s[0] < 0x20 && s[0] != '\n' && s[0] != '\t') || s[0] == 0x7f;
    if (n == 2) return is_between(s, "\xC2\x80", "\xC2\x9F", 2) || is_between(s, "\xD8\x9C", "\xD8\x9C", 2);
    return n == 3 &&
           (is_between(s, "\xE2\x80\x8E", "\xE2\x80\x8F", 3) || is_between(s, "\xE2\x80\xAA", "\xE2\x80\xAE", 3) ||
            is_between(s, "\xE2\x81\xA6", "\xE2\x81\xA9", 3));
}

/* Returns the length of the harmless prefix of text. If the prefix is empty, *n is the size of the harmful character.
 */
static size_t harmless(const char *text, size_t size, size_t *n)
{
    size_t i = 0;
    for (*n = 0; i < size; i += *n) {
        const unsigned char *s = (const unsigned char *)text + i;
        *n = json_utf8_size(s, size - i);
        if (*n && !is_control(s, *n)) continue;
        if (!*n) *n = 1;
        break;
    }
    return i;
}

typedef void put_text(void *to, const char *text, size_t size);

static void escape(const char *text, size_t size, put_text *put, void *to)
{
    static const char digits[] = "0123456789abcdef";
    while (size) {
        size_t n, plain = harmless(text, size, &n);
        if (plain) put(to, text, plain);
        if (plain) n = plain;
        for (size_t i = 0; !plain && i < n; i++) {
            unsigned char c = (unsigned char)text[i];
            const char shown[4] = {'\\', 'x', digits[c >> 4], digits[c & 15]};
            put(to, shown, sizeof shown);
        }
        text += n;
        size -= n;
    }
}

static void to_file(void *to, const char *text, size_t size)
{
    fwrite(text, 1, size, to);
}

static void to_buffer(void *to, const char *text, size_t size)
{
    buffer_add(to, text, size);
}

void escape_print(FILE *f, const char *text, size_t size)
{
    escape(text, size, to_file, f);
}

void escape_add(buffer *b, const char *text, size_t size)
{
    escape(text, size, to_buffer, b);
}
