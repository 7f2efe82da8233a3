/*
 * tokenizer.h - opens tokenizers with the plugins that read them. lib/tokens/tokenizer.h uses an open one.
 */
#ifndef TEXT_TOKENIZER_H
#define TEXT_TOKENIZER_H
#include "plugin/host.h"
#include "tokens/tokenizer.h"

/* Opens choice->source with the plugin choice->name, or else with the plugin whose probe recognises it. NRL_ERR_CONFIG:
 * there is no such path; NRL_ERR_DATA: no plugin reads it; else the error of the plugin. The host must outlive the
 * tokenizer. [main] */
nrl_status tokenizer_open(plugin_host *host, const config_choice *choice, tokenizer **out);
/* The choice with these new tokens; NULL = none. */
config_choice tokenizer_with_tokens(arena *a, config_choice choice, const nrl_node *new_tokens);
void tokenizer_close(tokenizer *tok);                      /* NULL is allowed */
bool tokenizer_is_at(plugin_host *host, const char *path); /* a plugin recognises the path */

#endif
