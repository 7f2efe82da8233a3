/*
 * load.h - reading tokenizer files into a tokenizer's parts. Called by open.c only.
 */
#ifndef TEXT_LOAD_H
#define TEXT_LOAD_H
#include "cursor.h"
#include "parts.h"

/* tokenizer.json */
nrl_status load_json(bpe_tokenizer *tok, const char *source, const char *text, size_t size);
/* SentencePiece BPE .model */
nrl_status load_sentencepiece(bpe_tokenizer *tok, const char *source, const char *bytes, size_t size);
/* tiktoken: each line is the base64 of a token's bytes, a space, and the rank. */
bool load_is_tiktoken(const char *bytes, size_t size);
nrl_status load_tiktoken(bpe_tokenizer *tok, const char *source, const char *text, size_t size);
/* The file pair of GPT-2; class is the tokenizer_class of tokenizer_config.json or NULL. */
nrl_status load_pair(bpe_tokenizer *tok, const char *vocab_source, const char *vocab_text, size_t vocab_size,
                     const char *merges_source, const char *merges_text, size_t merges_size, const char *class);

/* Members of tokenizer.json other than the model. A null node means that the member is absent. */
nrl_status load_normalizer(bpe_tokenizer *tok, const nrl_node *node);
nrl_status load_pre_tokenizer(bpe_tokenizer *tok, const nrl_node *node);
nrl_status load_post_processor(bpe_tokenizer *tok, const nrl_node *node);
nrl_status load_decoder(bpe_tokenizer *tok, const nrl_node *node);
nrl_status load_added_tokens(bpe_tokenizer *tok, const nrl_node *list);

/* One entry of added_tokens_decoder or added_tokens: checks that it equals the existing token, or
 * adds a token. */
nrl_status load_added_token(bpe_tokenizer *tok, const char *text, size_t size, int64_t id, const nrl_node *flags,
                            bool special);

/* Building blocks shared by the formats. */
nrl_status load_vocab_map(bpe_tokenizer *tok, cursor c);
split_step *load_add_split(bpe_tokenizer *tok, split_kind kind, split_behavior behavior);
normal_step *load_add_normal(bpe_tokenizer *tok, normal_kind kind);
void load_use_byte_level(bpe_tokenizer *tok);                /* called after the vocabulary is read */
void load_find_fallback(bpe_tokenizer *tok);                 /* ids of <0x00> to <0xFF> */
void load_cut_at_runs(bpe_tokenizer *tok, const char *mark); /* adds SPLIT_RUNS if that does not change any ids */
void load_prefix(bpe_tokenizer *tok, int32_t id, bool suffix);
/* The normalizer and decoder of Llama 2: spaces become U+2581, and if `prefix`, one is put in
 * front. */
void load_llama_parts(bpe_tokenizer *tok, bool prefix);

#endif
