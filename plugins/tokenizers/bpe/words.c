/*
 * words.c - byte pair encoding of one word. Of all adjacent pairs the one with the smallest rank
 * merges first, the leftmost of equals. Short words are scanned for it; long ones keep a heap of
 * candidates over a linked list, so that a word of n symbols takes O(n log n). Called by encode.c.
 */
#include "words.h"
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum {
    SHORT_WORD = 24,  /* symbols; shorter words are scanned, because that is faster than a heap */
    CACHED_WORD = 64, /* bytes of the longest cached word */
    CACHE_SLOTS = 1 << 15,
    CACHE_BYTES = 1 << 20, /* the cache is cleared when it is full */
    CACHE_IDS = 1 << 18
};

/* One symbol of the word; rank and made describe the pair with its right neighbor. */
typedef struct {
    int32_t id, made;
    int32_t prev, next; /* -1 at the ends */
    uint32_t rank, start;
} symbol;

typedef struct {
    uint32_t rank;
    int32_t at;
} candidate;

typedef struct {
    int32_t id;
    uint32_t start; /* in the word */
} piece;

typedef struct {
    uint64_t hash;
    uint32_t text, pieces; /* where they begin */
    uint16_t size, n;      /* size 0 = empty */
} cached;

struct word_cache {
    symbol *symbols;
    size_t n, room;
    candidate *heap;
    size_t n_heap, heap_room;
    uint64_t key[2]; /* the tokenizer that the cache belongs to */
    cached *slots;
    char *text;
    piece *pieces;
    size_t n_text, n_pieces, n_cached;
};

word_cache *word_cache_create(void)
{
    word_cache *b = mem_alloc(sizeof *b);
    b->slots = mem_alloc(CACHE_SLOTS * sizeof *b->slots);
    b->text = mem_realloc(NULL, CACHE_BYTES);
    b->pieces = mem_realloc(NULL, CACHE_IDS * sizeof *b->pieces);
    return b;
}

void word_cache_destroy(word_cache *b)
{
    if (!b) return;
    free(b->symbols);
    free(b->heap);
    free(b->slots);
    free(b->text);
    free(b->pieces);
    free(b);
}

/* ---- the cache ---- */

static void cache_clear(word_cache *b)
{
    memset(b->slots, 0, CACHE_SLOTS * sizeof *b->slots);
    b->n_text = b->n_pieces = b->n_cached = 0;
}

static cached *cache_slot(const word_cache *b, uint64_t hash, const char *word, size_t size)
{
    size_t i = (size_t)hash & (CACHE_SLOTS - 1);
    while (b->slots[i].size) {
        const cached *c = &b->slots[i];
        if (c->hash == hash && c->size == size && !memcmp(b->text + c->text, word, size)) break;
        i = (i + 1) & (CACHE_SLOTS - 1);
    }
    return &b->slots[i];
}

static void cache_store(word_cache *b, uint64_t hash, const char *word, size_t size)
{
    size_t n = 0;
    for (int32_t i = b->n ? 0 : -1; i >= 0; i = b->symbols[i].next)
        n++;
    if (b->n_cached * 2 >= CACHE_SLOTS || b->n_text + size > CACHE_BYTES || b->n_pieces + n > CACHE_IDS) cache_clear(b);
    cached *c = cache_slot(b, hash, word, size);
    *c = (cached){hash, (uint32_t)b->n_text, (uint32_t)b->n_pieces, (uint16_t)size, (uint16_t)n};
    memcpy(b->text + b->n_text, word, size);
    b->n_text += size;
    b->n_cached++;
    for (int32_t i = b->n ? 0 : -1; i >= 0; i = b->symbols[i].next)
        b->pieces[b->n_pieces++] = (piece){b->symbols[i].id, b->symbols[i].start};
}

/* ---- symbols ---- */

