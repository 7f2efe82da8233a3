/*
 * chat.h - conversations to token ids by the built-in chat templates: chatml, llama3, mistral,
 * plain. Called by core/data (training rows) and core/run (sampling). It runs no Jinja.
 */
#ifndef TEXT_CHAT_H
#define TEXT_CHAT_H
#include "text/tokenizer.h"

typedef struct chat_template chat_template;

typedef struct {
    const char *role; /* system, user, assistant; templates may know more */
    const char *content;
    size_t content_size; /* bytes; content may hold NUL */
} chat_message;

/* ids of a rendered conversation and which of them are trained. Zero-initialise. */
typedef struct {
    tokenizer_ids tokens;   /* starts: offsets in the rendered text */
    unsigned char *trained; /* [tokens.n] 1: an assistant turn's content or its end-of-turn token */
    size_t room;
} chat_ids;
void chat_ids_free(chat_ids *ids);

/* "chatml", ...; NRL_ERR_CONFIG listing the names for any other, "auto" included: a Jinja template
 * cannot be run by this version and is never guessed. The result is static. */
nrl_status chat_template_find(const char *name, const chat_template **out);
const char *chat_template_names(void); /* "chatml, llama3, mistral, plain" */

/* Fails (NRL_ERR_CONFIG, naming the token) when the tokenizer lacks a token the template needs. */
nrl_status chat_template_check(const chat_template *template, const tokenizer *tok);

/* The token that ends an assistant's turn, TOKENIZER_NONE where that is the tokenizer's own end. [any] */
int32_t chat_template_end(const chat_template *template, const tokenizer *tok);

/* Appends the conversation to `out`. BOS exactly once, where the template wants one and the
 * tokenizer has one. add_generation_prompt opens an assistant turn at the end.
 * Errors (NRL_ERR_DATA): unknown roles and broken order, with the message's index from 0. */
nrl_status chat_render(const chat_template *template, const tokenizer *tok,
                       tokenizer_scratch *scratch, const chat_message *messages, size_t n,
                       bool add_generation_prompt, chat_ids *out);

/* The same as text, malloc'd: what a reader is shown. */
nrl_status chat_render_text(const chat_template *template, const tokenizer *tok,
                            const chat_message *messages, size_t n, bool add_generation_prompt,
                            char **text);

#endif
