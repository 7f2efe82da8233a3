/*
 * chat.c - the built-in chat templates as tables, and writing a conversation by them. The whole
 * conversation becomes one text that is encoded once, so ids are those of the rendered text;
 * where each token begins then says whether it is trained. A template in Jinja is chat_own.c's; only
 * its text and the stretches in it come from there.
 */
#include "text/chat.h"
#include "base/buffer.h"
#include "base/suggest.h"
#include "text/chat_parts.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TURN(r, o, c, a)                                                                           \
    {                                                                                              \
        .role = r, .open = o, .lead = "", .close = c, .after = a                                   \
    }

static const turn chatml_turns[] = {
    TURN("system", "<|im_start|>system\n", "<|im_end|>", "\n"),
    TURN("user", "<|im_start|>user\n", "<|im_end|>", "\n"),
    TURN("assistant", "<|im_start|>assistant\n", "<|im_end|>", "\n"),
    TURN("tool", "<|im_start|>tool\n", "<|im_end|>", "\n"),
    {0}};

#define LLAMA3_TURN(r) TURN(r, "<|start_header_id|>" r "<|end_header_id|>\n\n", "<|eot_id|>", "")
static const turn llama3_turns[] = {LLAMA3_TURN("system"),    LLAMA3_TURN("user"),
                                    LLAMA3_TURN("assistant"), LLAMA3_TURN("ipython"),
                                    LLAMA3_TURN("tool"),      {0}};

/* Mistral v1: the brackets are text. Tokenizers from v2 on have them as tokens. */
static const turn mistral_text_turns[] = {
    TURN("user", "\1[INST] ", " [/INST]", ""),
    {.role = "assistant", .open = "", .lead = " ", .after = "", .end_is_eos = true},
    {0}};
static const turn mistral_token_turns[] = {
    TURN("user", "[INST]\1", "[/INST]", ""),
    {.role = "assistant", .open = "", .lead = "\1", .after = "", .end_is_eos = true},
    {0}};

static const turn plain_turns[] = {
    TURN("system", "", "", "\n\n"),
    TURN("user", "User: ", "", "\n"),
    {.role = "assistant", .open = "Assistant:", .lead = " ", .after = "\n", .end_is_eos = true},
    {0}};

static const char *const chatml_tokens[] = {"<|im_start|>", "<|im_end|>", NULL};
static const char *const llama3_tokens[] = {"<|start_header_id|>", "<|end_header_id|>",
                                            "<|eot_id|>", NULL};
static const char *const no_tokens[] = {NULL};

static const chat_template mistral_tokens = {.name = "mistral",
                                             .bos = BOS_ALWAYS,
                                             .system = SYSTEM_IN_LAST_USER,
                                             .alternates = true,
                                             .tokens = no_tokens,
                                             .turns = mistral_token_turns};

static const chat_template templates[] = {
    {.name = "chatml", .bos = BOS_AS_TOKENIZER, .tokens = chatml_tokens, .turns = chatml_turns},
    {.name = "llama3",
     .bos = BOS_ALWAYS,
     .trims = true,
     .tokens = llama3_tokens,
     .turns = llama3_turns},
    {.name = "mistral",
     .bos = BOS_ALWAYS,
     .system = SYSTEM_IN_FIRST_USER,
     .alternates = true,
     .tokens = no_tokens,
     .turns = mistral_text_turns,
     .variant_token = "[INST]",
     .variant = &mistral_tokens},
    {.name = "plain",
     .bos = BOS_AS_TOKENIZER,
     .begins_with_word = true,
     .tokens = no_tokens,
     .turns = plain_turns},
};
enum { N_TEMPLATES = sizeof templates / sizeof *templates };

const char *chat_template_names(void)
{
    return "chatml, llama3, mistral, plain";
}

nrl_status chat_template_find(const char *name, const chat_template **out)
{
    for (int i = 0; i < N_TEMPLATES; i++)
        if (!strcmp(templates[i].name, name)) {
            *out = &templates[i];
            return NRL_OK;
        }
    return nrl_fail(NRL_ERR_CONFIG, "unknown template '%s', expected one of: %s; auto, the tokenizer's own; or a file", name,
                    chat_template_names());
}

/* The rows that fit this tokenizer. */
const chat_template *chat_for_tokenizer(const chat_template *t, const tokenizer *tok)
{
    bool variant = t->variant && tokenizer_token_id(tok, t->variant_token) != TOKENIZER_NONE;
    return variant ? t->variant : t;
}

static const turn *find_turn(const chat_template *t, const char *role)
{
    for (const turn *row = t->turns; row->role; row++)
        if (!strcmp(row->role, role)) return row;
    return NULL;
}

