/*
 * builtin.c - common chat templates as tables, and rendering of conversations with them: chatml,
 * llama3, mistral, plain.
 */
#include "builtin.h"
#include "base/arena.h"
#include "base/suggest.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TURN(r, o, c, a)                                                                                               \
    {                                                                                                                  \
        .role = (r), .open = (o), .lead = "", .close = (c), .after = (a)                                               \
    }

static const turn chatml_turns[] = {TURN("system", "<|im_start|>system\n", "<|im_end|>", "\n"),
                                    TURN("user", "<|im_start|>user\n", "<|im_end|>", "\n"),
                                    TURN("assistant", "<|im_start|>assistant\n", "<|im_end|>", "\n"),
                                    TURN("tool", "<|im_start|>tool\n", "<|im_end|>", "\n"),
                                    {0}};

#define LLAMA3_TURN(r) TURN(r, "<|start_header_id|>" r "<|end_header_id|>\n\n", "<|eot_id|>", "")
static const turn llama3_turns[] = {LLAMA3_TURN("system"),  LLAMA3_TURN("user"), LLAMA3_TURN("assistant"),
                                    LLAMA3_TURN("ipython"), LLAMA3_TURN("tool"), {0}};

/* Mistral v1: the brackets are plain text. They are tokens of tokenizers from v2 on. */
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
static const char *const llama3_tokens[] = {"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", NULL};
static const char *const no_tokens[] = {NULL};

static const chat_format mistral_tokens = {.name = "mistral",
                                           .bos = BOS_ALWAYS,
                                           .system = SYSTEM_IN_LAST_USER,
                                           .alternates = true,
                                           .tokens = no_tokens,
                                           .turns = mistral_token_turns};

static const chat_format templates[] = {
    {.name = "chatml", .bos = BOS_AS_TOKENIZER, .tokens = chatml_tokens, .turns = chatml_turns},
    {.name = "llama3", .bos = BOS_ALWAYS, .trims = true, .tokens = llama3_tokens, .turns = llama3_turns},
    {.name = "mistral",
     .bos = BOS_ALWAYS,
     .system = SYSTEM_IN_FIRST_USER,
     .alternates = true,
     .tokens = no_tokens,
     .turns = mistral_text_turns,
     .variant_token = "[INST]",
     .variant = &mistral_tokens},
    {.name = "plain", .bos = BOS_AS_TOKENIZER, .begins_with_word = true, .tokens = no_tokens, .turns = plain_turns},
};
enum { N_TEMPLATES = sizeof templates / sizeof *templates };

static const char *const builtin_words[] = {"chatml", "llama3", "mistral", "plain", NULL};

static const chat_format *builtin_find(const char *word)
{
    for (int i = 0; i < N_TEMPLATES; i++)
        if (!strcmp(templates[i].name, word)) return &templates[i];
    return NULL;
}

static const turn *find_turn(const chat_format *t, const char *role)
{
    for (const turn *row = t->turns; row->role; row++)
        if (!strcmp(row->role, role)) return row;
    return NULL;
}

/* ---- order of roles ---- */

enum { MAX_ROLES = 128 };

/* Writes " system user assistant" to `out` [MAX_ROLES], which is zeroed. */
static const char *role_names(const chat_format *t, char *out)
{
    for (const turn *row = t->turns; row->role; row++)
        snprintf(out + strlen(out), MAX_ROLES - strlen(out), " %s", row->role);
    return out;
}

/* What OpenAI's API calls the system message since its reasoning models. */
static const char *role_of(const nrl_message *m)
{
    return strcmp(m->role, SYSTEM_ALIAS) ? m->role : "system";
}

static bool is_role(const nrl_message *m, const char *role)
{
    return !strcmp(role_of(m), role);
}

static nrl_status fail_role(const chat_format *t, const char *role, size_t i)
{
    suggestion near = {.word = role};
    for (const turn *row = t->turns; row->role; row++)
        suggest_offer(&near, row->role);
    return nrl_fail(NRL_ERR_DATA, "messages[%zu]: unknown role '%s' for template '%s', expected one of:%s%s%s%s", i,
                    role, t->name, role_names(t, (char[MAX_ROLES]){0}), near.best ? "\nhint: did you mean '" : "",
                    near.best ? near.best : "", near.best ? "'?" : "");
}

