/*
 * train_parts.h - a trainer: the counted words of the texts, and the tokens built from them.
 * train.c counts, train_merge.c merges, train_save.c writes.
 */
#ifndef BPE_TRAIN_PARTS_H
#define BPE_TRAIN_PARTS_H
#include "parts.h"
#include "train.h"

typedef struct {
    size_t start;     /* of its bytes in `text`, then of its symbols in `symbols` */
    uint32_t size, n; /* bytes; symbols left after the merges so far */
    int64_t count;
} train_word;

/* A token is the concatenation of the bytes of the pair that it was merged from. */
typedef struct {
    size_t start;
    uint32_t size;
    int32_t left, right; /* -1 for a single byte */
} train_token;

struct bpe_trainer {
    bpe_tokenizer *special; /* contains only the special tokens, to find them in text */
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
    uint32_t *slots; /* maps the hash of a word to its number + 1 */
    size_t n_slots;

    int32_t *symbols; /* at the same positions as in `text`: token numbers; bytes are 0 to 255 */
    train_token *tokens;
    size_t n_tokens, tokens_room;
    char *token_text;
    size_t n_token_text, token_text_room;
};

/* Merges until there are n_tokens tokens, including single bytes. */
void train_merge(bpe_trainer *t, size_t n_tokens);
const char *train_token_text(const bpe_trainer *t, int32_t token, size_t *size);
nrl_status train_check_folder(const bpe_trainer *t, const char *folder); /* whether the files may be written */
nrl_status train_save(const bpe_trainer *t, const char *folder);

#endif
