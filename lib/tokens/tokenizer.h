/*
 * tokenizer.h - an open tokenizer: the table of a plugin, its instance and its properties. core/text opens it. Called
 * by encode.c, core/data and libnrl-inference; chat.h handles conversations.
 *
 * An open tokenizer is read-only, and many threads may use it at once, each with a tokenizer_scratch of its own.
 */
#ifndef TOKENS_TOKENIZER_H
#define TOKENS_TOKENIZER_H
#include "base/arena.h"
#include <nrl/tokenizer.h>

typedef struct {
    nrl_open_tokenizer open; /* for templates */
    nrl_tokenizer_info info;
    const char *plugin;   /* "NAME VERSION" */
    const char *identity; /* "NAME VERSION HASH": part of the key of token caches */
    bool has_new_tokens;  /* the option add_tokens was set: exports have other files than info.folder */
    arena memory;
} tokenizer;

typedef struct tokenizer_scratch tokenizer_scratch;

tokenizer_scratch *tokenizer_scratch_create(const tokenizer *tok);
void tokenizer_scratch_destroy(tokenizer_scratch *scratch); /* NULL is allowed */
/* The number of characters, since the scratch was created, that have no token in a tokenizer without an unknown token.
 * They are dropped, and callers that read data report the number. */
size_t tokenizer_scratch_dropped(const tokenizer_scratch *scratch);

/* Appends the ids of text[0..size) to `out`. NRL_ERR_DATA: longer than NRL_ENCODE_MAX_TEXT. [any] */
nrl_status tokenizer_encode(const tokenizer *tok, tokenizer_scratch *scratch, const char *text, size_t size,
                            uint32_t flags, nrl_token_ids *out);

/* The text of ids, malloc'd, NUL-terminated, always valid UTF-8; `size` may be NULL. NRL_ERR_MEMORY. [any] */
nrl_status tokenizer_decode(const tokenizer *tok, const int32_t *ids, size_t n, bool skip_special, char **text,
                            size_t *size);

/* NRL_ERR_MEMORY, once, if ids were dropped since the last check. */
nrl_status token_ids_check(nrl_token_ids *list);

int32_t tokenizer_token_id(const tokenizer *tok, const char *text);                  /* NRL_TOKEN_NONE */
const char *tokenizer_token_text(const tokenizer *tok, int32_t id, uint32_t *flags); /* NULL: no such token */
bool tokenizer_is_special(const tokenizer *tok, int32_t id);
bool tokenizer_is_eos(const tokenizer *tok, int32_t id); /* generation ends with it */

#endif
