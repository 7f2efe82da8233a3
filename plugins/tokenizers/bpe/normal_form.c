/*
 * normal_form.c - Unicode normalization forms and lower case, with the origin of each byte.
 * utf8proc decomposes and composes. Splitting the text into ranges and ordering the marks is done
 * here, because whole-text calls would be slow on plain text and quadratic on long runs of marks.
 */
#include "base/arena.h"
#include "unicode.h"
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

/* A range that is being normalized. */
typedef struct {
    int32_t *chars;
    size_t n, room;
} range;

static bool is_hangul_syllable(int32_t c)
{
    return c >= 0xac00 && c < 0xac00 + 11172;
}

/* True: there is a boundary before c, and c alone is unchanged. False is always safe. */
static bool is_quiet(int32_t c, unicode_form form)
{
    bool composes = form == FORM_NFC || form == FORM_NFKC;
    if (c < 0x80 || (form == FORM_NFC && c < 0x300)) return true;
    if (is_hangul_syllable(c)) return composes;
    if (c >= 0x1100 && c < 0x1200) return false; /* conjoining jamo compose by arithmetic */
    const utf8proc_property_t *p = utf8proc_get_property(c);
    return !p->combining_class && p->decomp_seqindex == UINT16_MAX && (!composes || p->comb_index == UINT16_MAX);
}

static int mark_class(int32_t c)
{
    return utf8proc_get_property(c)->combining_class;
}

/* Stable merge sort of one run of marks by combining class. */
static void sort_marks(int32_t *marks, int32_t *spare, size_t n)
{
    if (n < 2) return;
    size_t half = n / 2, i = 0, j = half, k = 0;
    sort_marks(marks, spare, half);
    sort_marks(marks + half, spare, n - half);
    while (i < half && j < n)
        spare[k++] = mark_class(marks[j]) < mark_class(marks[i]) ? marks[j++] : marks[i++];
    while (i < half)
        spare[k++] = marks[i++];
    memcpy(marks, spare, k * sizeof *marks);
}

static void order_marks(range *s)
{
    int32_t *spare = NULL;
    for (size_t i = 0; i < s->n;) {
        size_t begin = i;
        while (i < s->n && mark_class(s->chars[i]))
            i++;
        if (i - begin > 1) {
            if (!spare) spare = mem_alloc(s->n * sizeof *spare);
            sort_marks(s->chars + begin, spare, i - begin);
        }
        if (i == begin) i++;
    }
    free(spare);
}

static void decompose(range *s, const char *text, size_t size, unicode_form form)
{
    enum { MOST = 32 }; /* the longest decomposition of one character is 18 */
    bool compat = form == FORM_NFKC || form == FORM_NFKD;
    utf8proc_option_t options = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE;
    if (compat) options |= UTF8PROC_COMPAT;
    const char *end = text + size;
    s->n = 0;
    for (size_t n; text < end; text += n) {
        if (s->room - s->n < MOST) {
            s->room = s->room ? s->room * 2 : 4 * MOST;
            s->chars = mem_realloc(s->chars, s->room * sizeof *s->chars);
        }
        int32_t c = utf8_next(text, end, &n);
        int last = 0;
        utf8proc_ssize_t made = utf8proc_decompose_char(c, s->chars + s->n, MOST, options, &last);
        if (made < 0 || made > MOST) {
            s->chars[s->n] = c;
            made = 1;
        }
        s->n += (size_t)made;
    }
}

static void normalize_stretch(range *s, unicode_form form, const char *text, size_t size, const uint32_t *map,
                              text_buffer *out)
{
    decompose(s, text, size, form);
    order_marks(s);
    if (form == FORM_NFC || form == FORM_NFKC) {
        utf8proc_ssize_t n =
            utf8proc_normalize_utf32(s->chars, (utf8proc_ssize_t)s->n, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
        if (n >= 0) s->n = (size_t)n;
    }
    size_t begin = out->n;
    text_buffer_room(out, s->n * 4);
    for (size_t i = 0; i < s->n; i++) {
        char bytes[4];
        text_buffer_put(out, bytes, utf8_write(s->chars[i], bytes), map[0]);
    }
    if (out->mapped && out->n - begin == size && !memcmp(out->data + begin, text, size))
        memcpy(out->from + begin, map, size * sizeof *map);
}

/* Appends [begin, end), which is unchanged, to out. */
static void keep(const char *text, const uint32_t *map, size_t begin, size_t end, text_buffer *out)
{
    text_buffer_copy(out, text + begin, end - begin, 0, map ? map + begin : NULL);
}

void unicode_normalize(unicode_form form, const char *text, size_t size, const uint32_t *map, text_buffer *out)
{
    static const uint32_t nowhere = 0; /* unmapped buffers ignore it */
    range s = {0};
    const char *end = text + size;
    size_t kept = 0, i = 0, starter = 0; /* starter: the start of the last quiet character */
    for (size_t n; i < size; i += n) {
        int32_t c = utf8_next(text + i, end, &n);
        if (is_quiet(c, form)) {
            starter = i;
            continue;
        }
        keep(text, map, kept, starter, out);
        size_t stop = i + n;
        for (size_t m; stop < size; stop += m)
            if (is_quiet(utf8_next(text + stop, end, &m), form)) break;
        normalize_stretch(&s, form, text + starter, stop - starter, map ? map + starter : &nowhere, out);
        kept = starter = stop;
        n = stop - i;
    }
    keep(text, map, kept, size, out);
    free(s.chars);
}

void unicode_lower(const char *text, size_t size, const uint32_t *map, text_buffer *out)
{
    const char *end = text + size;
    size_t n;
    for (const char *p = text; p < end; p += n) {
        int32_t c = utf8_next(p, end, &n);
        uint32_t from = map ? map[p - text] : 0;
        char bytes[4];
        if (c == 0x130) /* the only character whose lower case is two characters */
            text_buffer_put(out, "i\xcc\x87", 3, from);
        else
            text_buffer_put(out, bytes, utf8_write(utf8proc_tolower(c), bytes), from);
    }
}
