/*
 * split.c - pre-tokenization: text to words, step by step. Each step finds matches in every word so
 * far; its behavior defines what happens to matches and to the text between them. Called by
 * encode.c.
 */
#include "parts.h"
#include "regex.h"
#include "scan.h"
#include <string.h>

void spans_push(spans *s, size_t begin, size_t end)
{
    if (begin == end) return;
    if (s->n == s->room) {
        s->room = s->room ? s->room * 2 : 64;
        s->at = mem_realloc(s->at, s->room * sizeof *s->at);
    }
    s->at[s->n++] = (span){(uint32_t)begin, (uint32_t)end};
}

/* Collects the matches and the text between them, in order, as words. An empty match only separates. */
typedef struct {
    spans *out;
    split_behavior behavior;
    bool invert, any, last_match, last_empty; /* any: there was an earlier part; the others are of this part */
    bool pending;                             /* KEEP_WITH_NEXT: a match is joined with what follows */
    size_t pending_begin, pending_end;
} joiner;

static void extend_last(joiner *j, size_t begin, size_t end)
{
    if (j->out->n && j->out->at[j->out->n - 1].end == begin)
        j->out->at[j->out->n - 1].end = (uint32_t)end;
    else
        spans_push(j->out, begin, end);
}

static void join_with_next(joiner *j, size_t begin, size_t end, bool match)
{
    if (match) {
        if (j->pending) spans_push(j->out, j->pending_begin, j->pending_end);
        j->pending_begin = begin;
        j->pending_end = end;
    } else {
        spans_push(j->out, j->pending ? j->pending_begin : begin, end);
    }
    j->pending = match;
}

static void join(joiner *j, size_t begin, size_t end, bool match)
{
    if (begin == end && !match) return;
    if (j->invert) match = !match;
    switch (j->behavior) {
    case KEEP_REMOVED:
        if (!match) spans_push(j->out, begin, end);
        break;
    case KEEP_WITH_PREVIOUS:
        if (match && j->any && !j->last_match && !j->last_empty)
            extend_last(j, begin, end);
        else
            spans_push(j->out, begin, end);
        break;
    case KEEP_WITH_NEXT:
        join_with_next(j, begin, end, match);
        break;
    case KEEP_CONTIGUOUS:
        if (j->any && j->last_match == match)
            extend_last(j, begin, end);
        else
            spans_push(j->out, begin, end);
        break;
    default:
        spans_push(j->out, begin, end);
    }
    j->any = true;
    j->last_match = match;
    j->last_empty = begin == end;
}

static bool char_matches(split_kind kind, int32_t c)
{
    if (kind == SPLIT_DIGITS) return unicode_class(c) == CHAR_NUMBER;
    if (kind == SPLIT_SPACES) return utf8_is_space(c);
    return unicode_is_punctuation(c);
}

static bool find_char(split_kind kind, const char *text, size_t size, size_t *begin, size_t *end)
{
    for (size_t n; *begin < size; *begin += n)
        if (char_matches(kind, utf8_next(text + *begin, text + size, &n))) {
            *end = *begin + n;
            return true;
        }
    return false;
}

/* 0 white space, 1 \w, 2 anything else. */
static int char_kind(int32_t c)
{
    return unicode_is_word(c) ? 1 : utf8_is_space(c) ? 0 : 2;
}

static bool find_word(const char *text, size_t size, size_t *begin, size_t *end)
{
    size_t n, i = *begin;
    int kind = 0;
    for (; i < size && !(kind = char_kind(utf8_next(text + i, text + size, &n))); i += n)
        ;
    *begin = i;
    while (i < size && char_kind(utf8_next(text + i, text + size, &n)) == kind)
        i += n;
    *end = i;
    return *end > *begin;
}

/* The next match at or after *begin. `follows`: another one ended there. */
static nrl_status find(const split_step *step, bpe_scratch *s, const char *text, size_t size, bool follows,
                       size_t *begin, size_t *end, bool *found)
{
    const char *p;
    switch (step->kind) {
    case SPLIT_REGEX:
        return regex_find(step->pattern, &s->matches, text, size, *begin, follows, begin, end, found);
    case SPLIT_TEXT:
        p = text_find(text + *begin, size - *begin, step->text, step->text_size);
        *found = p && step->text_size;
        if (*found) *end = (*begin = (size_t)(p - text)) + step->text_size;
        break;
    case SPLIT_WORDS:
        *found = find_word(text, size, begin, end);
        break;
    default:
        *found = find_char(step->kind, text, size, begin, end);
    }
    return NRL_OK;
}

static nrl_status split_by_matches(const split_step *step, bpe_scratch *s, const char *text, span w)
{
    joiner j = {.out = &s->next, .behavior = step->behavior, .invert = step->invert};
    const char *word = text + w.begin;
    size_t size = w.end - w.begin, at = 0;
    bool follows = false;
    while (at < size) {
        size_t begin = at, end = size;
        bool found;
        NRL_TRY(find(step, s, word, size, follows, &begin, &end, &found));
        follows = found;
        if (!found) begin = size;
        join(&j, w.begin + at, w.begin + begin, false);
        if (found) join(&j, w.begin + begin, w.begin + end, true);
        at = found ? end : size;
    }
    if (j.pending) spans_push(j.out, j.pending_begin, j.pending_end);
    return NRL_OK;
}

static void split_runs(const split_step *step, spans *out, const char *text, span w)
{
    size_t begin = w.begin, n = step->text_size;
    for (size_t i = w.begin; i + n <= w.end;) {
        const char *p = text_find(text + i, w.end - i, step->text, n);
        if (!p) break;
        i = (size_t)(p - text);
        spans_push(out, begin, i);
        begin = i;
        while (i + n <= w.end && !memcmp(text + i, step->text, n))
            i += n;
    }
    spans_push(out, begin, w.end);
}

static nrl_status split_word(const split_step *step, bpe_scratch *s, const char *text, span w)
{
    switch (step->kind) {
    case SPLIT_GPT2:
        scan_gpt2(text, w.begin, w.end, &s->next);
        break;
    case SPLIT_LLAMA3:
        scan_llama3(text, w.begin, w.end, step->max_digits, &s->next);
        break;
    case SPLIT_RUNS:
        split_runs(step, &s->next, text, w);
        break;
    default:
        return split_by_matches(step, s, text, w);
    }
    return NRL_OK;
}

nrl_status split_apply(const bpe_tokenizer *tok, bpe_scratch *s, const char *text, size_t size)
{
    s->words.n = 0;
    spans_push(&s->words, 0, size);
    for (size_t i = 0; i < tok->n_split; i++) {
        s->next.n = 0;
        for (size_t k = 0; k < s->words.n; k++)
            NRL_TRY(split_word(&tok->split[i], s, text, s->words.at[k]));
        spans swap = s->words;
        s->words = s->next;
        s->next = swap;
    }
    return NRL_OK;
}
