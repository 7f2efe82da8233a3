/*
 * chat_parts.h - what a chat template is made of: rows of a table (chat.c), or Jinja (chat_own.c,
 * chat_open.c). Only chat*.c see it.
 */
#ifndef TEXT_CHAT_PARTS_H
#define TEXT_CHAT_PARTS_H
#include "text/chat_own.h"

/* How a role's turn is written: open, content, close, after. Of an assistant turn lead, content
 * and close are trained. In these texts \1 stands for the space that a SentencePiece tokenizer
 * needs behind a special token when it does not put one there itself. */
typedef struct {
    const char *role;
    const char *open, *lead;
    const char *close; /* the end-of-turn token; end_is_eos: the tokenizer's own EOS instead */
    const char *after;
    bool end_is_eos;
} turn;

typedef enum { SYSTEM_IS_A_TURN = 0, SYSTEM_IN_FIRST_USER, SYSTEM_IN_LAST_USER } system_place;
typedef enum { BOS_NONE = 0, BOS_ALWAYS, BOS_AS_TOKENIZER } bos_rule;

struct chat_template {
    const char *name;
    bos_rule bos;
    system_place system;
    bool alternates;           /* user, assistant, user, ... after an optional system message */
    bool begins_with_word;     /* not with a special token, nor with \1 */
    bool trims;                /* white space around contents is dropped */
    const char *const *tokens; /* special tokens that the tokenizer must have, NULL-ended */
    const turn *turns;         /* ended by a row without a role */
    const char *variant_token; /* a tokenizer that has it uses the variant */
    const struct chat_template *variant;
    chat_own *own; /* not NULL: in Jinja, and nothing above but the name holds */
};

/* A conversation's text and its trained stretches, in order. */
typedef struct {
    buffer text;
    spans trained;
} chat_text;

static inline bool chat_is_blank(char c)
{
    return c == ' ' || (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x1f);
}

/* What a built-in template is for this tokenizer: its rows, whether BOS stands in front, whether \1 is a space. */
const chat_template *chat_for_tokenizer(const chat_template *t, const tokenizer *tok);
bool chat_wants_bos(const chat_template *t, const tokenizer *tok);
bool chat_needs_space(const tokenizer *tok);

/* Marks the tokens from number `from` on that begin inside a trained stretch. */
void chat_mark(const chat_text *w, size_t from, chat_ids *out);
nrl_status chat_render_own(const chat_template *t, const tokenizer *tok, tokenizer_scratch *scratch,
                           const chat_conversation *c, chat_ids *out);
int32_t chat_end_of_own(const chat_template *t, const tokenizer *tok);

#endif
