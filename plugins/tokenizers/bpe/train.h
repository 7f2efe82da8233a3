/*
 * train.h - trains a byte-level BPE vocabulary on text, for the train members of the table.
 * Deterministic: the same texts in any order and the same options give the same files.
 */
#ifndef BPE_TRAIN_H
#define BPE_TRAIN_H
#include <nrl/tokenizer.h>

typedef struct bpe_trainer bpe_trainer;

/* Patterns: "gpt2" (NULL), "llama3" or "qwen2". Errors: NRL_ERR_CONFIG for a size below
 * 256 + n_special, an unknown pattern, duplicates. */
nrl_status bpe_trainer_create(const nrl_train_tokenizer *options, bpe_trainer **out);

/* Counts the words of one text. Words never cross texts, and special tokens in a text separate
 * words. */
nrl_status bpe_trainer_add(bpe_trainer *trainer, const char *text, size_t size);

/* Trains the merges and writes tokenizer.json and tokenizer_config.json to the directory, which is
 * created if it does not exist; NRL_ERR_CONFIG if that would replace a file and is not allowed.
 * *n_tokens (may be NULL) is the number of tokens: fewer than requested if no pair is left. */
nrl_status bpe_trainer_save(bpe_trainer *trainer, const char *folder, int64_t *n_tokens);
void bpe_trainer_destroy(bpe_trainer *trainer);

#endif
