/*
 * added.c - added tokens ("<|im_end|>"), which are found in the text before any other step. The
 * leftmost match wins, and the longest of several at the same position. Tokens with `normalized`
 * are searched in the normalized text by their own normalized content, as in Hugging Face.
 */
#include "base/arena.h"
#include "parts.h"
#include <stdlib.h>
#include <string.h>

nrl_status added_push(bpe_tokenizer *tok, const added_token *token)
{
    if (tok->n_added == tok->added_room) {
        tok->added_room = tok->added_room ? tok->added_room * 2 : 32;
        tok->added = mem_realloc(tok->added, tok->added_room * sizeof *tok->added);
    }
    tok->added[tok->n_added++] = *token;
    tok->words.entries[token->id].added = true;
    tok->words.entries[token->id].special = token->special;
    return NRL_OK;
}

static int32_t new_node(trie *t, unsigned char byte, int32_t sibling)
{
    if (t->n == t->room) {
        t->room = t->room ? t->room * 2 : 256;
        t->nodes = mem_realloc(t->nodes, (size_t)t->room * sizeof *t->nodes);
    }
    t->nodes[t->n] = (trie_node){.sibling = sibling, .token = -1, .byte = byte};
    return t->n++;
}

static int32_t child_of(const trie *t, int32_t node, unsigned char byte)
{
    int32_t c = t->nodes[node].child;
    while (c && t->nodes[c].byte != byte)
        c = t->nodes[c].sibling;
    return c;
}

static void trie_insert(trie *t, const char *text, size_t size, int32_t token)
{
    if (!t->n) new_node(t, 0, 0);
    int32_t node = 0;
    if (size) t->starts[(unsigned char)text[0]] = true;
    for (size_t i = 0; i < size; i++) {
        int32_t next = child_of(t, node, (unsigned char)text[i]);
        if (!next) {
            next = new_node(t, (unsigned char)text[i], t->nodes[node].child);
            t->nodes[node].child = next;
        }
        node = next;
    }
    if (size) t->nodes[node].token = token;
}

void trie_free(trie *t)
{
    free(t->nodes);
    *t = (trie){0};
}

nrl_status added_index(bpe_tokenizer *tok)
{
    bpe_scratch *s = bpe_scratch_create();
    nrl_status st = NRL_OK;
    for (size_t i = 0; i < tok->n_added && !st; i++) {
        mapped_text t = {0};
        t.text = vocab_text(&tok->words, tok->added[i].id, &t.size);
        normal_begin(s, t.size);
        if (tok->added[i].normalized) st = normal_apply(tok, s, &t);
        if (!st) trie_insert(tok->added[i].normalized ? &tok->normalized : &tok->raw, t.text, t.size, (int32_t)i);
    }
    bpe_scratch_destroy(s);
    return st;
}

/* The number of the longest token at text[i], or -1; *stop is its end. */
static int32_t match_at(const trie *t, const char *text, size_t size, size_t i, size_t *stop)
{
    int32_t token = -1, node = 0;
    while (i < size && (node = child_of(t, node, (unsigned char)text[i]))) {
        i++;
        if (t->nodes[node].token < 0) continue;
        token = t->nodes[node].token;
        *stop = i;
    }
    return token;
}

static bool word_before(const char *text, size_t at)
{
    size_t n;
    return at && unicode_is_word(utf8_next(utf8_back(text, text + at), text + at, &n));
}

static bool word_after(const char *text, size_t size, size_t at)
{
    size_t n;
    return at < size && unicode_is_word(utf8_next(text + at, text + size, &n));
}

static size_t spaces_before(const char *text, size_t from, size_t at)
{
    for (size_t n; at > from;) {
        const char *p = utf8_back(text + from, text + at);
        if (!utf8_is_space(utf8_next(p, text + at, &n))) break;
        at = (size_t)(p - text);
    }
    return at;
}

static size_t spaces_after(const char *text, size_t size, size_t at)
{
    size_t n;
    while (at < size && utf8_is_space(utf8_next(text + at, text + size, &n)))
        at += n;
    return at;
}

bool added_next(const bpe_tokenizer *tok, const trie *t, const char *text, size_t size, unsigned flags, added_walk *w)
{
    w->at = w->end;
    if (!t->n) return false;
    for (size_t i = w->resume; i < size; i++) {
        if (!t->starts[(unsigned char)text[i]]) continue;
        size_t stop = i;
        int32_t k = match_at(t, text, size, i, &stop);
        if (k < 0) continue;
        const added_token *a = &tok->added[k];
        if ((a->special && (flags & NRL_ENCODE_SPECIAL_AS_TEXT)) ||
            (a->single_word && (word_before(text, i) || word_after(text, size, stop)))) {
            i = stop - 1; /* a rejected match is still consumed */
            continue;
        }
        w->token = a;
        w->begin = a->lstrip && i > w->at ? spaces_before(text, w->at, i) : i;
        w->end = a->rstrip ? spaces_after(text, size, stop) : stop;
        w->resume = stop;
        return true;
    }
    return false;
}
