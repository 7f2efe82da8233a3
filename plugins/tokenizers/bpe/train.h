/*
 * train.h - learning a byte-level BPE vocabulary from text, behind the train members of the table.
 * Deterministic: the same texts in any order and the same options give the same files.
 */
#ifndef BPE_TRAIN_H
#define BPE_TRAIN_H
#include <nrl/tokenizer.h>

typedef struct bpe_trainer bpe_trainer;

/* Patterns: "gpt2" (NULL), "llama3" or "qwen2". Errors: NRL_ERR_CONFIG for a size below
 * 256 + n_special, an unknown pattern, duplicates. */
nrl_status bpe_trainer_create(const nrl_train_tokenizer *options, bpe_trainer **out);

/* Counts the words of one text; words never cross texts, special tokens in it separate words. */
nrl_status bpe_trainer_add(bpe_trainer *trainer, const char *text, size_t size);

/* Learns the merges and writes tokenizer.json and tokenizer_config.json into the folder, made
 * where absent; NRL_ERR_CONFIG where that would replace a file and may not. *n_tokens (may be NULL) is
 * what was reached: fewer than asked when no pair is left. */
nrl_status bpe_trainer_save(bpe_trainer *trainer, const char *folder, int64_t *n_tokens);
void bpe_trainer_destroy(bpe_trainer *trainer);

#endif