static void push_symbol(word_cache *b, int32_t id, size_t start)
{
    if (b->n == b->room) {
        b->room = b->room ? b->room * 2 : 64;
        b->symbols = mem_realloc(b->symbols, b->room * sizeof *b->symbols);
    }
    int32_t at = (int32_t)b->n++;
    b->symbols[at] = (symbol){.id = id, .prev = at - 1, .next = -1, .start = (uint32_t)start};
    if (at) b->symbols[at - 1].next = at;
}

/* Handles a character without a token: its bytes, or the unknown token (one for a run if they
 * fuse), or nothing. Returns the number of dropped characters. */
static size_t push_unknown(const bpe_tokenizer *tok, word_cache *b, const char *bytes, size_t n, size_t start,
                           bool *unknown_before)
{
    bool all = tok->byte_fallback;
    for (size_t i = 0; i < n && all; i++)
        all = tok->byte_ids[(unsigned char)bytes[i]] != NRL_TOKEN_NONE;
    if (all) {
        for (size_t i = 0; i < n; i++)
            push_symbol(b, tok->byte_ids[(unsigned char)bytes[i]], start + i);
        *unknown_before = false;
        return 0;
    }
    if (tok->unk == NRL_TOKEN_NONE) return 1;
    if (!(tok->fuse_unk && *unknown_before)) push_symbol(b, tok->unk, start);
    *unknown_before = true;
    return 0;
}

static size_t split_symbols(const bpe_tokenizer *tok, word_cache *b, const char *word, size_t size)
{
    size_t dropped = 0;
    bool unknown_before = false;
    b->n = 0;
    for (size_t i = 0, n = 1; i < size; i += n) {
        int32_t id;
        if (tok->byte_level) {
            id = tok->byte_ids[(unsigned char)word[i]];
        } else {
            utf8_next(word + i, word + size, &n);
            id = vocab_find_model(&tok->words, word + i, n);
        }
        if (id != NRL_TOKEN_NONE) {
            push_symbol(b, id, i);
            unknown_before = false;
        } else {
            dropped += push_unknown(tok, b, word + i, n, i, &unknown_before);
        }
    }
    return dropped;
}

/* ---- merging ---- */

static void look_up_pair(const bpe_tokenizer *tok, symbol *s, int32_t at)
{
    const merge *m = s[at].next < 0 ? NULL : merge_find(&tok->merges, s[at].id, s[s[at].next].id);
    s[at].rank = m ? m->rank : VOCAB_NO_RANK;
    s[at].made = m ? m->id : NRL_TOKEN_NONE;
}

/* Merges the symbol with its right neighbor, which leaves the list with rank "none". */
static void merge_at(const bpe_tokenizer *tok, symbol *s, int32_t at)
{
    int32_t gone = s[at].next;
    s[at].id = s[at].made;
    s[at].next = s[gone].next;
    if (s[gone].next >= 0) s[s[gone].next].prev = at;
    s[gone].rank = VOCAB_NO_RANK;
    look_up_pair(tok, s, at);
    if (s[at].prev >= 0) look_up_pair(tok, s, s[at].prev);
}

static void merge_short(const bpe_tokenizer *tok, word_cache *b)
{
    symbol *s = b->symbols;
    for (;;) {
        uint32_t best = VOCAB_NO_RANK;
        int32_t at = -1;
        for (int32_t i = 0; i >= 0; i = s[i].next)
            if (s[i].rank < best) {
                best = s[i].rank;
                at = i;
            }
        if (at < 0) return;
        merge_at(tok, s, at);
    }
}

static bool before(candidate x, candidate y)
{
    return x.rank != y.rank ? x.rank < y.rank : x.at < y.at;
}

static void heap_push(word_cache *b, int32_t at)
{
    candidate c = {b->symbols[at].rank, at};
    if (c.rank == VOCAB_NO_RANK) return;
    if (b->n_heap == b->heap_room) {
        b->heap_room = b->heap_room ? b->heap_room * 2 : 256;
        b->heap = mem_realloc(b->heap, b->heap_room * sizeof *b->heap);
    }
    size_t i = b->n_heap++;
    for (; i && before(c, b->heap[(i - 1) / 2]); i = (i - 1) / 2)
        b->heap[i] = b->heap[(i - 1) / 2];
    b->heap[i] = c;
}

