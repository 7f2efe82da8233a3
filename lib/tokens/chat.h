/*
 * chat.h - converts conversations to token ids with marks of the trained tokens. A template plugin renders the text and
 * reports the trained spans; chat.c converts them to tokens in the same way for all templates. core/text opens the
 * template. Called by encode.c (training rows) and by sampling.
 */
#ifndef TOKENS_CHAT_H
#define TOKENS_CHAT_H
#include "tokens/tokenizer.h"
#include <nrl/template.h>

typedef struct {
    const nrl_template *table;
    void *self;
    const tokenizer *tok; /* NULL: the template cannot render */
    const char *label;    /* its name in errors */
    const char *plugin;   /* "NAME VERSION" */
    const char *hash;     /* of its text and options with this tokenizer */
    const char *identity; /* "NAME VERSION HASH": part of the key of token caches */
    const char *hint;     /* for errors: the other templates; "" = none */
    arena memory;
} chat_template;

/* The ids of a rendered conversation with a mark for each trained one. Zero-initialise. */
typedef struct {
    nrl_token_ids tokens;   /* starts: offsets in the rendered text */
    unsigned char *trained; /* [tokens.n] 1: the content of an assistant turn, or its end-of-turn token */
    size_t room;
} chat_ids;
nrl_status chat_ids_reserve_marks(chat_ids *ids); /* room for a mark of each token; NRL_ERR_MEMORY */
void chat_ids_free(chat_ids *ids);

bool chat_template_reads_keys(const chat_template *t); /* it uses tools and further keys of messages */
/* The token that ends an assistant's turn, or NRL_TOKEN_NONE if that is the tokenizer's EOS. [any] */
int32_t chat_template_end(const chat_template *t);

/* Appends the conversation to `out` and fills the sizes and strides of `c`. NRL_ERR_DATA: an unknown role or a wrong
 * order, with the index of the message from 0, or an error that the template raises; NRL_ERR_MEMORY. Marks each
 * assistant turn after the prompt as trained, up to its end-of-turn token, unless its message is excluded. [any] */
nrl_status chat_render_conversation(const chat_template *t, tokenizer_scratch *scratch, const nrl_conversation *c,
                                    chat_ids *out);
nrl_status chat_render(const chat_template *t, tokenizer_scratch *scratch, const nrl_message *messages, size_t n,
                       bool add_generation_prompt, chat_ids *out);

#endif
