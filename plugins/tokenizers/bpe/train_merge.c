/*
 * train_merge.c - trains merges. The most frequent pair becomes a token; of equally frequent pairs,
 * the one with the greater bytes, left part first. Pairs live in a hash table with the words that
 * may contain them. A heap orders them and is corrected lazily: an entry whose count has decreased
 * is pushed back.
 */
#include "words.h"
#include "train_parts.h"
#include <stdlib.h>
#include <string.h>

typedef struct {
    uint64_t key; /* left << 32 | right */
    int64_t count;
    uint32_t *words; /* words that contained the pair at some time, ascending if filled in order */
    uint32_t n, room;
    bool used;
} pair;

typedef struct {
    int64_t count;
    uint64_t key;
} entry;

typedef struct {
    bpe_trainer *t;
    pair *pairs;
    size_t n_slots, n_pairs;
    entry *heap;
    size_t n_heap, heap_room;
    uint64_t *fresh; /* pairs that the current merge made more frequent */
    size_t n_fresh, fresh_room;
} learner;

const char *train_token_text(const bpe_trainer *t, int32_t token, size_t *size)
{
    *size = t->tokens[token].size;
    return t->token_text + t->tokens[token].start;
}

static void new_token(bpe_trainer *t, const char *text, size_t size, int32_t left, int32_t right)
{
    if (t->n_tokens == t->tokens_room) {
        t->tokens_room = t->tokens_room ? t->tokens_room * 2 : 1024;
        t->tokens = mem_realloc(t->tokens, t->tokens_room * sizeof *t->tokens);
    }
    if (t->token_text_room - t->n_token_text < size) {
        t->token_text_room = t->token_text_room * 2 + size + 1024;
        t->token_text = mem_realloc(t->token_text, t->token_text_room);
    }
    memcpy(t->token_text + t->n_token_text, text, size);
    t->tokens[t->n_tokens++] = (train_token){t->n_token_text, (uint32_t)size, left, right};
    t->n_token_text += size;
}

static uint64_t key_of(int32_t left, int32_t right)
{
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

/* ---- the table of pairs ---- */

static pair *find_pair(learner *l, uint64_t key)
{
    uint64_t h = key * 0x9e3779b97f4a7c15u;
    size_t i = (size_t)(h ^ h >> 32) & (l->n_slots - 1);
    while (l->pairs[i].used && l->pairs[i].key != key)
        i = (i + 1) & (l->n_slots - 1);
    return &l->pairs[i];
}

static void grow_pairs(learner *l)
{
    pair *old = l->pairs;
    size_t n = l->n_slots;
    l->n_slots = n ? n * 2 : 4096;
    l->pairs = mem_alloc(l->n_slots * sizeof *l->pairs);
    for (size_t i = 0; i < n; i++)
        if (old[i].used) *find_pair(l, old[i].key) = old[i];
    free(old);
}

static void count_pair(learner *l, uint64_t key, int64_t count, uint32_t word)
{
    if ((l->n_pairs + 1) * 2 > l->n_slots) grow_pairs(l);
    pair *p = find_pair(l, key);
    if (!p->used) {
        *p = (pair){.key = key, .used = true};
        l->n_pairs++;
    }
    p->count += count;
    if (count < 0 || (p->n && p->words[p->n - 1] == word)) return;
    if (p->n == p->room) {
        p->room = p->room ? p->room * 2 : 4;
        p->words = mem_realloc(p->words, p->room * sizeof *p->words);
    }
    p->words[p->n++] = word;
}

/* ---- the heap ---- */

static int compare_bytes(const bpe_trainer *t, int32_t a, int32_t b)
{
    size_t n, m;
    const char *x = train_token_text(t, a, &n), *y = train_token_text(t, b, &m);
    int order = memcmp(x, y, n < m ? n : m);
    return order ? order : (n > m) - (n < m);
}

/* True if a is merged before b. */
static bool before(const learner *l, const entry *a, const entry *b)
{
    if (a->count != b->count) return a->count > b->count;
    int order = compare_bytes(l->t, (int32_t)(a->key >> 32), (int32_t)(b->key >> 32));
    if (!order) order = compare_bytes(l->t, (int32_t)(uint32_t)a->key, (int32_t)(uint32_t)b->key);
    return order > 0;
}

static void heap_push(learner *l, entry e)
{
    if (l->n_heap == l->heap_room) {
        l->heap_room = l->heap_room ? l->heap_room * 2 : 1024;
        l->heap = mem_realloc(l->heap, l->heap_room * sizeof *l->heap);
    }
    size_t i = l->n_heap++;
    for (; i && before(l, &e, &l->heap[(i - 1) / 2]); i = (i - 1) / 2)
        l->heap[i] = l->heap[(i - 1) / 2];
    l->heap[i] = e;
}

static entry heap_pop(learner *l)
{
    entry top = l->heap[0], last = l->heap[--l->n_heap];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < l->n_heap; i = child) {
        if (child + 1 < l->n_heap && before(l, &l->heap[child + 1], &l->heap[child])) child++;
        if (!before(l, &l->heap[child], &last)) break;
        l->heap[i] = l->heap[child];
    }
    l->heap[i] = last;
    return top;
}

