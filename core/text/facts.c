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

const char *tokenizer_tools_template(const tokenizer *tok)
{
    return tok->tools_template;
}

/* The first file that has the name decides, also where it says null. */
const char *tokenizer_named_token(const tokenizer *tok, const char *name)
{
    const nrl_node *files[] = {tok->config, tok->special};
    for (int i = 0; i < 2; i++) {
        const nrl_node *n = nrl_node_find(files[i], name);
        if (!n) continue;
        if (nrl_node_kind(n) == NRL_NODE_MAP) n = nrl_node_find(n, "content");
        return nrl_node_string(n, NULL);
    }
    int32_t id = !strcmp(name, "bos_token")   ? tok->bos
                 : !strcmp(name, "eos_token") ? tokenizer_eos(tok)
                 : !strcmp(name, "pad_token") ? tok->pad
                                              : TOKENIZER_NONE;
    return id == TOKENIZER_NONE ? NULL : tokenizer_token_text(tok, id);
}

const char *tokenizer_folder(const tokenizer *tok)
{
    return tok->folder;
}
