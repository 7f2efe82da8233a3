/*
 * encode.c - bpe_encode: from text to ids through added tokens, normalizer, words and merges; and
 * the scratch memory of a thread. parts.h describes the steps.
 */
#include "words.h"
#include "parts.h"
#include "regex.h"
#include <stdlib.h>
#include <string.h>

/* ---- scratch ---- */

bpe_scratch *bpe_scratch_create(void)
{
    bpe_scratch *s = mem_alloc(sizeof *s);
    s->bpe = word_cache_create();
    return s;
}

void bpe_scratch_destroy(bpe_scratch *s)
{
    if (!s) return;
    text_buffer_free(&s->clean);
    text_buffer_free(&s->one);
    text_buffer_free(&s->two);
    free(s->words.at);
    free(s->next.at);
    regex_matches_free(s->matches);
    word_cache_destroy(s->bpe);
    free(s);
}

size_t bpe_scratch_dropped(const bpe_scratch *scratch)
{
    return scratch->dropped;
}

/* ---- encoding ---- */

/* Invalid UTF-8 becomes U+FFFD, one for each maximal invalid part. */
static void sanitize(bpe_scratch *s, mapped_text *t)
{
    if (utf8_valid(t->text, t->size)) return;
    s->clean.n = 0;
    s->clean.mapped = t->mapped;
    utf8_repair(t->text, t->size, &s->clean);
    t->text = s->clean.data;
    t->size = s->clean.n;
    t->map = t->mapped ? s->clean.from : NULL;
}

static mapped_text part_of(const mapped_text *t, size_t begin, size_t end)
{
    mapped_text part = *t;
    part.text += begin;
    part.size = end - begin;
    part.start += begin;
    if (part.map) part.map += begin;
    return part;
}

static size_t origin(const mapped_text *t, size_t at)
{
    return t->map ? t->map[at] : t->start + at;
}

static nrl_status encode_words(const bpe_tokenizer *tok, bpe_scratch *s, mapped_text t, nrl_token_ids *out)
{
    NRL_TRY(normal_edit(tok, s, &t));
    NRL_TRY(split_apply(tok, s, t.text, t.size));
    for (size_t i = 0; i < s->words.n; i++) {
        span w = s->words.at[i];
        bpe_encode_word(tok, s, t.text + w.begin, w.end - w.begin, t.map ? t.map + w.begin : NULL, t.start + w.begin,
                        out);
    }
    return NRL_OK;
}

/* Encodes one range between tokens of the raw text: normalizes it, then splits it at the normalized
 * tokens. */
static nrl_status encode_stretch(const bpe_tokenizer *tok, bpe_scratch *s, mapped_text t, unsigned flags,
                                 nrl_token_ids *out)
{
    if (!t.size) return NRL_OK;
    NRL_TRY(normal_apply(tok, s, &t));
    if (!tok->normalized.n) return encode_words(tok, s, t, out);
    /* Edits reuse the buffers, so the text that is still needed is copied first. */
    text_buffer kept = {.mapped = t.map != NULL};
    text_buffer_copy(&kept, t.text, t.size, 0, t.map);
    t.text = kept.data;
    if (t.map) t.map = kept.from;
    nrl_status st = NRL_OK;
    added_walk w = {0};
    while (st == NRL_OK && added_next(tok, &tok->normalized, t.text, t.size, flags, &w)) {
        if (w.begin > w.at) st = encode_words(tok, s, part_of(&t, w.at, w.begin), out);
        nrl_token_ids_push(out, w.token->id, origin(&t, w.begin));
    }
    if (st == NRL_OK && w.at < t.size) st = encode_words(tok, s, part_of(&t, w.at, t.size), out);
    text_buffer_free(&kept);
    return st;
}

static nrl_status encode_text(const bpe_tokenizer *tok, bpe_scratch *s, mapped_text t, unsigned flags,
                              nrl_token_ids *out)
{
    added_walk w = {0};
    while (added_next(tok, &tok->raw, t.text, t.size, flags, &w)) {
        if (w.begin > w.at) NRL_TRY(encode_stretch(tok, s, part_of(&t, w.at, w.begin), flags, out));
        nrl_token_ids_push(out, w.token->id, origin(&t, w.begin));
    }
    return encode_stretch(tok, s, part_of(&t, w.at, t.size), flags, out);
}

nrl_status bpe_encode(const bpe_tokenizer *tok, bpe_scratch *scratch, const char *text, size_t size, unsigned flags,
                      nrl_token_ids *out)
{
    bool around = flags & NRL_ENCODE_ADD_SPECIAL;
    for (size_t i = 0; around && i < tok->n_prefix; i++)
        nrl_token_ids_push(out, tok->prefix[i], 0);
    mapped_text t = {.text = text, .size = size, .mapped = out->want_starts};
    if (size) {
        sanitize(scratch, &t);
        normal_begin(scratch, t.size);
        NRL_TRY(encode_text(tok, scratch, t, flags, out));
    }
    for (size_t i = 0; around && i < tok->n_suffix; i++)
        nrl_token_ids_push(out, tok->suffix[i], size);
    return NRL_OK;
}
