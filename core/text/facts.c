/*
 * facts.c - what an open tokenizer answers about itself.
 */
#include "text/parts.h"
#include <string.h>

int32_t tokenizer_vocab_size(const tokenizer *tok)
{
    return tok->words.n;
}

int32_t tokenizer_token_id(const tokenizer *tok, const char *text)
{
    return vocab_find(&tok->words, text, strlen(text));
}

const char *tokenizer_token_text(const tokenizer *tok, int32_t id)
{
    return vocab_text(&tok->words, id, NULL);
}

bool tokenizer_is_special(const tokenizer *tok, int32_t id)
{
    return vocab_has(&tok->words, id) && tok->words.entries[id].special;
}

int32_t tokenizer_bos(const tokenizer *tok)
{
    return tok->bos;
}

int32_t tokenizer_eos(const tokenizer *tok)
{
    return tok->n_eos ? tok->eos[0] : TOKENIZER_NONE;
}

int32_t tokenizer_pad(const tokenizer *tok)
{
    return tok->pad;
}

size_t tokenizer_n_eos(const tokenizer *tok)
{
    return tok->n_eos;
}

bool tokenizer_is_eos(const tokenizer *tok, int32_t id)
{
    for (size_t i = 0; i < tok->n_eos; i++)
        if (tok->eos[i] == id) return true;
    return false;
}

bool tokenizer_adds_bos(const tokenizer *tok)
{
    for (size_t i = 0; i < tok->n_prefix; i++)
        if (tok->prefix[i] == tok->bos) return true;
    return false;
}

bool tokenizer_adds_eos(const tokenizer *tok)
{
    for (size_t i = 0; i < tok->n_suffix; i++)
        if (tokenizer_is_eos(tok, tok->suffix[i])) return true;
    return false;
}

const char *tokenizer_hash(const tokenizer *tok)
{
    return tok->hash;
}

const char *tokenizer_chat_template(const tokenizer *tok)
{
    return tok->chat_template;
}

const char *tokenizer_folder(const tokenizer *tok)
{
    return tok->folder;
}
