/*
 * builtin.h - a chat template as rows of a table. builtin.c has the rows and renders conversations
 * with them; as_jinja.c writes the same rows as Jinja.
 */
#ifndef BUILTIN_H
#define BUILTIN_H
#include "base/buffer.h"
#include <nrl/template.h>

#define SYSTEM_ALIAS "developer" /* a role that is written as a system message */

/* The turn of a role is written as open, content, close, after. In an assistant turn, lead, content
 * and close are trained. In these texts \1 stands for the space that a SentencePiece tokenizer
 * needs after a special token if it does not insert one itself. */
typedef struct {
    const char *role;
    const char *open, *lead;
    const char *close; /* the end-of-turn token; if end_is_eos, the tokenizer's own EOS is used instead */
    const char *after;
    bool end_is_eos;
} turn;

typedef enum { SYSTEM_IS_A_TURN = 0, SYSTEM_IN_FIRST_USER, SYSTEM_IN_LAST_USER } system_place;
typedef enum { BOS_NONE = 0, BOS_ALWAYS, BOS_AS_TOKENIZER } bos_rule;

typedef struct chat_format chat_format;
struct chat_format {
    const char *name;
    bos_rule bos;
    system_place system;
    bool alternates;           /* user, assistant, user, ... after an optional system message */
    bool begins_with_word;     /* not with a special token or \1 */
    bool trims;                /* white space around contents is removed */
    const char *const *tokens; /* special tokens that the tokenizer must have, NULL-terminated */
    const turn *turns;         /* terminated by a row without a role */
    const char *variant_token; /* if the tokenizer has this token, the variant is used */
    const chat_format *variant;
};

/* A format and the tokenizer for which it renders. */
typedef struct {
    const chat_format *format;
    const nrl_open_tokenizer *tokenizer; /* NULL: nothing is rendered */
    const char *eos;                     /* text of its EOS, "" if it has none */
    bool bos;                            /* the text begins with BOS */
    bool space;                          /* \1 is a space */
} builtin;

const char *builtin_token_text(const builtin *b, int32_t id); /* NULL if there is none */
void builtin_as_jinja(const builtin *b, buffer *out);

#endif