static nrl_status check_message(const chat_format *t, const nrl_message *m, size_t i, size_t n_systems)
{
    if (nrl_node_size(nrl_node_find(m->node, "tool_calls")))
        return nrl_fail(NRL_ERR_DATA,
                        "messages[%zu]: tool_calls: template '%s' does not support tool calls\n"
                        "hint: data.template: auto uses the template of the tokenizer, which may support them",
                        i, t->name);
    bool system = is_role(m, "system");
    if (t->system != SYSTEM_IS_A_TURN && system) {
        if (!i) return NRL_OK;
        return nrl_fail(NRL_ERR_DATA,
                        "messages[%zu]: role '%s', expected only as the first message "
                        "by template '%s'",
                        i, m->role, t->name);
    }
    if (!find_turn(t, role_of(m))) return fail_role(t, m->role, i);
    const char *expected = (i - n_systems) % 2 ? "assistant" : "user";
    if (t->alternates && strcmp(m->role, expected))
        return nrl_fail(NRL_ERR_DATA,
                        "messages[%zu]: role '%s', expected '%s': template '%s' alternates "
                        "user and assistant",
                        i, m->role, expected, t->name);
    return NRL_OK;
}

static const nrl_message *message_at(const nrl_conversation *c, size_t i)
{
    return (const void *)((const char *)c->messages + i * c->message_size);
}

static nrl_status check_order(const chat_format *t, const nrl_conversation *c)
{
    if (!c->n) return nrl_fail(NRL_ERR_DATA, "messages: expected at least one");
    size_t systems = t->system != SYSTEM_IS_A_TURN && is_role(message_at(c, 0), "system");
    for (size_t i = 0; i < c->n; i++)
        NRL_TRY(check_message(t, message_at(c, i), i, systems));
    if (systems && c->n == 1)
        return nrl_fail(NRL_ERR_DATA,
                        "messages[0]: role '%s' alone, expected a user message for "
                        "template '%s'",
                        message_at(c, 0)->role, t->name);
    return NRL_OK;
}

/* ---- writing ---- */

typedef struct {
    const builtin *of;
    buffer text;
    nrl_spans *trained; /* NULL = not requested */
} writer;

static void put(writer *w, const char *text)
{
    for (; *text; text++)
        if (*text != '\1' || w->of->space) buffer_add(&w->text, *text == '\1' ? " " : text, 1);
}

static bool is_blank(char c)
{
    return c == ' ' || (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x1f);
}

static void put_content(writer *w, const chat_format *t, const nrl_message *m)
{
    const char *begin = m->content, *end = begin + m->content_size;
    while (t->trims && begin < end && is_blank(*begin))
        begin++;
    while (t->trims && begin < end && is_blank(end[-1]))
        end--;
    buffer_add(&w->text, begin, (size_t)(end - begin));
}

/* `is_trained`: the turn comes after the prompt. */
static void put_turn(writer *w, const nrl_message *m, const nrl_message *system, bool is_trained)
{
    const chat_format *t = w->of->format;
    const turn *row = find_turn(t, role_of(m));
    put(w, row->open);
    size_t begin = w->text.size;
    put(w, row->lead);
    if (system) {
        put_content(w, t, system);
        put(w, "\n\n");
    }
    put_content(w, t, m);
    put(w, row->end_is_eos ? w->of->eos : row->close);
    if (w->trained && is_trained && is_role(m, "assistant") && m->train != NRL_MESSAGE_UNTRAINED)
        nrl_spans_add(w->trained, begin, w->text.size);
    put(w, row->after);
}

static size_t last_user(const nrl_conversation *c)
{
    for (size_t i = c->n; i-- > 1;)
        if (is_role(message_at(c, i), "user")) return i;
    return 0;
}

