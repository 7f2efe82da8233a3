/*
 * chat_mark.c - from trained stretches of a text to trained tokens, and rendering by a Jinja template.
 */
#include "text/chat_parts.h"
#include <stdlib.h>
#include <string.h>

void chat_mark(const chat_text *w, size_t from, chat_ids *out)
{
    if (out->room < out->tokens.n) {
        out->room = out->tokens.room;
        out->trained = mem_realloc(out->trained, out->room);
    }
    size_t k = 0;
    for (size_t i = from; i < out->tokens.n; i++) {
        size_t start = out->tokens.starts[i];
        while (k < w->trained.n && w->trained.at[k].end <= start)
            k++;
        out->trained[i] = k < w->trained.n && w->trained.at[k].begin <= start;
    }
}

static bool is_blank(const char *text, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (!chat_is_blank(text[i])) return false;
    return true;
}

/* The white space that a template writes behind an end-of-turn token belongs to no turn. `last` is
 * the turn's last token. */
static void unmark_blanks(const chat_text *w, const tokenizer *tok, size_t from, size_t last, chat_ids *out)
{
    size_t i = last, end = last + 1 < out->tokens.n ? out->tokens.starts[last + 1] : w->text.size;
    const int32_t *ids = out->tokens.ids;
    while (i > from && out->trained[i] && !tokenizer_is_special(tok, ids[i]) && !tokenizer_is_eos(tok, ids[i]) &&
           is_blank(w->text.text + out->tokens.starts[i], end - out->tokens.starts[i]))
        end = out->tokens.starts[i--];
    bool special = tokenizer_is_special(tok, ids[i]) || tokenizer_is_eos(tok, ids[i]);
    if (out->trained[i] && special) memset(out->trained + i + 1, 0, last - i);
}

static void unmark_all_blanks(const chat_text *w, const tokenizer *tok, size_t from, chat_ids *out)
{
    for (size_t i = from, k = 0; i < out->tokens.n; i++) {
        size_t next = i + 1 < out->tokens.n ? out->tokens.starts[i + 1] : w->text.size;
        while (k < w->trained.n && w->trained.at[k].end <= out->tokens.starts[i])
            k++;
        bool inside = k < w->trained.n && w->trained.at[k].begin <= out->tokens.starts[i];
        if (inside && next >= w->trained.at[k].end) unmark_blanks(w, tok, from, i, out);
    }
}

/* A mark takes the tokens that it reaches into, as char_to_token in transformers. */
static void widen(chat_text *w, const chat_ids *out, size_t from)
{
    for (size_t i = from, k = 0; i < out->tokens.n; i++) {
        size_t next = i + 1 < out->tokens.n ? out->tokens.starts[i + 1] : w->text.size;
        if (k < w->trained.n && out->tokens.starts[i] < w->trained.at[k].begin && next > w->trained.at[k].begin)
            w->trained.at[k].begin = (uint32_t)out->tokens.starts[i];
        while (k < w->trained.n && w->trained.at[k].end <= next)
            k++;
    }
}

nrl_status chat_render_own(const chat_template *t, const tokenizer *tok, tokenizer_scratch *scratch,
                           const chat_conversation *c, chat_ids *out)
{
    chat_text w = {0};
    bool exact = false;
    size_t from = out->tokens.n;
    out->tokens.want_starts = true;
    nrl_status st = chat_own_write(t->own, c, &w.text, c->add_generation_prompt ? NULL : &w.trained, &exact);
    const char *text = w.text.text ? w.text.text : "";
    if (st == NRL_OK) st = tokenizer_encode(tok, scratch, text, w.text.size, 0, &out->tokens);
    if (st == NRL_OK) {
        if (exact) widen(&w, out, from);
        chat_mark(&w, from, out);
        if (!exact) unmark_all_blanks(&w, tok, from, out);
    }
    buffer_free(&w.text);
    free(w.trained.at);
    return st;
}

/* What an answer is trained to end with, if that is a special token. */
int32_t chat_end_of_own(const chat_template *t, const tokenizer *tok)
{
    static const chat_message messages[] = {{.role = "user", .content = "a", .content_size = 1},
                                            {.role = "assistant", .content = "b", .content_size = 1}};
    const chat_conversation c = {.messages = messages, .n = 2};
    tokenizer_scratch *scratch = tokenizer_scratch_create();
    chat_ids ids = {0};
    int32_t end = TOKENIZER_NONE;
    if (chat_render_own(t, tok, scratch, &c, &ids) == NRL_OK)
        for (size_t i = 0; i < ids.tokens.n; i++)
            if (ids.trained[i]) end = ids.tokens.ids[i];
    chat_ids_free(&ids);
    tokenizer_scratch_destroy(scratch);
    return end != TOKENIZER_NONE && tokenizer_is_special(tok, end) ? end : TOKENIZER_NONE;
}
