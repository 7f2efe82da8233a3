/*
 * roles.c - see roles.h. tokenizer_config.json has precedence, then special_tokens_map.json, then
 * the ids of generation_config.json and config.json. A role that no file names stays empty; it is
 * never guessed from the text of a token.
 */
#include "roles.h"
#include "load.h"
#include <stdlib.h>
#include <string.h>

static nrl_status add_decoder_tokens(bpe_tokenizer *tok, const nrl_node *map)
{
    for (size_t i = 0; i < nrl_node_size(map); i++) {
        const nrl_node *row = nrl_node_at(map, i), *content = nrl_node_find(row, "content");
        const char *key = nrl_node_key(map, i);
        char *end;
        long long id = strtoll(key, &end, 10);
        if (*end || end == key || nrl_node_kind(content) != NRL_NODE_STRING)
            return nrl_fail(NRL_ERR_DATA,
                            "%s: added_tokens_decoder: expected ids with maps that hold "
                            "a string 'content', got '%s'",
                            nrl_node_place(map), key);
        nrl_status st =
            load_added_token(tok, nrl_node_string(content, ""), nrl_node_string_size(content), id, row, false);
        if (st) {
            nrl_add_context("%s: added_tokens_decoder", nrl_node_place(map));
            return st;
        }
    }
    return NRL_OK;
}

/* The text of "</s>" or of {"content": "</s>"}, NULL for other values. */
static const char *token_text(const nrl_node *n, size_t *size)
{
    if (nrl_node_kind(n) == NRL_NODE_MAP) n = nrl_node_find(n, "content");
    *size = nrl_node_string_size(n);
    return nrl_node_string(n, NULL);
}

/* Calls `use` for each special token that the file names, by its role or in a list. */
typedef nrl_status (*use_special)(bpe_tokenizer *tok, const nrl_node *token, void *user);
static nrl_status each_special(bpe_tokenizer *tok, const nrl_node *file, use_special use, void *user)
{
    static const char *const roles[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                        "pad_token", "cls_token", "mask_token"};
    static const char *const lists[] = {"additional_special_tokens", "extra_special_tokens"};
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        NRL_TRY(use(tok, nrl_node_find(file, roles[i]), user));
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        const nrl_node *list = nrl_node_find(file, lists[i]);
        for (size_t k = 0; k < nrl_node_size(list); k++)
            NRL_TRY(use(tok, nrl_node_at(list, k), user));
    }
    return NRL_OK;
}

/* A word of the vocabulary that a file names as special is cut out of texts like an added token. */
static nrl_status add_special(bpe_tokenizer *tok, const nrl_node *token, void *user)
{
    size_t size;
    const char *text = token_text(token, &size);
    const int32_t id = text ? vocab_find(&tok->words, text, size) : NRL_TOKEN_NONE;
    (void)user;
    return id == NRL_TOKEN_NONE
               ? NRL_OK
               : load_added_token(tok, text, size, id, nrl_node_kind(token) == NRL_NODE_MAP ? token : NULL, true);
}

typedef struct {
    const char *text;
    bool found;
} searched_token;

static nrl_status compare_special(bpe_tokenizer *tok, const nrl_node *token, void *user)
{
    size_t size;
    searched_token *s = user;
    const char *text = token_text(token, &size);
    (void)tok;
    s->found |= text && !strcmp(text, s->text);
    return NRL_OK;
}

static bool is_special(bpe_tokenizer *tok, const companions *c, const char *text)
{
    searched_token s = {.text = text};
    (void)each_special(tok, c->config, compare_special, &s);
    (void)each_special(tok, c->special, compare_special, &s);
    return s.found;
}

nrl_status roles_add_tokens(bpe_tokenizer *tok, const companions *c)
{
    NRL_TRY(add_decoder_tokens(tok, nrl_node_find(c->config, "added_tokens_decoder")));
    for (size_t i = 0; i < nrl_node_size(c->added); i++) {
        const char *text = nrl_node_key(c->added, i);
        nrl_status st = !text ? NRL_OK
                              : load_added_token(tok, text, strlen(text), nrl_node_int(nrl_node_at(c->added, i), -1),
                                                 NULL, is_special(tok, c, text));
        if (st) {
            nrl_add_context("%s", nrl_node_place(c->added));
            return st;
        }
    }
    NRL_TRY(each_special(tok, c->config, add_special, NULL));
    return each_special(tok, c->special, add_special, NULL);
}

