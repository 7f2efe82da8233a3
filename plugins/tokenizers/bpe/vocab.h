/*
 * vocab.h - the tokens of a tokenizer by id and by text, and the merges of BPE by pair of ids.
 * Built while a file is opened, read-only afterwards.
 */
#ifndef TEXT_VOCAB_H
#define TEXT_VOCAB_H
#include <nrl/status.h>
#include <stdbool.h>
#include <stddef.h>

enum { VOCAB_ABSENT = -1 };

typedef struct {
    uint32_t start, size; /* in blob; start is VOCAB_NO_TEXT if the id has no token */
    bool special, added;
    bool outside; /* not of the model: merging never creates it */
} vocab_entry;

typedef struct {
    char *blob; /* all texts, each NUL-terminated */
    size_t blob_size, blob_room;
    vocab_entry *entries; /* [n], by id */
    int32_t n, room;      /* n: largest id + 1 */
    int32_t n_tokens;     /* tokens with a text */
    int32_t *slots;       /* hash of text to id; VOCAB_ABSENT = empty */
    size_t n_slots, n_used;
} vocab;

/* Adds a token. NRL_ERR_DATA if the id is out of range, or the id or the text is already used. */
nrl_status vocab_add(vocab *v, const char *text, size_t size, int64_t id);
/* Adds a token unless the same text already has this id (added tokens). */
nrl_status vocab_add_or_match(vocab *v, const char *text, size_t size, int64_t id);
/* Finds only tokens of the model itself. */
int32_t vocab_find_model(const vocab *v, const char *text, size_t size);
int32_t vocab_find(const vocab *v, const char *text, size_t size); /* VOCAB_ABSENT if none */
bool vocab_has(const vocab *v, int64_t id);
const char *vocab_text(const vocab *v, int32_t id, size_t *size); /* NULL if none */
void vocab_free(vocab *v);

typedef struct {
    uint64_t pair; /* left << 32 | right */
    uint32_t rank; /* smaller merges first; VOCAB_NO_RANK = empty slot */
    int32_t id;    /* the token that the pair becomes */
} merge;
#define VOCAB_NO_RANK UINT32_MAX

typedef struct {
    merge *slots;
    size_t n_slots, n;
} merge_table;

/* A pair that is added twice keeps the later rank, as Hugging Face's map does. */
void merge_add(merge_table *t, int32_t left, int32_t right, uint32_t rank, int32_t id);
const merge *merge_find(const merge_table *t, int32_t left, int32_t right); /* NULL if none */
void merge_table_reserve(merge_table *t, size_t n);
void merge_table_free(merge_table *t);

/* Builds the merges of a vocabulary in which any two tokens that spell a third one merge to it, in
 * the order of rank[id] (SentencePiece scores, tiktoken ranks); a token with rank VOCAB_NO_RANK is
 * never created. */
void merges_from_ranks(merge_table *t, const vocab *v, const uint32_t *rank);

#endif
