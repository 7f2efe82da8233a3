/*
 * tokenizer.h - an open tokenizer: the table of a plugin, its instance and its properties. Called by core/data and by
 * sampling; chat.h handles conversations.
 *
 * An open tokenizer is read-only, and many threads may use it at once, each with a tokenizer_scratch of its own.
 */
#ifndef TEXT_TOKENIZER_H
#define TEXT_TOKENIZER_H
#include "base/arena.h"
#include "plugin/host.h"
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

/* Opens choice->source with the plugin choice->name, or else with the plugin whose probe recognises it. NRL_ERR_CONFIG:
 * there is no such path; NRL_ERR_DATA: no plugin reads it; else the error of the plugin. The host must outlive the
 * tokenizer. [main] */
nrl_status tokenizer_open(plugin_host *host, const config_choice *choice, tokenizer **out);
/* The choice with these new tokens; NULL = none. */
config_choice tokenizer_with_tokens(arena *a, config_choice choice, const nrl_node *new_tokens);
nrl_status tokenizer_open_path(plugin_host *host, const char *path, tokenizer **out);
/* Opens bytes in memory with the plugin of that name; `label` is their name in errors. [main] */
nrl_status tokenizer_open_memory(plugin_host *host, const char *plugin_name, const char *label, const char *bytes,
                                 size_t size, tokenizer **out);
void tokenizer_close(tokenizer *tok);                      /* NULL is allowed */
bool tokenizer_is_at(plugin_host *host, const char *path); /* a plugin recognises the path */

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
