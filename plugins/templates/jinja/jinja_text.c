/*
 * jinja_text.c - characters as in Python: white space, lengths in code points, letter case.
 */
#include "jinja_parts.h"
#include "base/utf8.h"
#include <string.h>
#include <utf8proc.h>

/* str.isspace: Unicode white space and the four ASCII separators. */
bool text_is_space(int32_t c)
{
    return utf8_is_space(c) || (c >= 0x1c && c <= 0x1f);
}

bool text_is_letter(int32_t c)
{
    utf8proc_category_t k = utf8proc_category(c);
    return k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO;
}

bool text_is_number(int32_t c)
{
    utf8proc_category_t k = utf8proc_category(c);
    return k >= UTF8PROC_CATEGORY_ND && k <= UTF8PROC_CATEGORY_NO;
}

/* Letters, marks, decimal digits and letter numbers, connectors, joiners, circled and squared letters. */
bool text_is_word(int32_t c)
{
    utf8proc_category_t k = utf8proc_category(c);
    bool symbol = (c >= 0x24b6 && c <= 0x24e9) || (c >= 0x1f130 && c <= 0x1f149) || (c >= 0x1f150 && c <= 0x1f169) ||
                  (c >= 0x1f170 && c <= 0x1f189);
    return text_is_letter(c) || (k >= UTF8PROC_CATEGORY_MN && k <= UTF8PROC_CATEGORY_NL) || k == UTF8PROC_CATEGORY_PC ||
           c == 0x200c || c == 0x200d || symbol;
}

size_t text_length(const char *text, size_t size)
{
    size_t n = 0;
    for (size_t i = 0; i < size; i++)
        n += ((unsigned char)text[i] & 0xC0) != 0x80;
    return n;
}

size_t text_offset(const char *text, size_t size, size_t index)
{
    size_t i = 0;
    for (; i < size; i++)
        if (((unsigned char)text[i] & 0xC0) != 0x80 && !index--) break;
    return i;
}

/* Whether the character is in `set`, or is white space if `set` is NULL. */
static bool in_set(const char *at, size_t n, const char *set, size_t set_size)
{
    if (!set) return text_is_space(utf8_next(at, at + n, &n));
    for (size_t i = 0, m; i < set_size; i += m) {
        utf8_next(set + i, set + set_size, &m);
        if (m == n && !memcmp(set + i, at, n)) return true;
    }
    return false;
}

void text_strip(const char **text, size_t *size, const char *set, size_t set_size, bool left, bool right)
{
    const char *begin = *text, *end = begin + *size;
    size_t n;
    for (; left && begin < end; begin += n) {
        utf8_next(begin, end, &n);
        if (!in_set(begin, n, set, set_size)) break;
    }
    while (right && begin < end) {
        const char *last = utf8_back(begin, end);
        if (!in_set(last, (size_t)(end - last), set, set_size)) break;
        end = last;
    }
    *text = begin;
    *size = (size_t)(end - begin);
}

/* ---- letter case ---- */

static bool is_cased(int32_t c)
{
    utf8proc_category_t k = utf8proc_category(c);
    return k == UTF8PROC_CATEGORY_LU || k == UTF8PROC_CATEGORY_LL || k == UTF8PROC_CATEGORY_LT;
}

static void put(int32_t c, buffer *out)
{
    char bytes[4];
    buffer_add(out, bytes, utf8_write(c, bytes));
}

/* Of the few characters that become several ones, only this one is common. */
static void put_upper(int32_t c, bool title, buffer *out)
{
    if (c == 0xDF)
        buffer_puts(out, title ? "Ss" : "SS");
    else
        put(title ? utf8proc_totitle(c) : utf8proc_toupper(c), out);
}

/* Jinja's title filter capitalizes only after white space, - and brackets; str.title after anything
 * that is not a letter. */
static bool begins_word(text_case to, int32_t before)
{
    if (to == TEXT_TITLE_WORDS)
        return before < 0 || text_is_space(before) || (before < 128 && strchr("-({[<", before) && before);
    return to == TEXT_TITLE && (before < 0 || !is_cased(before));
}

void text_convert(const char *text, size_t size, text_case to, buffer *out)
{
    int32_t before = -1;
    size_t n;
    for (size_t i = 0; i < size; i += n) {
        int32_t c = utf8_next(text + i, text + size, &n);
        bool first = to == TEXT_CAPITALIZE ? i == 0 : begins_word(to, before);
        bool up = to == TEXT_UPPER || first || (to == TEXT_SWAP && utf8proc_islower(c));
        bool keep = to == TEXT_SWAP && !is_cased(c);
        if (keep)
            put(c, out);
        else if (up)
            put_upper(c, to != TEXT_UPPER && to != TEXT_SWAP, out);
        else
            put(utf8proc_tolower(c), out);
        before = c;
    }
}