static nrl_status template_render(void *self, const nrl_conversation *c, nrl_rendering *out)
{
    const builtin *b = self;
    const chat_format *t = b->format;
    writer w = {.of = b, .trained = out->trained};
    NRL_TRY(check_order(t, c));
    bool merged = t->system != SYSTEM_IS_A_TURN && is_role(message_at(c, 0), "system");
    size_t host = !merged ? 0 : t->system == SYSTEM_IN_FIRST_USER ? 1 : last_user(c);
    for (size_t i = merged; i < c->n; i++)
        put_turn(&w, message_at(c, i), merged && i == host ? message_at(c, 0) : NULL, i >= c->n_prompt);
    if (c->add_generation_prompt) put(&w, find_turn(t, "assistant")->open);
    out->bos = b->bos;
    out->span_rule = NRL_SPANS_BEGIN;
    if (w.text.size) nrl_text_add(out->text, w.text.text, w.text.size);
    buffer_free(&w.text);
    return NRL_OK;
}

/* ---- the table ---- */

typedef struct {
    const char *format;
} builtin_options;

static const nrl_option builtin_rows[] = {
    NRL_OPT_STR(builtin_options, format, "", "chatml, llama3, mistral or plain; the name alone also selects it"),
};

static int32_t template_probe(const nrl_template_source *source)
{
    return source->word && builtin_find(source->word) ? NRL_PROBE_YES : NRL_PROBE_NO;
}

const char *builtin_token_text(const builtin *b, int32_t id)
{
    size_t size;
    uint32_t flags;
    return b->tokenizer->table->token_text(b->tokenizer->self, id, &size, &flags);
}

static int32_t token_id(const builtin *b, const char *text)
{
    return b->tokenizer->table->token_id(b->tokenizer->self, text, strlen(text));
}

static nrl_status template_open(const void *options, const nrl_template_source *source, void **self)
{
    const builtin_options *o = options;
    const char *word = source->word ? source->word : o->format;
    const chat_format *format = builtin_find(word);
    if (!format)
        return nrl_fail(NRL_ERR_CONFIG, "unknown template '%s', expected one of: chatml, llama3, mistral, plain", word);
    if (source->text)
        return nrl_fail(NRL_ERR_CONFIG, "cannot open template '%s': template '%s' reads no text", source->label, word);
    builtin *b = mem_alloc(sizeof *b);
    *b = (builtin){.format = format, .tokenizer = source->tokenizer, .eos = ""};
    *self = b;
    if (!b->tokenizer) return NRL_OK;
    const nrl_tokenizer_info *info = b->tokenizer->info;
    if (format->variant && token_id(b, format->variant_token) != NRL_TOKEN_NONE) b->format = format->variant;
    const char *eos = builtin_token_text(b, info->eos);
    b->eos = eos ? eos : "";
    b->space = info->space_after_special;
    b->bos = info->bos != NRL_TOKEN_NONE &&
             (b->format->bos == BOS_ALWAYS || (b->format->bos == BOS_AS_TOKENIZER && info->adds_bos));
    if (!find_turn(b->format, "assistant")->end_is_eos || info->n_eos) return NRL_OK;
    free(b);
    return nrl_fail(NRL_ERR_CONFIG, "template '%s' ends a turn with EOS, but the tokenizer has no eos_token",
                    format->name);
}

static void template_close(void *self)
{
    free(self);
}

static const char *const *template_required_tokens(void *self)
{
    const builtin *b = self;
    return b->format->tokens;
}

static int32_t template_end_token(void *self)
{
    const builtin *b = self;
    const turn *t = find_turn(b->format, "assistant");
    return t->end_is_eos ? NRL_TOKEN_NONE : token_id(b, t->close);
}

static nrl_status template_as_jinja(void *self, nrl_text *out)
{
    buffer text = {0};
    builtin_as_jinja(self, &text);
    nrl_text_add(out, text.text, text.size);
    buffer_free(&text);
    return NRL_OK;
}

static const nrl_template builtin_template = {
    NRL_PLUGIN(NRL_KIND_TEMPLATE, nrl_template, builtin_options, builtin_rows, "builtin", "0.1",
               "common chat templates by name: chatml, llama3, mistral, plain"),
    .words = builtin_words,
    .probe = template_probe,
    .open = template_open,
    .close = template_close,
    .render = template_render,
    .required_tokens = template_required_tokens,
    .end_token = template_end_token,
    .as_jinja = template_as_jinja,
};

NRL_EXPORT(builtin_template)
