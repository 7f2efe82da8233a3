/*
 * chat.c - see chat.h. The conversation is rendered to one text, which is encoded once, so the ids are those of the
 * rendered text. The position at which a token begins decides whether the token is trained.
 */
#include "tokens/chat.h"
#include "tokens/written.h"
#include <stdlib.h>
#include <string.h>

bool chat_template_reads_keys(const chat_template *t)
{
    return t->table->reads_keys && t->table->reads_keys(t->self);
}

/* ---- from spans of a text to trained tokens ---- */

typedef struct {
    nrl_text text;
    nrl_spans trained;
} chat_text;

static bool chat_blank_char(char c)
{
    return c == ' ' || (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x1f);
}

nrl_status chat_ids_reserve_marks(chat_ids *ids)
{
    if (ids->room >= ids->tokens.n) return NRL_OK;
    void *trained = mem_try_grow(ids->trained, ids->tokens.room, "the marks of trained tokens");
    if (!trained) return NRL_ERR_MEMORY;
    ids->trained = trained;
    ids->room = ids->tokens.room;
    return NRL_OK;
}

static void chat_mark(const chat_text *w, size_t from, chat_ids *out)
{
    size_t k = 0;
    for (size_t i = from; i < out->tokens.n; i++) {
        size_t start = out->tokens.starts[i];
        while (k < w->trained.n && w->trained.at[k].end <= start)
            k++;
        out->trained[i] = k < w->trained.n && w->trained.at[k].begin <= start;
    }
}

static bool chat_is_blank(const char *text, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (!chat_blank_char(text[i])) return false;
    return true;
}

/* The white space that a template writes after an end-of-turn token does not belong to the turn. `last` is the last
 * token of the turn. */
static void chat_unmark_blanks(const chat_text *w, const tokenizer *tok, size_t from, size_t last, chat_ids *out)
{
    size_t i = last, end = last + 1 < out->tokens.n ? out->tokens.starts[last + 1] : w->text.b.size;
    const int32_t *ids = out->tokens.ids;
    while (i > from && out->trained[i] && !tokenizer_is_special(tok, ids[i]) && !tokenizer_is_eos(tok, ids[i]) &&
           chat_is_blank(w->text.b.text + out->tokens.starts[i], end - out->tokens.starts[i]))
        end = out->tokens.starts[i--];
    bool special = tokenizer_is_special(tok, ids[i]) || tokenizer_is_eos(tok, ids[i]);
    if (out->trained[i] && special) memset(out->trained + i + 1, 0, last - i);
}

static void chat_unmark_all_blanks(const chat_text *w, const tokenizer *tok, size_t from, chat_ids *out)
{
    for (size_t i = from, k = 0; i < out->tokens.n; i++) {
        size_t next = i + 1 < out->tokens.n ? out->tokens.starts[i + 1] : w->text.b.size;
        while (k < w->trained.n && w->trained.at[k].end <= out->tokens.starts[i])
            k++;
        bool inside = k < w->trained.n && w->trained.at[k].begin <= out->tokens.starts[i];
        if (inside && next >= w->trained.at[k].end) chat_unmark_blanks(w, tok, from, i, out);
    }
}

/* A span includes a token that it begins inside, as char_to_token does in transformers. */
static void chat_widen(chat_text *w, const chat_ids *out, size_t from)
{
    for (size_t i = from, k = 0; i < out->tokens.n; i++) {
        size_t next = i + 1 < out->tokens.n ? out->tokens.starts[i + 1] : w->text.b.size;
        if (k < w->trained.n && out->tokens.starts[i] < w->trained.at[k].begin && next > w->trained.at[k].begin)
            w->trained.at[k].begin = out->tokens.starts[i];
        while (k < w->trained.n && w->trained.at[k].end <= next)
            k++;
    }
}

/* ---- rendering ---- */

nrl_status chat_render_conversation(const chat_template *t, tokenizer_scratch *scratch, const nrl_conversation *c,
                                    chat_ids *out)
{
    chat_text w = {.text.b.what = "a rendered conversation"};
    nrl_rendering r = {.size = sizeof r, .text = &w.text, .trained = c->add_generation_prompt ? NULL : &w.trained};
    nrl_conversation given = *c;
    size_t from = out->tokens.n;
    given.size = sizeof given;
    given.message_size = sizeof *given.messages;
    NRL_ASSERT((t->tok != NULL), ==, true);
    out->tokens.want_starts = true;
    nrl_status st = t->table->render(t->self, &given, &r);
    if (st == NRL_OK && w.trained.lacks_memory)
        st = mem_fail(w.trained.room * 2, "the trained spans of a conversation");
    if (st == NRL_OK) st = buffer_check(&w.text.b);
    if (st == NRL_ERR_CONFIG) nrl_fail(st, "%s%s", nrl_error_text(), t->hint);
    bool bos = st == NRL_OK && r.bos && t->tok->info.bos != NRL_TOKEN_NONE;
    if (bos) nrl_token_ids_push(&out->tokens, t->tok->info.bos, 0);
    const char *text = w.text.b.text ? w.text.b.text : "";
    if (st == NRL_OK) st = tokenizer_encode(t->tok, scratch, text, w.text.b.size, 0, &out->tokens);
    if (st == NRL_OK) st = chat_ids_reserve_marks(out);
    if (st == NRL_OK) {
        if (r.span_rule == NRL_SPANS_TOUCH) chat_widen(&w, out, from);
        chat_mark(&w, from, out);
        if (r.span_rule == NRL_SPANS_TURN) chat_unmark_all_blanks(&w, t->tok, from, out);
        if (bos) out->trained[from] = 0;
    }
    buffer_free(&w.text.b);
    free(w.trained.at);
    return st;
}

nrl_status chat_render(const chat_template *t, tokenizer_scratch *scratch, const nrl_message *messages, size_t n,
                       bool add_generation_prompt, chat_ids *out)
{
    const nrl_conversation c = {.messages = messages, .n = n, .add_generation_prompt = add_generation_prompt};
    return chat_render_conversation(t, scratch, &c, out);
}

void chat_ids_free(chat_ids *ids)
{
    nrl_token_ids_free(&ids->tokens);
    free(ids->trained);
    *ids = (chat_ids){0};
}

/* If the plugin does not tell it: the last trained token of an answer, if it is a special token. */
int32_t chat_template_end(const chat_template *t)
{
    static const nrl_message messages[] = {{.role = "user", .content = "a", .content_size = 1},
                                           {.role = "assistant", .content = "b", .content_size = 1}};
    if (t->table->end_token) return t->table->end_token(t->self);
    const nrl_conversation c = {.messages = messages, .n = 2};
    tokenizer_scratch *scratch = tokenizer_scratch_create(t->tok);
    chat_ids ids = {0};
    int32_t end = NRL_TOKEN_NONE;
    if (chat_render_conversation(t, scratch, &c, &ids) == NRL_OK)
        for (size_t i = 0; i < ids.tokens.n; i++)
            if (ids.trained[i]) end = ids.tokens.ids[i];
    chat_ids_free(&ids);
    tokenizer_scratch_destroy(scratch);
    return end != NRL_TOKEN_NONE && tokenizer_is_special(t->tok, end) ? end : NRL_TOKEN_NONE;
}