nrl_status chat_template_check(const chat_template *template, const tokenizer *tok)
{
    const chat_template *t = chat_for_tokenizer(template, tok);
    if (t->own) return NRL_OK;
    for (const char *const *token = t->tokens; *token; token++) {
        int32_t id = tokenizer_token_id(tok, *token);
        if (id == TOKENIZER_NONE || !tok->words.entries[id].added)
            return nrl_fail(NRL_ERR_CONFIG,
                            "template '%s' needs the special token %s, which the "
                            "tokenizer does not have\nhint: data.template: plain needs none",
                            t->name, *token);
    }
    if (find_turn(t, "assistant")->end_is_eos && !tokenizer_n_eos(tok))
        return nrl_fail(NRL_ERR_CONFIG,
                        "template '%s' ends a turn with EOS, but the tokenizer names no "
                        "eos_token",
                        t->name);
    return NRL_OK;
}

/* ---- order of roles ---- */

enum { MAX_ROLES = 128 };

/* " system user assistant", into `out` [MAX_ROLES], which is zero. */
static const char *role_names(const chat_template *t, char *out)
{
    for (const turn *row = t->turns; row->role; row++)
        snprintf(out + strlen(out), MAX_ROLES - strlen(out), " %s", row->role);
    return out;
}

static bool is_role(const chat_message *m, const char *role)
{
    return !strcmp(m->role, role);
}

static nrl_status fail_role(const chat_template *t, const char *role, size_t i)
{
    suggestion near = {.word = role};
    for (const turn *row = t->turns; row->role; row++)
        suggest_offer(&near, row->role);
    return nrl_fail(NRL_ERR_DATA,
                    "messages[%zu]: unknown role '%s' for template '%s', expected one of:%s%s%s%s",
                    i, role, t->name, role_names(t, (char[MAX_ROLES]){0}),
                    near.best ? "\nhint: did you mean '" : "", near.best ? near.best : "",
                    near.best ? "'?" : "");
}

static nrl_status check_message(const chat_template *t, const chat_message *m, size_t i,
                                size_t n_systems)
{
    if (nrl_node_size(nrl_node_find(m->node, "tool_calls")))
        return nrl_fail(NRL_ERR_DATA,
                        "messages[%zu]: tool_calls: template '%s' does not write tool calls\n"
                        "data.template: auto, the tokenizer's own, may",
                        i, t->name);
    bool system = is_role(m, "system");
    if (t->system != SYSTEM_IS_A_TURN && system) {
        if (!i) return NRL_OK;
        return nrl_fail(NRL_ERR_DATA,
                        "messages[%zu]: role 'system', expected only as the first message "
                        "by template '%s'",
                        i, t->name);
    }
    if (!find_turn(t, m->role)) return fail_role(t, m->role, i);
    const char *expected = (i - n_systems) % 2 ? "assistant" : "user";
    if (t->alternates && strcmp(m->role, expected))
        return nrl_fail(NRL_ERR_DATA,
                        "messages[%zu]: role '%s', expected '%s': template '%s' alternates "
                        "user and assistant",
                        i, m->role, expected, t->name);
    return NRL_OK;
}

static nrl_status check_order(const chat_template *t, const chat_message *messages, size_t n)
{
    if (!n) return nrl_fail(NRL_ERR_DATA, "messages: expected at least one");
    size_t systems = t->system != SYSTEM_IS_A_TURN && is_role(&messages[0], "system");
    for (size_t i = 0; i < n; i++)
        NRL_TRY(check_message(t, &messages[i], i, systems));
    if (systems && n == 1)
        return nrl_fail(NRL_ERR_DATA,
                        "messages[0]: role 'system' alone, expected a user message for "
                        "template '%s'",
                        t->name);
    return NRL_OK;
}

/* ---- writing ---- */

typedef struct {
    chat_text out;
    bool space; /* \1 is a space */
    const char *eos;
} writer;

static void put(writer *w, const char *text)
{
    for (; *text; text++)
        if (*text != '\1' || w->space) buffer_add(&w->out.text, *text == '\1' ? " " : text, 1);
}

static void put_content(writer *w, const chat_template *t, const chat_message *m)
{
    const char *begin = m->content, *end = begin + m->content_size;
    while (t->trims && begin < end && chat_is_blank(*begin))
        begin++;
    while (t->trims && begin < end && chat_is_blank(end[-1]))
        end--;
    buffer_add(&w->out.text, begin, (size_t)(end - begin));
}

static void put_turn(writer *w, const chat_template *t, const chat_message *m,
                     const chat_message *system)
{
    const turn *row = find_turn(t, m->role);
    put(w, row->open);
    size_t begin = w->out.text.size;
    put(w, row->lead);
    if (system) {
        put_content(w, t, system);
        put(w, "\n\n");
    }
    put_content(w, t, m);
    put(w, row->end_is_eos ? w->eos : row->close);
    if (is_role(m, "assistant") && m->train != CHAT_TRAIN_NO)
        spans_push(&w->out.trained, begin, w->out.text.size);
    put(w, row->after);
}

static size_t last_user(const chat_message *messages, size_t n)
{
    while (n-- > 1)
        if (is_role(&messages[n], "user")) return n;
    return 0;
}

