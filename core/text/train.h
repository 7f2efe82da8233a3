/*
 * train.h - learning a byte-level BPE vocabulary from text. Called by `nrl tokenizer train` and by
 * scripts. Deterministic: the same texts in any order and the same options give the same files.
 */
#ifndef TEXT_TRAIN_H
#define TEXT_TRAIN_H
#include "base/inputs.h"
#include <nrl/status.h>
#include <stdbool.h>

typedef struct tokenizer_trainer tokenizer_trainer;

typedef struct {
    int64_t vocab_size;         /* special tokens and the 256 bytes included */
    const char *const *special; /* get the first ids, in this order */
    size_t n_special;
    int64_t min_frequency; /* a pair seen less often is not merged; 0 means 2 */
    const char *pattern;   /* how words are cut: "gpt2" (NULL), "llama3" or "qwen2" */
    bool overwrite;        /* a tokenizer that the folder holds already is replaced */
    const inputs *inputs;  /* files that are never replaced; NULL = none. Outlive the trainer */
} tokenizer_train_options;

/* Errors: NRL_ERR_CONFIG for a size below 256 + n_special, an unknown pattern, duplicates. */
nrl_status tokenizer_trainer_create(const tokenizer_train_options *options,
                                    tokenizer_trainer **out);

/* Counts the words of one text; words never cross texts, special tokens in it separate words. */
nrl_status tokenizer_trainer_add(tokenizer_trainer *trainer, const char *text, size_t size);

/* Learns the merges and writes tokenizer.json and tokenizer_config.json into the folder, made
 * where absent; NRL_ERR_CONFIG where that would replace a file and may not. *n_tokens (may be NULL) is
 * what was reached: fewer than asked when no pair is left. */
nrl_status tokenizer_trainer_save(tokenizer_trainer *trainer, const char *folder,
                                  int64_t *n_tokens);
void tokenizer_trainer_destroy(tokenizer_trainer *trainer);

#endif