/* ---- merging ---- */

static void note_fresh(learner *l, uint64_t key)
{
    if (l->n_fresh == l->fresh_room) {
        l->fresh_room = l->fresh_room ? l->fresh_room * 2 : 256;
        l->fresh = mem_realloc(l->fresh, l->fresh_room * sizeof *l->fresh);
    }
    l->fresh[l->n_fresh++] = key;
}

/* Replaces the pair by `made` in one word. Each occurrence removes a pair with each neighbor and
 * adds one. */
static void merge_word(learner *l, uint32_t number, int32_t left, int32_t right, int32_t made)
{
    train_word *w = &l->t->words[number];
    int32_t *s = l->t->symbols + w->start;
    uint32_t out = 0;
    for (uint32_t i = 0; i < w->n; i++) {
        if (!(i + 1 < w->n && s[i] == left && s[i + 1] == right)) {
            s[out++] = s[i];
            continue;
        }
        if (out) {
            count_pair(l, key_of(s[out - 1], left), -w->count, number);
            count_pair(l, key_of(s[out - 1], made), w->count, number);
            note_fresh(l, key_of(s[out - 1], made));
        }
        if (i + 2 < w->n) {
            count_pair(l, key_of(right, s[i + 2]), -w->count, number);
            count_pair(l, key_of(made, s[i + 2]), w->count, number);
            note_fresh(l, key_of(made, s[i + 2]));
        }
        s[out++] = made;
        i++;
    }
    w->n = out;
}

/* Whether the bytes, written in the byte alphabet, are the text of a special token. */
static bool is_special(const bpe_trainer *t, const char *bytes, size_t size)
{
    char *chars = mem_alloc(2 * size);
    size_t n = 0;
    for (size_t i = 0; i < size; i++)
        n += utf8_write(byte_to_char((unsigned char)bytes[i]), chars + n);
    bool found = vocab_find(&t->special->words, chars, n) != VOCAB_ABSENT;
    free(chars);
    return found;
}

/* False if the token would have the text of a special token; that pair never merges. */
static bool add_merged(bpe_trainer *t, int32_t left, int32_t right)
{
    size_t n, m;
    const char *x = train_token_text(t, left, &n), *y = train_token_text(t, right, &m);
    char *text = mem_alloc(n + m);
    memcpy(text, x, n);
    memcpy(text + n, y, m);
    bool fine = !is_special(t, text, n + m);
    if (fine) new_token(t, text, n + m, left, right);
    free(text);
    return fine;
}

static void make_token(learner *l, uint64_t key)
{
    int32_t left = (int32_t)(key >> 32), right = (int32_t)(uint32_t)key;
    int32_t made = (int32_t)l->t->n_tokens;
    if (!add_merged(l->t, left, right)) {
        find_pair(l, key)->count = 0;
        return;
    }
    pair p = *find_pair(l, key); /* a copy, because counting below may move the table */
    find_pair(l, key)->words = NULL;
    find_pair(l, key)->n = find_pair(l, key)->room = 0;
    l->n_fresh = 0;
    for (uint32_t i = 0; i < p.n; i++)
        merge_word(l, p.words[i], left, right, made);
    free(p.words);
    find_pair(l, key)->count = 0;
    for (size_t i = 0; i < l->n_fresh; i++) {
        int64_t count = find_pair(l, l->fresh[i])->count;
        if (count > 0) heap_push(l, (entry){count, l->fresh[i]});
    }
}

static void start(learner *l)
{
    bpe_trainer *t = l->t;
    free(t->symbols);
    t->symbols = mem_alloc((t->n_text + 1) * sizeof *t->symbols);
    t->n_tokens = t->n_token_text = 0;
    for (int b = 0; b < 256; b++) {
        char byte = (char)b;
        new_token(t, &byte, 1, -1, -1);
    }
    for (size_t i = 0; i < t->n_text; i++)
        t->symbols[i] = (unsigned char)t->text[i];
    grow_pairs(l);
    for (size_t i = 0; i < t->n_words; i++) {
        train_word *w = &t->words[i];
        w->n = w->size;
        const int32_t *s = t->symbols + w->start;
        for (uint32_t k = 0; k + 1 < w->n; k++)
            count_pair(l, key_of(s[k], s[k + 1]), w->count, (uint32_t)i);
    }
    for (size_t i = 0; i < l->n_slots; i++)
        if (l->pairs[i].used) heap_push(l, (entry){l->pairs[i].count, l->pairs[i].key});
}

void train_merge(bpe_trainer *t, size_t n_tokens)
{
    learner l = {.t = t};
    start(&l);
    while (t->n_tokens < n_tokens && l.n_heap) {
        entry e = heap_pop(&l);
        int64_t now = find_pair(&l, e.key)->count;
        if (now != e.count) { /* the count decreased after the push, or the pair was pushed again with a higher count */
            if (now > 0 && now < e.count) heap_push(&l, (entry){now, e.key});
            continue;
        }
        if (now < t->min_frequency) break;
        make_token(&l, e.key);
    }
    for (size_t i = 0; i < l.n_slots; i++)
        free(l.pairs[i].words);
    free(l.pairs);
    free(l.heap);
    free(l.fresh);
}
