/*
 * tokenizer.h - an open tokenizer: a plugin's table, its instance and what the plugin told about it.
 * Called by core/data and core/run (sampling); conversations are chat.h's.
 *
 * Ownership: an open tokenizer is read-only and may be used by many threads at once; each thread
 * brings its own tokenizer_scratch.
 */
#ifndef TEXT_TOKENIZER_H
#define TEXT_TOKENIZER_H
#include "base/arena.h"
#include "plugin/host.h"
#include <nrl/tokenizer.h>

typedef struct {
    nrl_open_tokenizer open; /* as templates are given it */
    nrl_tokenizer_info info;
    const char *plugin;   /* "NAME VERSION" */
    const char *identity; /* "NAME VERSION HASH": names token caches */
    arena memory;
} tokenizer;

typedef struct tokenizer_scratch tokenizer_scratch;

/* Opens what the config chose: choice->name, or the plugin whose probe is sure of choice->path.
 * NRL_ERR_CONFIG: no such path, or no plugin reads it; else the plugin's error. The host must outlive
 * it. [main] */
nrl_status tokenizer_open(plugin_host *host, const config_choice *choice, tokenizer **out);
nrl_status tokenizer_open_path(plugin_host *host, const char *path, tokenizer **out);
/* Bytes by the plugin of that name; `label` names them in errors. [main] */
nrl_status tokenizer_open_memory(plugin_host *host, const char *plugin_name, const char *label, const char *bytes,
                                 size_t size, tokenizer **out);
void tokenizer_close(tokenizer *tok);                      /* NULL is fine */
bool tokenizer_is_at(plugin_host *host, const char *path); /* some plugin reads it */

tokenizer_scratch *tokenizer_scratch_create(const tokenizer *tok);
void tokenizer_scratch_destroy(tokenizer_scratch *scratch); /* NULL is fine */
/* Characters that had no token and no unknown token and so vanished; since the scratch was created. A
 * caller that reads data shows this number when it is not 0. */
size_t tokenizer_scratch_dropped(const tokenizer_scratch *scratch);

/* Appends the ids of text[0..size) to `out`. NRL_ERR_DATA: longer than NRL_ENCODE_MAX_TEXT. [any] */
nrl_status tokenizer_encode(const tokenizer *tok, tokenizer_scratch *scratch, const char *text, size_t size,
                            uint32_t flags, nrl_token_ids *out);

/* Text of ids, malloc'd, NUL-ended, always valid UTF-8; *size may be NULL. [any] */
nrl_status tokenizer_decode(const tokenizer *tok, const int32_t *ids, size_t n, bool skip_special, char **text,
                            size_t *size);

/* NRL_ERR_MEMORY, once, if ids were dropped since the last check. */
nrl_status token_ids_check(nrl_token_ids *list);

int32_t tokenizer_token_id(const tokenizer *tok, const char *text);                  /* NRL_TOKEN_NONE */
const char *tokenizer_token_text(const tokenizer *tok, int32_t id, uint32_t *flags); /* NULL if there is none */
bool tokenizer_is_special(const tokenizer *tok, int32_t id);
bool tokenizer_is_eos(const tokenizer *tok, int32_t id); /* it ends a generation */

#endif
