/*
 * normal.c - the normalizer of a tokenizer file, and the edits of pre-tokenizers that change text
 * (a space becomes U+2581, one is put in front). encode.c calls it for each range of text between
 * added tokens.
 */
#include "parts.h"
#include "regex.h"
#include <string.h>

/* Words have 32-bit offsets, and the edits may expand each byte to three. No normalization form
 * expands a byte to more than 18 (UAX #15), so a file that does is hostile. */
enum { MAX_NORMALIZED = 1 << 30, GROWTH = 18, ALWAYS = 16 << 20 };

void normal_begin(bpe_scratch *s, size_t size)
{
    s->made = 0;
    s->most = size < (MAX_NORMALIZED - ALWAYS) / GROWTH ? size * GROWTH + ALWAYS : MAX_NORMALIZED;
}

static nrl_status fail_growth(const bpe_scratch *s)
{
    return nrl_fail(NRL_ERR_DATA,
                    "the tokenizer's normalizer makes a text too large: expected at most %zu bytes of this one",
                    s->most);
}

/* The buffer that does not contain the current text, emptied. */
static text_buffer *other_side(bpe_scratch *s, const mapped_text *t)
{
    bool in_one = s->one.data && t->text >= s->one.data && t->text < s->one.data + s->one.room;
    text_buffer *b = in_one ? &s->two : &s->one;
    b->n = 0;
    b->mapped = t->mapped;
    text_buffer_room(b, 1);
    return b;
}

static void take(mapped_text *t, const text_buffer *b)
{
    t->text = b->data;
    t->size = b->n;
    t->map = t->mapped ? b->from : NULL;
}

/* Steps read the map, so an identity map is written out if origins are requested. */
static void own_map(bpe_scratch *s, mapped_text *t)
{
    if (!t->mapped || t->map) return;
    text_buffer *b = other_side(s, t);
    text_buffer_copy(b, t->text, t->size, (uint32_t)t->start, NULL);
    take(t, b);
}

static void copy(text_buffer *b, const mapped_text *t, size_t begin, size_t end)
{
    text_buffer_copy(b, t->text + begin, end - begin, 0, t->map ? t->map + begin : NULL);
}

static uint32_t origin(const mapped_text *t, size_t at)
{
    return t->map && at < t->size ? t->map[at] : 0;
}

static void prepend(bpe_scratch *s, mapped_text *t, const char *text, size_t size)
{
    if (!t->size) return;
    text_buffer *b = other_side(s, t);
    text_buffer_put(b, text, size, origin(t, 0));
    copy(b, t, 0, t->size);
    take(t, b);
}

static nrl_status replace(bpe_scratch *s, mapped_text *t, const char *from, size_t from_size, const char *to,
                          size_t to_size)
{
    if (!from_size || !t->size || !text_find(t->text, t->size, from, from_size)) return NRL_OK;
    text_buffer *b = other_side(s, t);
    size_t at = 0;
    for (const char *p; (p = text_find(t->text + at, t->size - at, from, from_size));) {
        size_t hit = (size_t)(p - t->text);
        copy(b, t, at, hit);
        if (b->n + to_size > s->most) return fail_growth(s);
        text_buffer_put(b, to, to_size, origin(t, hit));
        at = hit + from_size;
    }
    copy(b, t, at, t->size);
    take(t, b);
    return NRL_OK;
}

static nrl_status replace_regex(bpe_scratch *s, mapped_text *t, const normal_step *step)
{
    text_buffer *b = other_side(s, t);
    size_t at = 0, begin, end;
    bool found = true, follows = false;
    while (t->size) { /* also at the end, where a match may be empty */
        NRL_TRY(regex_find(step->pattern, &s->matches, t->text, t->size, at, follows, &begin, &end, &found));
        if (!found) break;
        follows = true;
        copy(b, t, at, begin);
        if (b->n + step->content_size > s->most) return fail_growth(s);
        text_buffer_put(b, step->content, step->content_size, origin(t, begin));
        at = end;
    }
    copy(b, t, at, t->size);
    take(t, b);
    return NRL_OK;
}

static void strip(mapped_text *t, bool left, bool right)
{
    size_t n;
    while (left && t->size && utf8_is_space(utf8_next(t->text, t->text + t->size, &n))) {
        t->text += n;
        t->size -= n;
        t->start += n;
        if (t->map) t->map += n;
    }
    while (right && t->size) {
        const char *end = t->text + t->size, *last = utf8_back(t->text, end);
        if (!utf8_is_space(utf8_next(last, end, &n))) break;
        t->size = (size_t)(last - t->text);
    }
}

static bool is_ascii(const char *text, size_t size)
{
    size_t i = 0;
    for (uint64_t eight; i + 8 <= size; i += 8) {
        memcpy(&eight, text + i, 8);
        if (eight & 0x8080808080808080u) return false;
    }
    for (; i < size; i++)
        if (text[i] & 0x80) return false;
    return true;
}

static nrl_status apply_step(bpe_scratch *s, const normal_step *step, mapped_text *t)
{
    text_buffer *b;
    switch (step->kind) {
    case NORMAL_FORM:
        if (is_ascii(t->text, t->size)) break;
        b = other_side(s, t);
        unicode_normalize(step->form, t->text, t->size, t->map, b);
        take(t, b);
        break;
    case NORMAL_LOWER:
        b = other_side(s, t);
        unicode_lower(t->text, t->size, t->map, b);
        take(t, b);
        break;
    case NORMAL_PREPEND:
        prepend(s, t, step->text, step->text_size);
        break;
    case NORMAL_REPLACE:
        return replace(s, t, step->text, step->text_size, step->content, step->content_size);
    case NORMAL_REGEX:
        return replace_regex(s, t, step);
    case NORMAL_STRIP:
        strip(t, step->left, step->right);
        break;
    case NORMAL_NONE:
        break;
    }
    return NRL_OK;
}

nrl_status normal_apply(const bpe_tokenizer *tok, bpe_scratch *s, mapped_text *text)
{
    if (tok->n_normal) own_map(s, text);
    for (size_t i = 0; i < tok->n_normal; i++) {
        NRL_TRY(apply_step(s, &tok->normal[i], text));
        if (text->size > s->most) return fail_growth(s);
    }
    s->made += text->size;
    return s->made > s->most ? fail_growth(s) : NRL_OK;
}

nrl_status normal_edit(const bpe_tokenizer *tok, bpe_scratch *s, mapped_text *t)
{
    const edit_plan *e = &tok->edit;
    if (!e->space_first && !e->replacement) return NRL_OK;
    own_map(s, t);
    if (e->space_first && t->size && t->text[0] != ' ') prepend(s, t, " ", 1);
    if (!e->replacement) return NRL_OK;
    bool first = !t->map ? t->start == 0 : t->size && t->map[0] == 0;
    NRL_TRY(replace(s, t, " ", 1, e->replacement, e->replacement_size));
    bool there = t->size >= e->replacement_size && !memcmp(t->text, e->replacement, e->replacement_size);
    if (e->prepend && !there && (first || !e->first_only)) prepend(s, t, e->replacement, e->replacement_size);
    return NRL_OK;
}
