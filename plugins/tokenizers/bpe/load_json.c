/*
 * load_json.c - tokenizer.json: a cursor reads the vocabulary and merges of the model, which are
 * most of the file; all other members are small and become nodes.
 */
#include "base/json.h"
#include "words.h"
#include "cursor.h"
#include "load.h"
#include <stdlib.h>
#include <string.h>

/* The members have no fixed order in the file but must be loaded in order, so they are extracted
 * first. */
enum { NORMALIZER, PRE_TOKENIZER, POST_PROCESSOR, DECODER, ADDED_TOKENS, MODEL, N_MEMBERS };
static const char *const member_names[N_MEMBERS] = {"normalizer", "pre_tokenizer", "post_processor",
                                                    "decoder",    "added_tokens",  "model"};
enum { VOCAB, MERGES, N_MODEL };
static const char *const model_names[N_MODEL] = {"vocab", "merges"};

/* Its line in the file is only counted for an error. */
static nrl_status parse_member(bpe_tokenizer *tok, const cursor *file, const cursor_member *m, nrl_node **out)
{
    int64_t line, column;
    *out = NULL;
    if (!m->text || json_parse(&tok->memory, file->source, m->text, m->size, out) == NRL_OK) return NRL_OK;
    cursor_place(file, m->text, &line, &column);
    return json_parse_at(&tok->memory, file->source, line, column, m->text, m->size, out);
}

/* Reads a member from its start; errors have its place in the file. */
static cursor member_cursor(const cursor *file, const cursor_member *m)
{
    return (cursor){file->source, file->begin, m->text, m->text + m->size};
}

/* ---- vocab and merges ---- */

nrl_status load_vocab_map(bpe_tokenizer *tok, cursor c)
{
    buffer key = {0};
    bool first = true, more = true;
    nrl_status st = cursor_enter(&c, '{');
    while (st == NRL_OK) {
        int64_t id;
        NRL_TRY_DONE(cursor_next(&c, '}', &first, &more));
        if (!more) break;
        NRL_TRY_DONE(cursor_key(&c, &key));
        NRL_TRY_DONE(cursor_int(&c, &id));
        st = vocab_add(&tok->words, key.size ? key.text : "", key.size, id);
        if (st) nrl_add_context("%s", c.source);
    }
done:
    buffer_free(&key);
    return st;
}

typedef struct {
    bpe_tokenizer *tok;
    cursor c;
    buffer left, right, made;
} merge_reader;

static nrl_status find_token(merge_reader *r, const char *text, size_t size, int32_t *id)
{
    *id = vocab_find(&r->tok->words, size ? text : "", size);
    if (*id != VOCAB_ABSENT) return NRL_OK;
    NRL_TRY(cursor_fail(&r->c, "merges of tokens in the vocabulary"));
    return NRL_OK;
}

/* "left right" as one string, or ["left", "right"]. */
static nrl_status read_pair(merge_reader *r)
{
    if (cursor_peek(&r->c) == '[') {
        bool first = true, more;
        NRL_TRY(cursor_enter(&r->c, '['));
        NRL_TRY(cursor_next(&r->c, ']', &first, &more));
        NRL_TRY(cursor_string(&r->c, &r->left));
        NRL_TRY(cursor_next(&r->c, ']', &first, &more));
        if (!more) return cursor_fail(&r->c, "two tokens in a merge");
        NRL_TRY(cursor_string(&r->c, &r->right));
        NRL_TRY(cursor_next(&r->c, ']', &first, &more));
        return more ? cursor_fail(&r->c, "two tokens in a merge") : NRL_OK;
    }
    NRL_TRY(cursor_string(&r->c, &r->left));
    char *space = r->left.size ? memchr(r->left.text, ' ', r->left.size) : NULL;
    size_t n = space ? (size_t)(space - r->left.text) : 0;
    if (!space || memchr(space + 1, ' ', r->left.size - n - 1))
        return cursor_fail(&r->c, "two tokens with one space between in a merge");
    r->right.size = 0;
    buffer_add(&r->right, space + 1, r->left.size - n - 1);
    r->left.size = n;
    return NRL_OK;
}

