/*
 * new_tokens.h - the option add_tokens.
 */
#ifndef BPE_NEW_TOKENS_H
#define BPE_NEW_TOKENS_H
#include "cursor.h"
#include "parts.h"

/* Adds the tokens of the option that the files do not have. `is_json`: the tokenizer was read from a tokenizer.json.
 * NRL_ERR_CONFIG: they cannot be added. */
nrl_status new_tokens_add(bpe_tokenizer *tok, const nrl_node *list, bool is_json);
/* added_tokens of tokenizer.json, and added_tokens_decoder of tokenizer_config.json, with the new tokens at their ends.
 */
void new_tokens_write_list(const bpe_tokenizer *tok, const cursor_member *old, buffer *out);
void new_tokens_write_map(const bpe_tokenizer *tok, const cursor_member *old, buffer *out);

#endif