static candidate heap_pop(word_cache *b)
{
    candidate top = b->heap[0], last = b->heap[--b->n_heap];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < b->n_heap; i = child) {
        if (child + 1 < b->n_heap && before(b->heap[child + 1], b->heap[child])) child++;
        if (!before(b->heap[child], last)) break;
        b->heap[i] = b->heap[child];
    }
    b->heap[i] = last;
    return top;
}

/* Candidates are not removed when a neighbor changes: a candidate whose rank is no longer that of
 * its symbol is stale and skipped. */
static void merge_long(const bpe_tokenizer *tok, word_cache *b)
{
    b->n_heap = 0;
    for (size_t i = 0; i < b->n; i++)
        heap_push(b, (int32_t)i);
    while (b->n_heap) {
        candidate c = heap_pop(b);
        if (b->symbols[c.at].rank != c.rank) continue;
        merge_at(tok, b->symbols, c.at);
        heap_push(b, c.at);
        if (b->symbols[c.at].prev >= 0) heap_push(b, b->symbols[c.at].prev);
    }
}

static size_t merge_word(const bpe_tokenizer *tok, word_cache *b, const char *word, size_t size)
{
    size_t dropped = split_symbols(tok, b, word, size);
    for (size_t i = 0; i < b->n; i++)
        look_up_pair(tok, b->symbols, (int32_t)i);
    if (b->n > SHORT_WORD)
        merge_long(tok, b);
    else if (b->n)
        merge_short(tok, b);
    return dropped;
}

/* The token of the whole word, or NRL_TOKEN_NONE. */
static int32_t whole_word(const bpe_tokenizer *tok, const char *word, size_t size)
{
    if (!tok->byte_level) return vocab_find_model(&tok->words, word, size);
    char small[4 * CACHED_WORD];
    char *chars = size * 2 <= sizeof small ? small : mem_realloc(NULL, size * 2);
    size_t n = 0;
    for (size_t i = 0; i < size; i++)
        n += utf8_write(byte_to_char((unsigned char)word[i]), chars + n);
    int32_t id = vocab_find_model(&tok->words, chars, n);
    if (chars != small) free(chars);
    return id;
}

static size_t offset_of(const uint32_t *map, size_t start, size_t at)
{
    return map ? map[at] : start + at;
}

void bpe_encode_word(const bpe_tokenizer *tok, bpe_scratch *s, const char *word, size_t size, const uint32_t *map,
                     size_t start, nrl_token_ids *out)
{
    word_cache *b = s->bpe;
    if (memcmp(b->key, tok->key, sizeof b->key)) {
        cache_clear(b);
        memcpy(b->key, tok->key, sizeof b->key);
    }
    if (!size) return;
    uint64_t hash = 0;
    if (size <= CACHED_WORD) {
        hash = XXH3_64bits(word, size);
        const cached *c = cache_slot(b, hash, word, size);
        for (size_t i = 0; i < c->n; i++)
            nrl_token_ids_push(out, b->pieces[c->pieces + i].id, offset_of(map, start, b->pieces[c->pieces + i].start));
        if (c->size) return;
    }
    int32_t whole = tok->ignore_merges ? whole_word(tok, word, size) : NRL_TOKEN_NONE;
    size_t dropped = 0;
    if (whole != NRL_TOKEN_NONE) {
        b->n = 0;
        push_symbol(b, whole, 0);
    } else {
        dropped = merge_word(tok, b, word, size);
    }
    for (int32_t i = b->n ? 0 : -1; i >= 0; i = b->symbols[i].next)
        nrl_token_ids_push(out, b->symbols[i].id, offset_of(map, start, b->symbols[i].start));
    s->dropped += dropped;
    if (size <= CACHED_WORD && !dropped) cache_store(b, hash, word, size);
}
