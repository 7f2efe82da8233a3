/*
 * marked.h - tokens as text, with each range of trained ones between U+27E6 and U+27E7 (white square brackets).
 */
#ifndef TOKENS_MARKED_H
#define TOKENS_MARKED_H
#include "base/buffer.h"
#include "tokens/tokenizer.h"

/* Appends n tokens to `out` as the text of tokenizer t, or as their ids if t is NULL. NRL_ERR_MEMORY; buffer_check
 * finds others. */
nrl_status marked_write(buffer *out, const tokenizer *t, const int32_t *tokens, const uint8_t *trained, int64_t n);

#endif
