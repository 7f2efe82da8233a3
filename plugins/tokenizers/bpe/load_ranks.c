/*
 * load_ranks.c - two older formats of byte-level BPE: tiktoken rank files (Llama 3's
 * tokenizer.model) and GPT-2's vocab.json with merges.txt.
 */
#include "words.h"
#include "load.h"
#include <stdlib.h>
#include <string.h>

enum { LONGEST_TOKEN = 4096 };

/* ---- lines ---- */

typedef struct {
    const char *source, *p, *end;
    size_t number;
} lines;

static bool next_line(lines *l, const char **line, size_t *size)
{
    if (l->p >= l->end) return false;
    const char *stop = memchr(l->p, '\n', (size_t)(l->end - l->p));
    if (!stop) stop = l->end;
    *line = l->p;
    *size = (size_t)(stop - l->p);
    if (*size && stop[-1] == '\r') (*size)--;
    l->p = stop + (stop < l->end);
    l->number++;
    return true;
}

static nrl_status line_fails(const lines *l, const char *expected)
{
    return nrl_fail(NRL_ERR_DATA, "%s:%zu: expected %s", l->source, l->number, expected);
}

/* ---- tiktoken ---- */

static int base64_value(char c)
{
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* Bytes of base64 text, or -1. */
static int64_t read_base64(const char *text, size_t size, unsigned char *out)
{
    size_t n = 0;
    if (!size || size % 4 || size > LONGEST_TOKEN) return -1;
    size_t pad = text[size - 1] != '=' ? 0 : text[size - 2] == '=' ? 2 : 1;
    for (size_t i = 0; i < size; i += 4) {
        uint32_t bits = 0;
        for (size_t k = 0; k < 4; k++) {
            int v = i + k >= size - pad ? 0 : base64_value(text[i + k]);
            if (v < 0) return -1;
            bits = bits << 6 | (uint32_t)v;
        }
        for (int k = 2; k >= 0; k--)
            out[n++] = (unsigned char)(bits >> (8 * k));
    }
    return (int64_t)(n - pad);
}

static bool read_rank(const char *text, size_t size, int64_t *rank)
{
    *rank = 0;
    if (!size || size > 9) return false;
    for (size_t i = 0; i < size; i++) {
        if (text[i] < '0' || text[i] > '9') return false;
        *rank = *rank * 10 + (text[i] - '0');
    }
    return true;
}

static bool split_rank_line(const char *line, size_t size, unsigned char *bytes, int64_t *n, int64_t *rank)
{
    const char *space = memchr(line, ' ', size);
    if (!space) return false;
    size_t left = (size_t)(space - line);
    *n = read_base64(line, left, bytes);
    return *n > 0 && read_rank(space + 1, size - left - 1, rank);
}

bool load_is_tiktoken(const char *bytes, size_t size)
{
    lines l = {"", bytes, bytes + size, 0};
    unsigned char token[LONGEST_TOKEN];
    const char *line;
    size_t line_size;
    int64_t n, rank;
    return next_line(&l, &line, &line_size) && split_rank_line(line, line_size, token, &n, &rank);
}

static nrl_status read_ranks(bpe_tokenizer *tok, lines *l)
{
    unsigned char bytes[LONGEST_TOKEN];
    char chars[2 * LONGEST_TOKEN];
    const char *line;
    size_t size;
    int64_t n, rank;
    while (next_line(l, &line, &size)) {
        if (!size) continue;
        if (!split_rank_line(line, size, bytes, &n, &rank))
            return line_fails(l, "base64 of a token, a space and its rank");
        size_t chars_size = 0;
        for (int64_t i = 0; i < n; i++)
            chars_size += utf8_write(byte_to_char(bytes[i]), chars + chars_size);
        nrl_status st = vocab_add(&tok->words, chars, chars_size, rank);
        if (st) {
            nrl_add_context("%s:%zu", l->source, l->number);
            return st;
        }
    }
    return tok->words.n ? NRL_OK : line_fails(l, "tokens");
}

nrl_status load_tiktoken(bpe_tokenizer *tok, const char *source, const char *text, size_t size)
{
    lines l = {source, text, text + size, 0};
    NRL_TRY(read_ranks(tok, &l));
    uint32_t *rank = mem_alloc((size_t)tok->words.n * sizeof *rank);
    for (int32_t i = 0; i < tok->words.n; i++)
        rank[i] = (uint32_t)i;
    merges_from_ranks(&tok->merges, &tok->words, rank);
    free(rank);
    load_use_byte_level(tok);
    tok->ignore_merges = true;
    tok->bos_by_default = true;
    load_add_split(tok, SPLIT_LLAMA3, KEEP_ISOLATED)->max_digits = 3;
    tok->decode.byte_level = true;
    return NRL_OK;
}

/* ---- vocab.json and merges.txt ---- */

static nrl_status read_merge_line(bpe_tokenizer *tok, const lines *l, const char *line, size_t size, uint32_t rank)
{
    const char *space = memchr(line, ' ', size);
    size_t n = space ? (size_t)(space - line) : 0;
    char *made = mem_alloc(size);
    if (space) {
        memcpy(made, line, n);
        memcpy(made + n, space + 1, size - n - 1);
    }
    int32_t left = space ? vocab_find(&tok->words, line, n) : VOCAB_ABSENT;
    int32_t right = space ? vocab_find(&tok->words, space + 1, size - n - 1) : VOCAB_ABSENT;
    int32_t id = space ? vocab_find(&tok->words, made, size - 1) : VOCAB_ABSENT;
    free(made);
    if (left == VOCAB_ABSENT || right == VOCAB_ABSENT || id == VOCAB_ABSENT)
        return line_fails(l, "two tokens of the vocabulary, with one space between, that make a third");
    merge_add(&tok->merges, left, right, rank, id);
    return NRL_OK;
}

static nrl_status read_merges(bpe_tokenizer *tok, lines *l)
{
    const char *line;
    size_t size;
    for (uint32_t rank = 0; next_line(l, &line, &size);) {
        bool version = l->number == 1 && size >= 8 && !memcmp(line, "#version", 8);
        if (!size || version) continue;
        NRL_TRY(read_merge_line(tok, l, line, size, rank++));
    }
    return NRL_OK;
}

/* The end-of-text token of GPT2Tokenizer and Qwen2Tokenizer, unless the files name another. */
static nrl_status add_end_of_text(bpe_tokenizer *tok)
{
    static const char text[] = "<|endoftext|>";
    int32_t id = vocab_find(&tok->words, text, sizeof text - 1);
    if (id == VOCAB_ABSENT) return NRL_OK;
    tok->eos = arena_alloc(&tok->memory, sizeof *tok->eos);
    tok->eos[0] = id;
    tok->n_eos = 1;
    return load_added_token(tok, text, sizeof text - 1, id, NULL, true);
}

nrl_status load_pair(bpe_tokenizer *tok, const char *vocab_source, const char *vocab_text_, size_t vocab_size,
                     const char *merges_source, const char *merges_text, size_t merges_size, const char *class)
{
    NRL_TRY(load_vocab_map(tok, (cursor){vocab_source, vocab_text_, vocab_text_, vocab_text_ + vocab_size}));
    lines l = {merges_source, merges_text, merges_text + merges_size, 0};
    NRL_TRY(read_merges(tok, &l));
    NRL_TRY(add_end_of_text(tok));
    load_use_byte_level(tok);
    tok->decode.byte_level = true;
    if (class && !strncmp(class, "Qwen2", 5)) {
        load_add_normal(tok, NORMAL_FORM)->form = FORM_NFC;
        load_add_split(tok, SPLIT_LLAMA3, KEEP_ISOLATED)->max_digits = 1;
    } else {
        load_add_split(tok, SPLIT_GPT2, KEEP_ISOLATED);
    }
    return NRL_OK;
}
