/*
 * chat.h - opens chat templates with the plugins that serve them. lib/tokens/chat.h renders conversations with an open
 * one.
 */
#ifndef TEXT_CHAT_H
#define TEXT_CHAT_H
#include "text/tokenizer.h"
#include "tokens/chat.h"

/* Opens the template that the config names: "auto" is the template of the tokenizer, a word with a slash or a dot is a
 * file, and another word is the name of a plugin or a word that a plugin's probe recognises. NRL_ERR_CONFIG, with a
 * list of the words: the word is unknown, the tokenizer has no template of its own, the plugin cannot run the template,
 * or the tokenizer lacks a token that it needs. The tokenizer (NULL = not known yet) and the host must outlive the
 * template. [main] */
nrl_status chat_template_open(plugin_host *host, const config_choice *choice, const tokenizer *tok,
                              const chat_template **out);
/* The same for a text; choice->source is its name in errors. [main] */
nrl_status chat_template_open_text(plugin_host *host, const config_choice *choice, const char *text,
                                   const tokenizer *tok, const chat_template **out);
void chat_template_close(const chat_template *t); /* NULL is allowed */
/* The words of all installed template plugins, "a, b"; malloc'd. [main] */
char *chat_template_names(plugin_host *host);

/* The template in Jinja, malloc'd, for the export of a model that was trained with it. NULL: the plugin cannot convert
 * it. */
char *chat_template_jinja(const chat_template *t);

#endif
