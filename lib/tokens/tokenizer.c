/*
 * tokenizer.c - see tokenizer.h.
 */
#include "tokens/tokenizer.h"
#include <stdlib.h>
#include <string.h>

nrl_status token_ids_check(nrl_token_ids *list)
{
    bool lacks = list->lacks_memory;
    list->lacks_memory = false;
    return lacks ? mem_fail(2 * list->room * sizeof *list->ids, "token ids") : NRL_OK;
}

struct tokenizer_scratch {
    const nrl_tokenizer *table;
    void *of_plugin;
};

tokenizer_scratch *tokenizer_scratch_create(const tokenizer *tok)
{
    tokenizer_scratch *s = mem_alloc(sizeof *s);
    s->table = tok->open.table;
    if (s->table->scratch_create) s->of_plugin = s->table->scratch_create(tok->open.self);
    return s;
}

void tokenizer_scratch_destroy(tokenizer_scratch *s)
{
    if (!s) return;
    if (s->table->scratch_destroy) s->table->scratch_destroy(s->of_plugin);
    free(s);
}

size_t tokenizer_scratch_dropped(const tokenizer_scratch *s)
{
    return s->table->scratch_dropped ? s->table->scratch_dropped(s->of_plugin) : 0;
}

nrl_status tokenizer_encode(const tokenizer *tok, tokenizer_scratch *scratch, const char *text, size_t size,
                            uint32_t flags, nrl_token_ids *out)
{
    return nrl_tokenizer_encode(&tok->open, scratch->of_plugin, text, size, flags, out);
}

nrl_status tokenizer_decode(const tokenizer *tok, const int32_t *ids, size_t n, bool skip_special, char **text,
                            size_t *size)
{
    return nrl_tokenizer_decode(&tok->open, ids, n, skip_special, text, size);
}

int32_t tokenizer_token_id(const tokenizer *tok, const char *text)
{
    return tok->open.table->token_id(tok->open.self, text, strlen(text));
}

const char *tokenizer_token_text(const tokenizer *tok, int32_t id, uint32_t *flags)
{
    size_t size;
    return tok->open.table->token_text(tok->open.self, id, &size, flags);
}

bool tokenizer_is_special(const tokenizer *tok, int32_t id)
{
    uint32_t flags = 0;
    return tokenizer_token_text(tok, id, &flags) && (flags & NRL_TOKEN_SPECIAL);
}

bool tokenizer_is_eos(const tokenizer *tok, int32_t id)
{
    for (size_t i = 0; i < tok->info.n_eos; i++)
        if (tok->info.eos_ids[i] == id) return true;
    return false;
}
