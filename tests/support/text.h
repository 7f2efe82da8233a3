/*
 * text.h - tokenizers and chat templates for tests, from the plugins of this build.
 */
#ifndef SUPPORT_TEXT_H
#define SUPPORT_TEXT_H
#include "text/chat.h"
#include <stdlib.h>
#include <string.h>

/* One host per process; plugins that it opened live as long. */
static inline plugin_host *test_host(void)
{
    static plugin_host *host;
    if (!host) host = plugin_host_create(getenv("NRL_PLUGIN_PATH"), NULL, 0, NULL);
    return host;
}

static inline nrl_status test_tokenizer_open(const char *path, tokenizer **out)
{
    return tokenizer_open_path(test_host(), path, out);
}

static inline nrl_status test_tokenizer_text(const char *json, tokenizer **out)
{
    return tokenizer_open_memory(test_host(), "bpe", "test.json", json, strlen(json), out);
}

static inline nrl_status test_template_open(const char *word, const tokenizer *tok, const chat_template **out)
{
    return chat_template_open_word(test_host(), word, tok, out);
}

#endif
