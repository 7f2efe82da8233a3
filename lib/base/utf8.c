/*
 * utf8.c - see utf8.h.
 */
#include "base/utf8.h"
#include <string.h>

int32_t utf8_next(const char *p, const char *end, size_t *size)
{
    const unsigned char *s = (const unsigned char *)p;
    if (s[0] < 0x80) {
        *size = 1;
        return s[0];
    }
    size_t n = s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
    if ((size_t)(end - p) < n) { /* cannot be in valid text; stay inside the buffer */
        *size = 1;
        return 0xfffd;
    }
    *size = n;
    if (n == 2) return (s[0] & 0x1f) << 6 | (s[1] & 0x3f);
    if (n == 3) return (s[0] & 0x0f) << 12 | (s[1] & 0x3f) << 6 | (s[2] & 0x3f);
    return (s[0] & 0x07) << 18 | (s[1] & 0x3f) << 12 | (s[2] & 0x3f) << 6 | (s[3] & 0x3f);
}

int32_t utf8_check(const char *p, const char *end, size_t *size)
{
    const unsigned char *s = (const unsigned char *)p, *e = (const unsigned char *)end;
    *size = 1;
    if (s[0] < 0x80) return s[0];
    if (s[0] < 0xc2 || s[0] > 0xf4) return -1;
    size_t n = s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
    /* The second byte's range excludes overlong forms, surrogates and what is above 10FFFF. */
    unsigned low = s[0] == 0xe0 ? 0xa0 : s[0] == 0xf0 ? 0x90 : 0x80;
    unsigned high = s[0] == 0xed ? 0x9f : s[0] == 0xf4 ? 0x8f : 0xbf;
    int32_t c = s[0] & (0x7f >> n);
    for (size_t i = 1; i < n; i++) {
        if (s + i >= e || s[i] < low || s[i] > high) {
            *size = i;
            return -1;
        }
        c = c << 6 | (s[i] & 0x3f);
        low = 0x80;
        high = 0xbf;
    }
    *size = n;
    return c;
}

size_t utf8_write(int32_t c, char *out)
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    size_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = n; i-- > 1; c >>= 6)
        out[i] = (char)(0x80 | (c & 0x3f));
    static const int lead[5] = {0, 0, 0xc0, 0xe0, 0xf0};
    out[0] = (char)(lead[n] | c);
    return n;
}

bool utf8_valid(const char *text, size_t size)
{
    const char *p = text, *end = text + size;
    while (p < end) {
        uint64_t eight;
        if (end - p >= 8 && (memcpy(&eight, p, 8), !(eight & 0x8080808080808080u))) {
            p += 8;
            continue;
        }
        size_t n;
        if (utf8_check(p, end, &n) < 0) return false;
        p += n;
    }
    return true;
}

const char *utf8_back(const char *begin, const char *p)
{
    do
        p--;
    while (p > begin && ((unsigned char)*p & 0xc0) == 0x80);
    return p;
}

bool utf8_is_space(int32_t c)
{
    if (c < 0x80) return c == ' ' || (c >= 9 && c <= 13);
    return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 ||
           c == 0x202f || c == 0x205f || c == 0x3000;
}

const char *text_find(const char *text, size_t size, const char *part, size_t part_size)
{
    return size ? memmem(text, size, part, part_size) : NULL;
}