/* NRL_TOKEN_NONE if it is absent or not a token. */
static int32_t named_token(const bpe_tokenizer *tok, const nrl_node *map, const char *key)
{
    size_t size;
    const char *text = token_text(nrl_node_find(map, key), &size);
    return text ? vocab_find(&tok->words, text, size) : NRL_TOKEN_NONE;
}

static int32_t id_token(const bpe_tokenizer *tok, const nrl_node *map, const char *key)
{
    const nrl_node *n = nrl_node_find(map, key);
    if (nrl_node_kind(n) == NRL_NODE_LIST) n = nrl_node_at(n, 0);
    int64_t id = nrl_node_int(n, NRL_TOKEN_NONE);
    return vocab_has(&tok->words, id) ? (int32_t)id : NRL_TOKEN_NONE;
}

static int32_t role(const bpe_tokenizer *tok, const companions *c, const char *token_key, const char *id_key,
                    int32_t found)
{
    int32_t id = named_token(tok, c->config, token_key);
    if (id == NRL_TOKEN_NONE) id = named_token(tok, c->special, token_key);
    if (id == NRL_TOKEN_NONE) id = found;
    if (id == NRL_TOKEN_NONE) id = id_token(tok, c->generation, id_key);
    if (id == NRL_TOKEN_NONE) id = id_token(tok, c->model, id_key);
    return id;
}

static void add_eos(bpe_tokenizer *tok, int64_t id)
{
    if (!vocab_has(&tok->words, id) || bpe_is_eos(tok, (int32_t)id)) return;
    int32_t *list = arena_alloc(&tok->memory, (tok->n_eos + 1) * sizeof *list);
    if (tok->n_eos) memcpy(list, tok->eos, tok->n_eos * sizeof *list);
    list[tok->n_eos++] = (int32_t)id;
    tok->eos = list;
}

static void add_eos_of(bpe_tokenizer *tok, const nrl_node *map)
{
    const nrl_node *n = nrl_node_find(map, "eos_token_id");
    if (nrl_node_kind(n) != NRL_NODE_LIST) add_eos(tok, nrl_node_int(n, NRL_TOKEN_NONE));
    for (size_t i = 0; nrl_node_kind(n) == NRL_NODE_LIST && i < nrl_node_size(n); i++)
        add_eos(tok, nrl_node_int(nrl_node_at(n, i), NRL_TOKEN_NONE));
}

/* add_bos_token and add_eos_token, written or implied by the class, override the file's own post-processor in
 * transformers' Llama and Gemma tokenizers, and take its place where the format has none. `has_processor`: the file is
 * a tokenizer.json. */
static void fill_around(bpe_tokenizer *tok, const companions *c, bool has_processor)
{
    const char *class = nrl_node_string(nrl_node_find(c->config, "tokenizer_class"), "");
    bool llama = !strncmp(class, "Llama", 5) || !strncmp(class, "CodeLlama", 9) || !strncmp(class, "Gemma", 5);
    const nrl_node *bos = nrl_node_find(c->config, "add_bos_token");
    const nrl_node *eos = nrl_node_find(c->config, "add_eos_token");
    if (has_processor && !llama) return;
    bool want_bos = nrl_node_bool(bos, llama || tok->bos_by_default || bpe_adds_bos(tok));
    bool want_eos = nrl_node_bool(eos, bpe_adds_eos(tok));
    if (tok->bos != NRL_TOKEN_NONE && want_bos != bpe_adds_bos(tok)) {
        tok->n_prefix = 0;
        if (want_bos) load_prefix(tok, tok->bos, false);
    }
    if (tok->n_eos && want_eos != bpe_adds_eos(tok)) {
        tok->n_suffix = 0;
        if (want_eos) load_prefix(tok, tok->eos[0], true);
    }
}

nrl_status roles_fill(bpe_tokenizer *tok, const companions *c, bool around, bool has_processor)
{
    tok->bos = role(tok, c, "bos_token", "bos_token_id", tok->bos);
    tok->pad = role(tok, c, "pad_token", "pad_token_id", tok->pad);
    int32_t eos = role(tok, c, "eos_token", "eos_token_id", bpe_eos(tok));
    int32_t unk = named_token(tok, c->config, "unk_token");
    if (tok->unk == NRL_TOKEN_NONE && !tok->byte_level) tok->unk = unk;
    tok->n_eos = 0;
    add_eos(tok, eos);
    add_eos_of(tok, c->generation);
    add_eos_of(tok, c->model);
    if (around) fill_around(tok, c, has_processor);
    return NRL_OK;
}
