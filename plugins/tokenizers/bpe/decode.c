/*
 * decode.c - ids to text, all at once or one id at a time. Invalid bytes become U+FFFD as in
 * Hugging Face: byte-level models replace each maximal invalid part; with byte fallback, a run of
 * byte tokens that is not valid as a whole gives one U+FFFD per byte.
 */
#include "base/buffer.h"
#include "words.h"
#include "parts.h"
#include <stdlib.h>
#include <string.h>

static const char broken[] = "\xef\xbf\xbd";

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The byte of "<0xNN>", or -1. */
static int fallback_byte(const char *text, size_t size)
{
    if (size != 6 || memcmp(text, "<0x", 3) || text[5] != '>') return -1;
    int high = hex_digit(text[3]), low = hex_digit(text[4]);
    return high < 0 || low < 0 ? -1 : high << 4 | low;
}

static void add_replaced(buffer *out, const char *text, size_t size, const replacement *r)
{
    for (const char *p; size && (p = text_find(text, size, r->from, r->from_size));) {
        size_t before = (size_t)(p - text);
        buffer_add(out, text, before);
        buffer_add(out, r->to, r->to_size);
        text += before + r->from_size;
        size -= before + r->from_size;
    }
    buffer_add(out, text, size);
}

/* Appends the bytes of a byte-level token. A token with a character outside the byte alphabet
 * stands for its own text. */
static void add_bytes(buffer *out, const char *text, size_t size)
{
    size_t start = out->size, n;
    for (size_t i = 0; i < size; i += n) {
        int byte = char_to_byte(utf8_next(text + i, text + size, &n));
        if (byte < 0) {
            out->size = start;
            buffer_add(out, text, size);
            return;
        }
        char c = (char)byte;
        buffer_add(out, &c, 1);
    }
}

/* Appends the text of a token that is not a fallback byte. */
static void add_token(const bpe_tokenizer *tok, buffer *out, const char *text, size_t size, bool first)
{
    const decode_plan *d = &tok->decode;
    if (d->byte_level) {
        add_bytes(out, text, size);
        return;
    }
    if (d->metaspace) {
        bool nothing = first && d->drop_first;
        add_replaced(out, text, size, &(replacement){d->metaspace, nothing ? "" : " ", d->metaspace_size, !nothing});
        return;
    }
    if (d->n_replace == 1) {
        add_replaced(out, text, size, &d->replace[0]);
        return;
    }
    buffer now = {0};
    buffer_add(&now, text, size);
    for (size_t i = 0; i < d->n_replace; i++) {
        buffer next = {0};
        if (now.size) add_replaced(&next, now.text, now.size, &d->replace[i]);
        buffer_free(&now);
        now = next;
    }
    if (now.size) buffer_add(out, now.text, now.size);
    buffer_free(&now);
}

static void flush_run(buffer *out, buffer *run)
{
    if (!run->size) return;
    if (utf8_valid(run->text, run->size))
        buffer_add(out, run->text, run->size);
    else
        for (size_t i = 0; i < run->size; i++)
            buffer_puts(out, broken);
    run->size = 0;
}

static void make_valid(buffer *b)
{
    if (!b->size || utf8_valid(b->text, b->size)) return;
    text_buffer clean = {0};
    utf8_repair(b->text, b->size, &clean);
    b->size = 0;
    buffer_add(b, clean.data, clean.n);
    text_buffer_free(&clean);
}

static void strip_ends(const decode_plan *d, buffer *b)
{
    if (!d->strip || !b->size) return;
    size_t n = d->strip_size, from = 0;
    for (int64_t i = 0; i < d->strip_start && b->size - from >= n; i++, from += n)
        if (memcmp(b->text + from, d->strip, n)) break;
    for (int64_t i = 0; i < d->strip_stop && b->size - from >= n; i++, b->size -= n)
        if (memcmp(b->text + b->size - n, d->strip, n)) break;
    memmove(b->text, b->text + from, b->size - from);
    b->size -= from;
    b->text[b->size] = 0;
}

