/*
 * chat.h - conversations to token ids by a chat template: the tokenizer's own or a file, in Jinja
 * (chat_own.c), or a built-in one: chatml, llama3, mistral, plain. Called by core/data (training
 * rows) and core/run (sampling).
 */
#ifndef TEXT_CHAT_H
#define TEXT_CHAT_H
#include "text/tokenizer.h"
#include <nrl/node.h>

typedef struct chat_template chat_template;

/* What a message itself says about being trained. */
typedef enum { CHAT_TRAIN_UNSAID = 0, CHAT_TRAIN_NO, CHAT_TRAIN_YES } chat_train;

typedef struct {
    const char *role; /* system, user, assistant; templates may know more */
    const char *content;
    size_t content_size; /* bytes; content may hold NUL */
    const nrl_node *node; /* the row's own message, for templates that read further keys; or NULL */
    chat_train train;     /* NO: its turn is not trained */
} chat_message;

typedef struct {
    const chat_message *messages;
    size_t n, n_prompt; /* the first n_prompt are never trained */
    bool add_generation_prompt;
    const nrl_node *tools;     /* a list, or NULL */
    const nrl_node *variables; /* a map of further variables, or NULL */
} chat_conversation;

/* ids of a rendered conversation and which of them are trained. Zero-initialise. */
typedef struct {
    tokenizer_ids tokens;   /* starts: offsets in the rendered text */
    unsigned char *trained; /* [tokens.n] 1: an assistant turn's content or its end-of-turn token */
    size_t room;
} chat_ids;
void chat_ids_free(chat_ids *ids);

/* A built-in name; "auto": the tokenizer's own; or the path of a Jinja file, which holds a / or a dot.
 * NRL_ERR_CONFIG listing the names: unknown, "auto" where the tokenizer has none, or one that this
 * version cannot run; never a guess. The tokenizer must outlive it; NULL: none is known yet, and
 * "auto" is an error. */
nrl_status chat_template_open(const char *name, const tokenizer *tok, const chat_template **out);
void chat_template_close(const chat_template *template); /* NULL is fine */
bool chat_template_is_file(const char *name);
bool chat_template_is_own(const chat_template *template); /* Jinja: it reads tools and further keys */
/* A built-in one alone; the result is static. */
nrl_status chat_template_find(const char *name, const chat_template **out);
const char *chat_template_names(void); /* "chatml, llama3, mistral, plain" */

/* As it travels with a model that was trained by it: in Jinja, malloc'd. A built-in one is written for this tokenizer. */
char *chat_template_jinja(const chat_template *template, const tokenizer *tok);
/* tokenizer_config.json of `folder` with this chat_template in the place of its own, malloc'd; NULL where there is no
 * such file. For readers that know no chat_template.jinja. NRL_ERR_IO, NRL_ERR_DATA. */
nrl_status chat_template_config(const char *folder, const char *jinja, char **out);
/* Jinja that is at hand as text; `name` is what errors call it. */
nrl_status chat_template_open_text(const char *name, const char *jinja, const tokenizer *tok, const chat_template **out);

/* Fails (NRL_ERR_CONFIG, naming the token) when the tokenizer lacks a token the template needs. */
nrl_status chat_template_check(const chat_template *template, const tokenizer *tok);

/* The token that ends an assistant's turn, TOKENIZER_NONE where that is the tokenizer's own end. [any] */
int32_t chat_template_end(const chat_template *template, const tokenizer *tok);

/* Appends the conversation to `out`. A built-in template: BOS exactly once, where the template
 * wants one and the tokenizer has one. add_generation_prompt opens an assistant turn at the end.
 * Errors (NRL_ERR_DATA): unknown roles and broken order, with the message's index from 0; what the
 * template raises. Jinja: the text is the whole of it, as transformers has it; BOS where it writes
 * one. Roles beyond the common ones must stand in the template as a constant. Trained is each
 * assistant turn behind the prompt whose message does not say no, up to its end-of-turn token. */
nrl_status chat_render_conversation(const chat_template *template, const tokenizer *tok,
                                    tokenizer_scratch *scratch, const chat_conversation *c, chat_ids *out);
nrl_status chat_render(const chat_template *template, const tokenizer *tok,
                       tokenizer_scratch *scratch, const chat_message *messages, size_t n,
                       bool add_generation_prompt, chat_ids *out);

/* The same as text, malloc'd: what a reader is shown. */
nrl_status chat_render_text(const chat_template *template, const tokenizer *tok,
                            const chat_message *messages, size_t n, bool add_generation_prompt,
                            char **text);

#endif
