/*
 * new_tokens.c - the option add_tokens: tokens beside those of the files, and the files with them. Ids are those that
 * `add_tokens` of transformers gives. The tokens are found in the text as they are written, before any other step.
 */
#include "base/json.h"
#include "cursor.h"
#include "load.h"
#include "new_tokens.h"
#include <stdlib.h>
#include <string.h>

/* The library of Hugging Face gives ids again when it reads tokenizer.json: one above the largest of an added token,
 * but at least the number of tokens of the model. */
static int64_t next_id(const bpe_tokenizer *tok)
{
    int64_t n_model = 0, last = -1;
    for (int32_t id = 0; id < tok->words.n; id++)
        n_model += vocab_has(&tok->words, id) && !tok->words.entries[id].outside;
    for (size_t i = 0; i < tok->n_added; i++)
        if (tok->added[i].id > last) last = tok->added[i].id;
    return last >= n_model ? last + 1 : n_model;
}

static nrl_status add_one(bpe_tokenizer *tok, const nrl_node *at)
{
    const bool is_map = nrl_node_kind(at) == NRL_NODE_MAP;
    const nrl_node *text = is_map ? nrl_node_find(at, "token") : at, *special = nrl_node_find(at, "special");
    const bool known = !is_map || nrl_node_size(at) == 1 + (special != NULL);
    if (nrl_node_kind(text) != NRL_NODE_STRING || !nrl_node_string_size(text) || !known ||
        (special && nrl_node_kind(special) != NRL_NODE_BOOL))
        return nrl_fail(NRL_ERR_CONFIG, "%s: add_tokens: expected a text or {token: TEXT, special: true}",
                        nrl_node_place(at));
    if (vocab_find(&tok->words, nrl_node_string(text, ""), nrl_node_string_size(text)) != VOCAB_ABSENT) return NRL_OK;
    const int64_t id = next_id(tok);
    if (id != tok->words.n)
        return nrl_fail(NRL_ERR_CONFIG,
                        "%s: add_tokens: the tokenizer of '%s' has ids up to %d, but other programs would give a new "
                        "token the id %lld",
                        nrl_node_place(at), tok->source, tok->words.n - 1, (long long)id);
    arena *a = &tok->memory;
    nrl_node *row = node_new(a, NRL_NODE_MAP);
    node_append_int(a, row, "id", id);
    node_append(a, row, "content", node_string(a, nrl_node_string(text, ""), nrl_node_string_size(text)));
    static const char *const flags[] = {"single_word", "lstrip", "rstrip", "normalized"};
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        node_append(a, row, flags[i], node_bool(a, false));
    node_append(a, row, "special", node_bool(a, nrl_node_bool(special, false)));
    node_append(a, tok->new_tokens, NULL, row);
    return load_added_token(tok, nrl_node_string(text, ""), nrl_node_string_size(text), id, row, false);
}

nrl_status new_tokens_add(bpe_tokenizer *tok, const nrl_node *list, bool is_json)
{
    if (nrl_node_kind(list) <= NRL_NODE_NULL || !nrl_node_size(list)) return NRL_OK;
    if (nrl_node_kind(list) != NRL_NODE_LIST)
        return nrl_fail(NRL_ERR_CONFIG, "%s: add_tokens: expected a list of texts", nrl_node_place(list));
    if (!is_json)
        return nrl_fail(NRL_ERR_CONFIG, "%s: add_tokens: '%s' is not a tokenizer.json, to which tokens can be added",
                        nrl_node_place(list), tok->source);
    tok->new_tokens = node_new(&tok->memory, NRL_NODE_LIST);
    for (size_t i = 0; i < nrl_node_size(list); i++)
        NRL_TRY(add_one(tok, nrl_node_at(list, i)));
    return NRL_OK;
}

/* ---- files ---- */

/* The text of a list or map in a file, up to its closing bracket, and a comma if an element follows. */
static void add_open_end(buffer *out, const cursor_member *m, const char *empty)
{
    size_t n = m->text ? m->size - 1 : 1;
    const char *text = m->text ? m->text : empty;
    while (n > 1 && strchr(" \t\r\n", text[n - 1]))
        n--;
    buffer_add(out, text, n);
    if (n > 1) buffer_puts(out, ",");
}

void new_tokens_write_list(const bpe_tokenizer *tok, const cursor_member *old, buffer *out)
{
    add_open_end(out, old, "[");
    for (size_t i = 0; i < nrl_node_size(tok->new_tokens); i++) {
        char *row = json_write(nrl_node_at(tok->new_tokens, i), 0);
        buffer_print(out, "%s\n    ", i ? "," : "");
        buffer_puts(out, row);
        free(row);
    }
    buffer_puts(out, "\n  ]");
}

void new_tokens_write_map(const bpe_tokenizer *tok, const cursor_member *old, buffer *out)
{
    arena a = {0};
    add_open_end(out, old, "{");
    for (size_t i = 0; i < nrl_node_size(tok->new_tokens); i++) {
        const nrl_node *row = nrl_node_at(tok->new_tokens, i);
        char *text = json_write(node_without(&a, row, "id"), 0);
        buffer_print(out, "%s\n    \"%lld\": ", i ? "," : "", (long long)nrl_node_int(nrl_node_find(row, "id"), 0));
        buffer_puts(out, text);
        free(text);
    }
    buffer_puts(out, "\n  }");
    arena_free(&a);
}
