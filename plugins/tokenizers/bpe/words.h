/*
 * words.h - one word to token ids by merging, with a cache of words.
 */
#ifndef TEXT_BPE_H
#define TEXT_BPE_H
#include "parts.h"

word_cache *word_cache_create(void);
void word_cache_destroy(word_cache *b);

/* Appends the ids of a word. start: the offset of the word if map is NULL; else map[i] is the
 * offset of byte i. */
void bpe_encode_word(const bpe_tokenizer *tok, bpe_scratch *s, const char *word, size_t size, const uint32_t *map,
                     size_t start, nrl_token_ids *out);

/* The 256 characters of byte-level BPE: printable bytes stand for themselves, the others are mapped
 * to U+0100 and following in order (GPT-2's bytes_to_unicode). */
int32_t byte_to_char(unsigned char byte);
int char_to_byte(int32_t c); /* -1 if the character does not stand for a byte */

#endif
