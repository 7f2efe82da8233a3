/*
 * text.h - tokenizers and chat templates for tests, from the plugins of this build.
 */
#ifndef SUPPORT_TEXT_H
#define SUPPORT_TEXT_H
#include "text/chat.h"
#include "tokens/written.h"
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

/* The text that a template makes of a conversation, with BOS if the template wants it; malloc'd. */
static inline nrl_status test_render_text(const chat_template *t, const nrl_message *messages, size_t n,
                                          bool add_generation_prompt, char **text)
{
    const nrl_conversation c = {.size = sizeof c,
                                .message_size = sizeof *messages,
                                .messages = messages,
                                .n = n,
                                .add_generation_prompt = add_generation_prompt};
    nrl_text out = {0};
    nrl_rendering r = {.size = sizeof r, .text = &out};
    uint32_t flags;
    nrl_status st = t->table->render(t->self, &c, &r);
    const char *bos = st == NRL_OK && r.bos ? tokenizer_token_text(t->tok, t->tok->info.bos, &flags) : NULL;
    if (st == NRL_OK) *text = mem_printf("%s%s", bos ? bos : "", out.b.text ? out.b.text : "");
    buffer_free(&out.b);
    return st;
}

#endif
