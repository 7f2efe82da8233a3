/*
 * roles.h - what the files beside a tokenizer define: added tokens, BOS, EOS, PAD, the chat
 * template.
 */
#ifndef TEXT_ROLES_H
#define TEXT_ROLES_H
#include "parts.h"

/* The files beside a tokenizer file, parsed; NULL if absent. */
typedef struct {
    const nrl_node *config;     /* tokenizer_config.json */
    const nrl_node *special;    /* special_tokens_map.json */
    const nrl_node *added;      /* added_tokens.json */
    const nrl_node *generation; /* generation_config.json */
    const nrl_node *model;      /* config.json */
} companions;

/* Adds tokens that only these files define, as AutoTokenizer does. */
nrl_status roles_add_tokens(bpe_tokenizer *tok, const companions *c);
/* Fills bos, eos, pad, unk, and if `around`, add_bos_token and add_eos_token. `has_processor`: the tokenizer's own file
 * can say what it adds. */
nrl_status roles_fill(bpe_tokenizer *tok, const companions *c, bool around, bool has_processor);

#endif
