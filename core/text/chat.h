/*
 * chat.h - conversations to token ids and trained marks by a chat template, which is a plugin's: it gives
 * text and the spans that are trained; this turns them into tokens, alike for all templates. Called by
 * core/data (training rows) and core/run (sampling).
 */
#ifndef TEXT_CHAT_H
#define TEXT_CHAT_H
#include "text/tokenizer.h"
#include <nrl/template.h>

typedef struct {
    const nrl_template *table;
    void *self;
    const tokenizer *tok; /* NULL: nothing is rendered */
    const char *label;    /* what errors call it */
    const char *plugin;   /* "NAME VERSION" */
    const char *hash;     /* over its text and options, for this tokenizer */
    const char *identity; /* "NAME VERSION HASH": names token caches */
    const char *hint;     /* which other templates there are; "" = nothing to say */
    arena memory;
} chat_template;

/* ids of a rendered conversation and which of them are trained. Zero-initialise. */
typedef struct {
    nrl_token_ids tokens;   /* starts: offsets in the rendered text */
    unsigned char *trained; /* [tokens.n] 1: an assistant turn's content or its end-of-turn token */
    size_t room;
} chat_ids;
nrl_status chat_ids_reserve_marks(chat_ids *ids); /* room for a mark of each token; NRL_ERR_MEMORY */
void chat_ids_free(chat_ids *ids);

/* What the config chose: "auto" is the tokenizer's own; what holds a / or a dot is a file; another word is a
 * plugin's name, or one that a plugin's probe knows. NRL_ERR_CONFIG listing the words: unknown, "auto" where
 * the tokenizer has none, one that its plugin cannot run, or one that needs tokens which the tokenizer lacks;
 * never a guess. The tokenizer and the host must outlive it; tok NULL: none is known yet. [main] */
nrl_status chat_template_open(plugin_host *host, const config_choice *choice, const tokenizer *tok,
                              const chat_template **out);
nrl_status chat_template_open_word(plugin_host *host, const char *word, const tokenizer *tok,
                                   const chat_template **out);
/* The same where the text is known; choice->source is what errors call it. [main] */
nrl_status chat_template_open_text(plugin_host *host, const config_choice *choice, const char *text,
                                   const tokenizer *tok, const chat_template **out);
void chat_template_close(const chat_template *t); /* NULL is fine */
bool chat_template_is_file(const char *word);
bool chat_template_reads_keys(const chat_template *t); /* tools and further keys of messages */
/* Words of all installed template plugins, "a, b"; malloc'd. [main] */
char *chat_template_names(plugin_host *host);

/* As it travels with a model that was trained by it: in Jinja, malloc'd; NULL where the plugin cannot say. */
char *chat_template_jinja(const chat_template *t);

/* The token that ends an assistant's turn, NRL_TOKEN_NONE where that is the tokenizer's own end. [any] */
int32_t chat_template_end(const chat_template *t);

/* Appends the conversation to `out`. Errors (NRL_ERR_DATA): unknown roles and broken order, with the
 * message's index from 0; what the template raises. Trained is each assistant turn behind the prompt whose
 * message does not say no, up to its end-of-turn token. Sizes and strides of `c` are filled here. [any] */
nrl_status chat_render_conversation(const chat_template *t, tokenizer_scratch *scratch, const nrl_conversation *c,
                                    chat_ids *out);
nrl_status chat_render(const chat_template *t, tokenizer_scratch *scratch, const nrl_message *messages, size_t n,
                       bool add_generation_prompt, chat_ids *out);

/* The same as text, malloc'd: what a reader is shown. */
nrl_status chat_render_text(const chat_template *t, const nrl_message *messages, size_t n, bool add_generation_prompt,
                            char **text);

#endif
