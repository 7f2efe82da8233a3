/*
 * train_parts.h - a trainer: the counted words of the texts, and the tokens learnt from them.
 * train.c counts, train_merge.c learns, train_save.c writes.
 */
#ifndef BPE_TRAIN_PARTS_H
#define BPE_TRAIN_PARTS_H
#include "parts.h"
#include "train.h"

typedef struct {
    size_t start;     /* of its bytes in words_text, then of its symbols in symbols */
    uint32_t size, n; /* bytes; symbols left after the merges so far */
    int64_t count;
} train_word;

/* A token is the bytes of what it was merged from. */
typedef struct {
    size_t start;
    uint32_t size;
    int32_t left, right; /* -1 for a single byte */
} train_token;

struct bpe_trainer {
    bpe_tokenizer *special; /* holds the special tokens alone, to find them in text */
    bpe_scratch *scratch;
    split_step pattern;
    int64_t vocab_size, min_frequency;
    bool overwrite;
    nrl_status (*may_write)(void *user, const char *path);
    void *user;

    char *text; /* bytes of all words, one after the other */
    size_t n_text, text_room;
    train_word *words;
    size_t n_words, words_room;
    uint32_t *slots; /* hash of a word to its number + 1 */
    size_t n_slots;

    int32_t *symbols; /* same places as text: token numbers, bytes are 0 to 255 */
    train_token *tokens;
    size_t n_tokens, tokens_room;
    char *token_text;
    size_t n_token_text, token_text_room;
};

/* Learns tokens until there are so many, single bytes included. */
void train_merge(bpe_trainer *t, size_t n_tokens);
const char *train_token_text(const bpe_trainer *t, int32_t token, size_t *size);
nrl_status train_check_folder(const bpe_trainer *t, const char *folder); /* whether it may be written to */
nrl_status train_save(const bpe_trainer *t, const char *folder);

#endif
