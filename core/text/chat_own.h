/*
 * chat_own.h - a chat template of the tokenizer's or the user's own, in Jinja: conversations to text
 * and to the stretches that are trained. Called by chat.c only.
 */
#ifndef TEXT_CHAT_OWN_H
#define TEXT_CHAT_OWN_H
#include "base/buffer.h"
#include "text/chat.h"
#include "text/parts.h"

typedef struct chat_own chat_own;

/* `tools` is what tool_use templates are for: a second text, or NULL. NRL_ERR_CONFIG. */
nrl_status chat_own_open(const char *name, const char *text, const char *tools, const tokenizer *tok, chat_own **out);
void chat_own_close(chat_own *own);
const char *chat_own_text(const chat_own *own); /* the template as it was given */

/* Appends the conversation's text, and to `trained` its assistant turns behind c->n_prompt messages
 * (none where `trained` is NULL). *exact: the stretches come from {% generation %}, so they end where
 * the template says; else each goes on to where the next message begins. */
nrl_status chat_own_write(const chat_own *own, const chat_conversation *c, buffer *text, spans *trained, bool *exact);

#endif