nrl_status bpe_decode(const bpe_tokenizer *tok, const int32_t *ids, size_t n, bool skip_special, nrl_text *text)
{
    buffer out = {0}, run = {0};
    nrl_status st = NRL_OK;
    bool first = true;
    for (size_t i = 0; i < n && st == NRL_OK; i++) {
        size_t token_size;
        const char *token = vocab_text(&tok->words, ids[i], &token_size);
        if (!token) {
            st = nrl_fail(NRL_ERR_DATA, "token id %d at position %zu is not in the vocabulary of %d", ids[i], i,
                          tok->words.n);
            break;
        }
        if (skip_special && tok->words.entries[ids[i]].special) continue;
        int byte = tok->decode.byte_fallback ? fallback_byte(token, token_size) : -1;
        if (!first && tok->decode.join_spaces) buffer_puts(&out, " ");
        if (byte >= 0) {
            char c = (char)byte;
            buffer_add(&run, &c, 1);
        } else {
            flush_run(&out, &run);
            add_token(tok, &out, token, token_size, first);
        }
        first = false;
    }
    flush_run(&out, &run);
    buffer_free(&run);
    if (st != NRL_OK) {
        buffer_free(&out);
        return st;
    }
    make_valid(&out);
    strip_ends(&tok->decode, &out);
    if (out.size) nrl_text_add(text, out.text, out.size);
    buffer_free(&out);
    return NRL_OK;
}

/* ---- streaming ---- */

size_t bpe_stream_room(const bpe_tokenizer *tok)
{
    size_t longest = 0, grow = 1;
    for (int32_t id = 0; id < tok->words.n; id++)
        if (vocab_has(&tok->words, id) && tok->words.entries[id].size > longest) longest = tok->words.entries[id].size;
    for (size_t i = 0; i < tok->decode.n_replace; i++)
        grow *= tok->decode.replace[i].to_size + 1;
    /* Each byte may be invalid, and up to four pending bytes precede. */
    return (longest * grow + 8) * 3 + 1;
}

/* Whether p is the beginning of a valid but incomplete character. */
static bool is_unfinished(const char *p, const char *end)
{
    size_t n;
    if (utf8_check(p, end, &n) >= 0 || p + n != end) return false;
    unsigned char lead = (unsigned char)*p;
    return lead >= 0xc2 && lead <= 0xf4 && n < (lead < 0xe0 ? 2u : lead < 0xf0 ? 3u : 4u);
}

/* Moves complete characters from `bytes` to `out`; an incomplete character stays pending. */
static void take_certain(bpe_stream *stream, const buffer *bytes, bool flush, buffer *out)
{
    const char *p = bytes->text, *end = bytes->text + bytes->size;
    stream->n_pending = 0;
    for (size_t n; p < end; p += n) {
        if (!flush && is_unfinished(p, end)) {
            stream->n_pending = (uint32_t)(end - p);
            memcpy(stream->pending, p, stream->n_pending);
            return;
        }
        if (utf8_check(p, end, &n) >= 0)
            buffer_add(out, p, n);
        else
            buffer_puts(out, broken);
    }
}

static void next_bytes(const bpe_tokenizer *tok, const bpe_stream *stream, int32_t id, bool skip_special, buffer *bytes)
{
    size_t size;
    const char *token = vocab_text(&tok->words, id, &size);
    if (!token) {
        if (id != NRL_TOKEN_NONE) buffer_puts(bytes, broken);
        return;
    }
    if (skip_special && tok->words.entries[id].special) return;
    int byte = tok->decode.byte_fallback ? fallback_byte(token, size) : -1;
    if (stream->started && tok->decode.join_spaces) buffer_puts(bytes, " ");
    char c = (char)byte;
    if (byte >= 0)
        buffer_add(bytes, &c, 1);
    else
        add_token(tok, bytes, token, size, !stream->started);
}

size_t bpe_decode_next(const bpe_tokenizer *tok, bpe_stream *stream, int32_t id, bool skip_special, char *out_buffer,
                       size_t room)
{
    buffer bytes = {0}, out = {0};
    buffer_add(&bytes, (const char *)stream->pending, stream->n_pending);
    size_t before = bytes.size;
    next_bytes(tok, stream, id, skip_special, &bytes);
    bool grew = bytes.size > before;
    if (bytes.size && (grew || id == NRL_TOKEN_NONE)) take_certain(stream, &bytes, id == NRL_TOKEN_NONE, &out);
    const decode_plan *d = &tok->decode;
    size_t skip = 0;
    if (grew && !stream->started) {
        /* Text that is stripped once can only be at the beginning of the first token. */
        if (d->strip && d->strip_start && out.text && out.size >= d->strip_size &&
            !memcmp(out.text, d->strip, d->strip_size))
            skip = d->strip_size;
        stream->started = true;
    }
    size_t n = out.size - skip;
    if (n >= room) n = room ? room - 1 : 0;
    if (n && out.text) memcpy(out_buffer, out.text + skip, n);
    if (room) out_buffer[n] = 0;
    buffer_free(&bytes);
    buffer_free(&out);
    return n;
}