/* SentencePiece style tokenizers write a space as a mark; most put one before every stretch. */
bool chat_needs_space(const tokenizer *tok)
{
    bool marks = tok->edit.replacement != NULL;
    bool puts = tok->edit.replacement && tok->edit.prepend && !tok->edit.first_only;
    for (size_t i = 0; i < tok->n_normal; i++) {
        const normal_step *s = &tok->normal[i];
        if (s->kind == NORMAL_PREPEND) puts = true;
        if (s->kind == NORMAL_REPLACE && s->text_size == 1 && *s->text == ' ') marks = true;
    }
    return marks && !puts;
}

static nrl_status write_all(const chat_template *t, const tokenizer *tok,
                            const chat_message *messages, size_t n, bool add_generation_prompt,
                            writer *w)
{
    NRL_TRY(check_order(t, messages, n));
    const char *eos = tokenizer_token_text(tok, tokenizer_eos(tok));
    w->eos = eos ? eos : "";
    w->space = chat_needs_space(tok);
    bool merged = t->system != SYSTEM_IS_A_TURN && is_role(&messages[0], "system");
    size_t host = !merged ? 0 : t->system == SYSTEM_IN_FIRST_USER ? 1 : last_user(messages, n);
    for (size_t i = merged; i < n; i++)
        put_turn(w, t, &messages[i], merged && i == host ? &messages[0] : NULL);
    if (add_generation_prompt) put(w, find_turn(t, "assistant")->open);
    return NRL_OK;
}

bool chat_wants_bos(const chat_template *t, const tokenizer *tok)
{
    if (tokenizer_bos(tok) == TOKENIZER_NONE) return false;
    return t->bos == BOS_ALWAYS || (t->bos == BOS_AS_TOKENIZER && tokenizer_adds_bos(tok));
}

nrl_status chat_render_conversation(const chat_template *template, const tokenizer *tok,
                                    tokenizer_scratch *scratch, const chat_conversation *c, chat_ids *out)
{
    if (template->own) return chat_render_own(template, tok, scratch, c, out);
    return chat_render(template, tok, scratch, c->messages, c->n, c->add_generation_prompt, out);
}

nrl_status chat_render(const chat_template *template, const tokenizer *tok,
                       tokenizer_scratch *scratch, const chat_message *messages, size_t n,
                       bool add_generation_prompt, chat_ids *out)
{
    const chat_conversation c = {.messages = messages, .n = n, .add_generation_prompt = add_generation_prompt};
    if (template->own) return chat_render_own(template, tok, scratch, &c, out);
    NRL_TRY(chat_template_check(template, tok));
    const chat_template *t = chat_for_tokenizer(template, tok);
    writer w = {0};
    out->tokens.want_starts = true;
    size_t from = out->tokens.n;
    nrl_status st = write_all(t, tok, messages, n, add_generation_prompt, &w);
    if (st == NRL_OK) {
        bool bos = chat_wants_bos(t, tok);
        if (bos) tokenizer_ids_push(&out->tokens, tokenizer_bos(tok), 0);
        st = tokenizer_encode(tok, scratch, w.out.text.text ? w.out.text.text : "", w.out.text.size, 0,
                              &out->tokens);
        chat_mark(&w.out, from, out);
        if (bos) out->trained[from] = 0;
    }
    buffer_free(&w.out.text);
    free(w.out.trained.at);
    return st;
}

nrl_status chat_render_text(const chat_template *template, const tokenizer *tok,
                            const chat_message *messages, size_t n, bool add_generation_prompt,
                            char **text)
{
    const chat_template *t = chat_for_tokenizer(template, tok);
    const chat_conversation c = {.messages = messages, .n = n, .add_generation_prompt = add_generation_prompt};
    writer w = {0};
    bool exact;
    if (t->own) {
        nrl_status own = chat_own_write(t->own, &c, &w.out.text, NULL, &exact);
        *text = buffer_take(&w.out.text);
        if (own == NRL_OK) return NRL_OK;
        free(*text);
        return own;
    }
    if (chat_wants_bos(t, tok)) buffer_puts(&w.out.text, tokenizer_token_text(tok, tokenizer_bos(tok)));
    nrl_status st = write_all(t, tok, messages, n, add_generation_prompt, &w);
    free(w.out.trained.at);
    if (st == NRL_OK)
        *text = buffer_take(&w.out.text);
    else
        buffer_free(&w.out.text);
    return st;
}

void chat_ids_free(chat_ids *ids)
{
    tokenizer_ids_free(&ids->tokens);
    free(ids->trained);
    *ids = (chat_ids){0};
}

int32_t chat_template_end(const chat_template *template, const tokenizer *tok)
{
    if (template->own) return chat_end_of_own(template, tok);
    for (const turn *t = template->turns; t->role; t++)
        if (!strcmp(t->role, "assistant") && !t->end_is_eos && t->close && *t->close)
            return tokenizer_token_id(tok, t->close);
    return TOKENIZER_NONE;
}