static nrl_status read_merge(merge_reader *r, uint32_t rank)
{
    int32_t left, right, made;
    cursor_peek(&r->c);
    const char *begin = r->c.p;
    NRL_TRY(read_pair(r));
    const char *after = r->c.p;
    r->c.p = begin; /* so that errors point to the merge */
    NRL_TRY(find_token(r, r->left.text, r->left.size, &left));
    NRL_TRY(find_token(r, r->right.text, r->right.size, &right));
    r->made.size = 0;
    buffer_add(&r->made, r->left.text, r->left.size);
    buffer_add(&r->made, r->right.text, r->right.size);
    NRL_TRY(find_token(r, r->made.text, r->made.size, &made));
    r->c.p = after;
    merge_add(&r->tok->merges, left, right, rank, made);
    return NRL_OK;
}

static nrl_status load_merges(bpe_tokenizer *tok, cursor c)
{
    merge_reader r = {.tok = tok, .c = c};
    bool first = true, more = true;
    nrl_status st = cursor_enter(&r.c, '[');
    merge_table_reserve(&tok->merges, (size_t)(c.end - c.p) / 24);
    for (uint32_t rank = 0; st == NRL_OK; rank++) {
        st = cursor_next(&r.c, ']', &first, &more);
        if (st || !more) break;
        st = read_merge(&r, rank);
    }
    buffer_free(&r.left);
    buffer_free(&r.right);
    buffer_free(&r.made);
    return st;
}

/* ---- the model ---- */

