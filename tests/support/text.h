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
    const config_choice choice = {.source = path};
    return tokenizer_open(test_host(), &choice, out);
}

/* Opens bytes in memory with the plugin bpe; `label` is their name in errors. */
static inline nrl_status test_tokenizer_bytes(const char *label, const char *bytes, size_t size, tokenizer **out)
{
    const plugin *p;
    void *options, *self;
    config_problems problems = {0};
    tokenizer *tok = mem_alloc(sizeof *tok);
    const config_component component = {.name = "bpe"};
    const nrl_tokenizer_source source = {.size = sizeof source, .path = label, .bytes = bytes, .n_bytes = size};
    plugin_instance(test_host(), &tok->memory, &problems, NRL_KIND_TOKENIZER, "", &component, NULL, &p, &options);
    const nrl_tokenizer *table = p ? (const nrl_tokenizer *)p->table : NULL;
    nrl_status st = problems_report(&problems);
    if (st == NRL_OK) st = table->open(options, &source, &self);
    if (st != NRL_OK) {
        arena_free(&tok->memory);
        free(tok);
        return st;
    }
    tok->info.size = sizeof tok->info;
    table->info(self, &tok->info);
    tok->open = (nrl_open_tokenizer){.size = sizeof tok->open, .table = table, .self = self, .info = &tok->info};
    tok->plugin = tok->identity = "bpe of a test";
    *out = tok;
    return NRL_OK;
}

static inline nrl_status test_tokenizer_text(const char *json, tokenizer **out)
{
    return test_tokenizer_bytes("test.json", json, strlen(json), out);
}

static inline nrl_status test_template_open(const char *word, const tokenizer *tok, const chat_template **out)
{
    const config_choice choice = {.source = word};
    return chat_template_open(test_host(), &choice, tok, out);
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