static nrl_status check_model(const nrl_node *model)
{
    const char *type = nrl_node_string(nrl_node_find(model, "type"), "BPE");
    if (strcmp(type, "BPE")) return nrl_fail(NRL_ERR_DATA, "model type '%s' is not supported, expected BPE", type);
    if (nrl_node_f64(nrl_node_find(model, "dropout"), 0) > 0)
        return nrl_fail(NRL_ERR_DATA, "model.dropout is not supported, expected null");
    static const char *const affixes[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    for (int i = 0; i < 2; i++)
        if (nrl_node_string_size(nrl_node_find(model, affixes[i])))
            return nrl_fail(NRL_ERR_DATA, "model.%s is not supported, expected null", affixes[i]);
    return NRL_OK;
}

static nrl_status load_model(bpe_tokenizer *tok, const cursor *file, const cursor_member *m)
{
    cursor_member parts[N_MODEL] = {0};
    buffer rest = {0};
    nrl_node *model;
    nrl_status st;
    cursor c = member_cursor(file, m);
    NRL_TRY_DONE(cursor_members(&c, model_names, N_MODEL, parts, &rest));
    buffer_puts(&rest, rest.size ? "}" : "{}");
    /* what is wrong in the rest is wrong in the model as a whole, which has its lines */
    if (json_parse(&tok->memory, file->source, rest.text, rest.size, &model) != NRL_OK)
        NRL_TRY_DONE(parse_member(tok, file, m, &model));
    NRL_TRY_DONE(check_model(model));
    if (!parts[VOCAB].text || !parts[MERGES].text) {
        st = nrl_fail(NRL_ERR_DATA, "model: expected 'vocab' and 'merges'");
        goto done;
    }
    NRL_TRY_DONE(load_vocab_map(tok, member_cursor(file, &parts[VOCAB])));
    NRL_TRY_DONE(load_merges(tok, member_cursor(file, &parts[MERGES])));
    const nrl_node *unk = nrl_node_find(model, "unk_token");
    if (nrl_node_kind(unk) == NRL_NODE_STRING) {
        tok->unk = vocab_find(&tok->words, nrl_node_string(unk, ""), nrl_node_string_size(unk));
        if (tok->unk == VOCAB_ABSENT)
            st = nrl_fail(NRL_ERR_DATA, "model.unk_token '%s' is not in the vocabulary", nrl_node_string(unk, ""));
    }
    tok->fuse_unk = nrl_node_bool(nrl_node_find(model, "fuse_unk"), false);
    tok->byte_fallback = nrl_node_bool(nrl_node_find(model, "byte_fallback"), false);
    tok->ignore_merges = nrl_node_bool(nrl_node_find(model, "ignore_merges"), false);
done:
    buffer_free(&rest);
    return st;
}

static nrl_status load_members(bpe_tokenizer *tok, const cursor *file, const cursor_member *m)
{
    nrl_node *node;
    if (!m[MODEL].text) return nrl_fail(NRL_ERR_DATA, "expected a 'model'");
    NRL_TRY(load_model(tok, file, &m[MODEL]));
    NRL_TRY(parse_member(tok, file, &m[ADDED_TOKENS], &node));
    NRL_TRY(load_added_tokens(tok, node));
    NRL_TRY(parse_member(tok, file, &m[NORMALIZER], &node));
    NRL_TRY(load_normalizer(tok, node));
    NRL_TRY(parse_member(tok, file, &m[PRE_TOKENIZER], &node));
    NRL_TRY(load_pre_tokenizer(tok, node));
    NRL_TRY(parse_member(tok, file, &m[POST_PROCESSOR], &node));
    NRL_TRY(load_post_processor(tok, node));
    NRL_TRY(parse_member(tok, file, &m[DECODER], &node));
    return load_decoder(tok, node);
}

nrl_status load_json(bpe_tokenizer *tok, const char *source, const char *text, size_t size)
{
    cursor_member members[N_MEMBERS] = {0};
    cursor c = {source, text, text, text + size};
    NRL_TRY(cursor_members(&c, member_names, N_MEMBERS, members, NULL));
    if (cursor_peek(&c)) return cursor_fail(&c, "the end of the file");
    nrl_status st = load_members(tok, &c, members);
    if (st) {
        if (strncmp(nrl_error_text(), source, strlen(source))) nrl_add_context("%s", source);
        return st;
    }
    if (tok->byte_level)
        load_use_byte_level(tok);
    else if (tok->byte_fallback)
        load_find_fallback(tok);
    if (!tok->n_split && !tok->byte_level) load_cut_at_runs(tok, "\xe2\x96\x81");
    return NRL_OK;
}

/* ---- shared by the formats ---- */

void load_use_byte_level(bpe_tokenizer *tok)
{
    tok->byte_level = true;
    tok->byte_fallback = false; /* byte level has a character for every byte */
    for (int b = 0; b < 256; b++) {
        char text[4];
        size_t n = utf8_write(byte_to_char((unsigned char)b), text);
        tok->byte_ids[b] = vocab_find_model(&tok->words, text, n);
    }
}

void load_find_fallback(bpe_tokenizer *tok)
{
    tok->byte_fallback = true;
    for (int b = 0; b < 256; b++) {
        char text[8];
        static const char digits[] = "0123456789ABCDEF";
        memcpy(text, "<0x00>", 7);
        text[3] = digits[b >> 4];
        text[4] = digits[b & 15];
        tok->byte_ids[b] = vocab_find_model(&tok->words, text, 6);
    }
}

/* True if `mark` occurs only at the beginning of text, as a run. */
static bool only_in_front(const char *text, size_t size, const char *mark, size_t n)
{
    size_t at = 0;
    while (size - at >= n && !memcmp(text + at, mark, n))
        at += n;
    return !text_find(text + at, size - at, mark, n);
}

/* Whether every character becomes a symbol, so that no character vanishes and makes its neighbors
 * adjacent. */
static bool keeps_all(const bpe_tokenizer *tok)
{
    bool all = tok->byte_fallback;
    for (int b = 0; b < 256 && all; b++)
        all = tok->byte_ids[b] != NRL_TOKEN_NONE;
    return all || tok->unk != NRL_TOKEN_NONE;
}

/* If no merge creates a token with a mark after another character, no merge crosses the border
 * before a run of marks. Words may then be split there, which makes them short enough for the
 * cache. */
void load_cut_at_runs(bpe_tokenizer *tok, const char *mark)
{
    size_t n = strlen(mark), size;
    if (tok->ignore_merges || !keeps_all(tok)) return;
    if (vocab_find(&tok->words, mark, n) == VOCAB_ABSENT) return;
    for (size_t i = 0; i < tok->merges.n_slots; i++) {
        const merge *m = &tok->merges.slots[i];
        if (m->rank == VOCAB_NO_RANK) continue;
        const char *text = vocab_text(&tok->words, m->id, &size);
        if (!only_in_front(text, size, mark, n)) return;
    }
    split_step *s = load_add_split(tok, SPLIT_RUNS, KEEP_ISOLATED);
    s->text = mark;
    s->text_size = n;
}

void load_llama_parts(bpe_tokenizer *tok, bool prefix)
{
    static const char mark[] = "\xe2\x96\x81";
    normal_step *s;
    if (prefix) {
        s = load_add_normal(tok, NORMAL_PREPEND);
        s->text = mark;
        s->text_size = 3;
    }
    s = load_add_normal(tok, NORMAL_REPLACE);
    s->text = " ";
    s->text_size = 1;
    s->content = mark;
    s->content_size = 3;
    decode_plan *d = &tok->decode;
    d->replace = arena_alloc(&tok->memory, sizeof *d->replace);
    d->replace[0] = (replacement){mark, " ", 3, 1};
    d->n_replace = 1;
    d->byte_fallback = true;
    d->strip = prefix ? " " : NULL;
    d->strip_size = 1;
    d->strip_start = 1;
}
