/*
 * conversation.c - the jinja template plugin: a chat template from a tokenizer or a file, with the
 * semantics of transformers. The template gets the variables that transformers passes: messages
 * with all keys of the row that are not null, tools, documents (none), add_generation_prompt, the
 * named special tokens, the option `variables`, and the chat_template_kwargs of the row.
 *
 * Trained spans are derived from the template itself, never guessed:
 * - from its {% generation %} marks, if it has any (transformers' return_assistant_tokens_mask);
 * - otherwise turn i extends from the end of messages[0..i) with the generation prompt to the end of
 *   messages[0..i], and each of these renderings must be a prefix of the whole rendering. A prompt
 *   that continues differently from the turn (a <think> opened for the model) counts up to the first
 *   difference, as in TRL, if the messages before it are rendered the same.
 * An EOS after the last message of a rendering, where other messages have none, is ignored. A
 * template without that property (one that drops the reasoning of earlier turns) is an error.
 */
#include "base/buffer.h"
#include "base/json.h"
#include "base/suggest.h"
#include "jinja.h"
#include <ctype.h>
#include <nrl/template.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

typedef struct {
    const nrl_node *variables;
} jinja_options;

static const nrl_option jinja_rows[] = {
    NRL_OPT_NODE(jinja_options, variables, "{}",
                 "variables of the template, such as {enable_thinking: false}; those of a row "
                 "(chat_template_kwargs) take precedence"),
};

typedef struct {
    jinja *plain, *with_tools;           /* the second may be NULL */
    const nrl_open_tokenizer *tokenizer; /* NULL: nothing is rendered */
    const nrl_node *variables;           /* of the options */
    char *text;
    int64_t now; /* the time when the template was opened, for strftime_now */
} conversation_template;

typedef struct {
    jinja_span *at;
    size_t n, room;
} span_list;

static void spans_push(span_list *s, size_t begin, size_t end)
{
    if (s->n == s->room) {
        s->room = s->room ? s->room * 2 : 16;
        s->at = mem_realloc(s->at, s->room * sizeof *s->at);
    }
    s->at[s->n++] = (jinja_span){begin, end};
}

enum { MAX_VARIABLES = 64, MAX_GIVEN = 32 }; /* per row */

/* An exported template sets them by constants of Jinja. */
static nrl_status template_check(const void *options)
{
    const nrl_node *map = ((const jinja_options *)options)->variables;
    if (nrl_node_kind(map) != NRL_NODE_MAP || nrl_node_size(map) > MAX_GIVEN)
        return nrl_fail(NRL_ERR_CONFIG, "variables: expected a map {NAME: VALUE} of at most %d variables", MAX_GIVEN);
    for (size_t i = 0; i < nrl_node_size(map); i++) {
        static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789";
        const char *name = nrl_node_key(map, i);
        const nrl_node_type kind = nrl_node_kind(nrl_node_at(map, i));
        if (!*name || name[strspn(name, letters)] || isdigit((unsigned char)*name))
            return nrl_fail(NRL_ERR_CONFIG, "variables: '%s' is not a name; expected letters, digits and _", name);
        if (kind != NRL_NODE_BOOL && kind != NRL_NODE_INT && kind != NRL_NODE_FLOAT && kind != NRL_NODE_STRING)
            return nrl_fail(NRL_ERR_CONFIG, "variables.%s: expected a text, a number, true or false", name);
    }
    return NRL_OK;
}

static void template_close(void *self)
{
    conversation_template *t = self;
    jinja_free(t->plain);
    jinja_free(t->with_tools);
    free(t->text);
    free(t);
}

static nrl_status template_open(const void *options, const nrl_template_source *source, void **self)
{
    if (!source->text)
        return nrl_fail(NRL_ERR_CONFIG,
                        "cannot open template '%s': it has no text; expected a file or the template of the tokenizer",
                        source->label);
    conversation_template *t = mem_alloc(sizeof *t);
    t->tokenizer = source->tokenizer;
    t->variables = ((const jinja_options *)options)->variables;
    t->text = mem_strdup(source->text);
    t->now = (int64_t)time(NULL);
    const char *tools = source->tools_text;
    nrl_status st = jinja_compile(source->label, t->text, strlen(t->text), &t->plain);
    if (st == NRL_OK && tools) st = jinja_compile(source->label, tools, strlen(tools), &t->with_tools);
    if (st == NRL_OK)
        *self = t;
    else
        template_close(t);
    return st;
}

static const char *named_token(const conversation_template *t, const char *name)
{
    const nrl_tokenizer_info *info = t->tokenizer->info;
    for (uint32_t i = 0; i < info->n_named; i++) {
        const nrl_named_token *n = (const void *)((const char *)info->named + (size_t)i * info->named_size);
        if (!strcmp(n->name, name)) return n->text;
    }
    return NULL;
}

/* ---- variables ---- */

/* The reasoning of a message under the names that templates use, as in transformers. */
static const nrl_node *find_reasoning(const nrl_node *node)
{
    static const char *const names[] = {"reasoning_content", "thinking", "reasoning"};
    for (int i = 0; i < 3; i++) {
        const nrl_node *found = nrl_node_find(node, names[i]);
        if (found && nrl_node_kind(found) != NRL_NODE_NULL) return found;
    }
    return NULL;
}

/* A template that reads the text of content parts gets lists of parts; other templates get the
 * joined texts, as built-in templates do. */
static jinja_value content_of(const jinja *t, arena *a, const nrl_message *m)
{
    const nrl_node *content = nrl_node_find(m->node, "content");
    if (nrl_node_kind(content) == NRL_NODE_LIST && jinja_mentions(t, "text")) return jinja_from_node(a, content);
    return jinja_string(m->content, m->content_size);
}

static jinja_value key_of(const char *text)
{
    return jinja_string(text, strlen(text));
}

/* Adds one key of the message: role and content as they were read, even if the row calls them from
 * and value. */
static void add_member(const jinja *t, arena *a, const nrl_message *m, size_t i, bool shared, jinja_map *to)
{
    const char *key = nrl_node_key(m->node, i);
    const nrl_node *value = nrl_node_at(m->node, i);
    bool role = !strcmp(key, shared ? "from" : "role"), content = !strcmp(key, shared ? "value" : "content");
    bool hidden = shared && (!strcmp(key, "role") || !strcmp(key, "content"));
    const bool is_null = nrl_node_kind(value) == NRL_NODE_NULL;
    if (hidden || (is_null && !content)) return;
    if (content && is_null) /* of a message with tool calls: templates ask whether it is none */
        jinja_map_add(a, to, key_of("content"), jinja_from_node(a, value));
    else if (role)
        jinja_map_add(a, to, key_of("role"), key_of(m->role));
    else if (content)
        jinja_map_add(a, to, key_of("content"), content_of(t, a, m));
    else if (!strcmp(key, "thinking"))
        jinja_map_set(a, to, key_of(key), jinja_from_node(a, value));
    else
        jinja_map_add(a, to, key_of(key), jinja_from_node(a, value));
}

static jinja_value message_value(const jinja *t, arena *a, const nrl_message *m)
{
    const nrl_node *reasoning = find_reasoning(m->node);
    bool shared = nrl_node_find(m->node, "from") && !nrl_node_find(m->node, "role");
    jinja_value v = jinja_map_new(a);
    if (reasoning) jinja_map_add(a, v.map, key_of("thinking"), jinja_from_node(a, reasoning));
    for (size_t i = 0; i < nrl_node_size(m->node); i++)
        add_member(t, a, m, i, shared, v.map);
    if (reasoning) jinja_map_set(a, v.map, key_of("reasoning_content"), jinja_from_node(a, reasoning));
    if (m->node) return v;
    jinja_map_add(a, v.map, key_of("role"), key_of(m->role));
    jinja_map_add(a, v.map, key_of("content"), jinja_string(m->content, m->content_size));
    return v;
}

static const nrl_message *message_at(const nrl_conversation *c, size_t i)
{
    return (const void *)((const char *)c->messages + i * c->message_size);
}

typedef struct {
    const jinja *code;
    arena memory;
    jinja_value *messages; /* [n] of the whole conversation */
    jinja_variable variables[MAX_VARIABLES];
    size_t n;
    int64_t now, steps; /* the second of all renderings of this conversation */
    const char *eos;    /* the eos_token that the template sees, or NULL */
    jinja_output whole; /* the rendering with which all others are compared */
} renderer;

static void set_variable(renderer *r, const char *name, jinja_value v)
{
    for (size_t i = 0; i < r->n; i++)
        if (!strcmp(r->variables[i].name, name)) {
            r->variables[i].value = v;
            return;
        }
    if (r->n < MAX_VARIABLES) r->variables[r->n++] = (jinja_variable){name, v};
}

static void fill_variables(renderer *r, const conversation_template *own, const nrl_conversation *c)
{
    static const char *const names[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                        "pad_token", "cls_token", "mask_token"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *text = named_token(own, names[i]);
        if (text) set_variable(r, names[i], jinja_string(text, strlen(text)));
    }
    set_variable(r, "tools", jinja_none());
    set_variable(r, "documents", jinja_none());
    for (size_t i = 0; i < nrl_node_size(own->variables); i++)
        set_variable(r, nrl_node_key(own->variables, i), jinja_from_node(&r->memory, nrl_node_at(own->variables, i)));
    for (size_t i = 0; i < nrl_node_size(c->variables); i++)
        set_variable(r, nrl_node_key(c->variables, i), jinja_from_node(&r->memory, nrl_node_at(c->variables, i)));
    if (c->tools) set_variable(r, "tools", jinja_from_node(&r->memory, c->tools));
}

static nrl_status render(renderer *r, size_t n, bool add_generation_prompt, jinja_output *out)
{
    set_variable(r, "messages", jinja_list_of(&r->memory, JINJA_LIST, r->messages, n));
    set_variable(r, "add_generation_prompt", jinja_bool(add_generation_prompt));
    const jinja_input in = {.variables = r->variables, .n = r->n, .now = r->now, .steps = &r->steps};
    return jinja_render(r->code, &in, out);
}

/* ---- trained spans ---- */

/* The length of the common prefix of the whole text and this one, in whole characters. */
static size_t common(const buffer *whole, const buffer *part)
{
    size_t n = 0, most = part->size < whole->size ? part->size : whole->size;
    while (n < most && part->text[n] == whole->text[n])
        n++;
    while (n && n < whole->size && ((unsigned char)whole->text[n] & 0xC0) == 0x80)
        n--;
    return n;
}

/* Renders the first n messages: returns the size, and the length of the common prefix with the
 * whole text. */
static nrl_status measure(renderer *r, size_t n, bool prompt, size_t *size, size_t *shared)
{
    jinja_output part = {0};
    nrl_status st = render(r, n, prompt, &part);
    *size = part.text.size;
    *shared = st == NRL_OK ? common(&r->whole.text, &part.text) : 0;
    jinja_output_free(&part);
    return st;
}

static nrl_status fail_prefix(const renderer *r, size_t i, const char *what)
{
    return nrl_fail(
        NRL_ERR_DATA,
        "messages[%zu]: %s: %s, so its tokens cannot be located in the whole conversation\n"
        "hint: data.train_on: last trains only the last turn; a template with {%% generation %%} around its "
        "assistant turns trains all of them",
        i, jinja_name(r->code), what);
}

/* The end of the messages before turn i (*before) and the beginning of the turn. */
static nrl_status turn_begin(renderer *r, size_t i, size_t *before, size_t *begin)
{
    size_t size, shared, plain, plain_shared;
    nrl_status st = measure(r, i, true, &size, &shared);
    if (st == NRL_OK) st = measure(r, i, false, &plain, &plain_shared);
    if (st != NRL_OK) {
        nrl_add_context("messages[%zu]: what comes before it", i);
        return st;
    }
    *before = plain_shared;
    *begin = shared;
    if (shared == size) return NRL_OK;
    if (plain_shared < plain) return fail_prefix(r, i, "the messages before it are rendered differently without it");
    if (shared < plain) *begin = plain;
    return NRL_OK;
}

/* The size without the EOS that some templates write only after the last message of a conversation. */
static size_t without_eos(const renderer *r, const buffer *text)
{
    size_t size = text->size, n = r->eos ? strlen(r->eos) : 0;
    bool ends = n && size >= n && !memcmp(text->text + size - n, r->eos, n);
    return ends ? size - n : size;
}

static bool holds_assistant(const char *text, size_t size)
{
    for (size_t i = 0; i + 9 <= size; i++)
        if (!strncasecmp(text + i, "assistant", 9)) return true;
    return false;
}

/* Refuses a template that opens an assistant turn after every conversation, even without
 * add_generation_prompt: the end of turn i cannot be found. */
static nrl_status last_turn_end(renderer *r, size_t i, size_t n, size_t *end)
{
    jinja_output before = {0}, asked = {0};
    const buffer *whole = &r->whole.text;
    size_t same = 0;
    *end = whole->size;
    nrl_status st = render(r, n, true, &asked);
    if (st == NRL_OK) st = render(r, i, false, &before);
    bool ignores = st == NRL_OK && asked.text.size == *end && common(whole, &asked.text) == *end;
    while (ignores && same < *end && same < before.text.size &&
           whole->text[*end - same - 1] == before.text.text[before.text.size - same - 1])
        same++;
    if (same && holds_assistant(whole->text + *end - same, same))
        st = nrl_fail(
            NRL_ERR_DATA,
            "messages[%zu]: %s: it opens an assistant turn after the last one, whose end therefore cannot be located\n"
            "hint: expected a template that does so only with add_generation_prompt, or that has {%% generation %%}",
            i, jinja_name(r->code));
    jinja_output_free(&before);
    jinja_output_free(&asked);
    return st;
}

static nrl_status turn_end(renderer *r, size_t i, size_t n, size_t *end)
{
    jinja_output part = {0};
    if (i + 1 == n) return last_turn_end(r, i, n, end);
    nrl_status st = render(r, i + 1, false, &part);
    size_t shared = st == NRL_OK ? common(&r->whole.text, &part.text) : 0, less = without_eos(r, &part.text);
    *end = shared < part.text.size ? less : shared;
    if (st == NRL_OK && shared < less) st = fail_prefix(r, i, "this turn is rendered differently when it is the last");
    jinja_output_free(&part);
    return st;
}

static bool is_assistant(const nrl_message *m)
{
    return !strcmp(m->role, "assistant");
}

static bool is_trained(const nrl_message *m)
{
    return is_assistant(m) && m->train != NRL_MESSAGE_UNTRAINED;
}

static nrl_status by_prefixes(renderer *r, const nrl_conversation *c, span_list *trained)
{
    for (size_t i = c->n_prompt; i < c->n; i++) {
        size_t before, begin, end;
        if (!is_trained(message_at(c, i))) continue;
        NRL_TRY(turn_begin(r, i, &before, &begin));
        NRL_TRY(turn_end(r, i, c->n, &end));
        if (begin < end) spans_push(trained, begin, end);
    }
    return NRL_OK;
}

/* Removes the marks of turns that are marked untrained. */
static nrl_status drop_untrained(renderer *r, const nrl_conversation *c, span_list *trained)
{
    for (size_t i = c->n_prompt; i < c->n; i++) {
        size_t before, begin, end, n = 0;
        if (!is_assistant(message_at(c, i)) || is_trained(message_at(c, i))) continue;
        NRL_TRY(turn_begin(r, i, &before, &begin));
        NRL_TRY(turn_end(r, i, c->n, &end));
        for (size_t k = 0; k < trained->n; k++)
            if (trained->at[k].begin < before || trained->at[k].begin >= end) trained->at[n++] = trained->at[k];
        trained->n = n;
    }
    return NRL_OK;
}

/* Marks of turns in the prompt are skipped. */
static nrl_status by_marks(renderer *r, const nrl_conversation *c, span_list *trained)
{
    size_t first = c->n_prompt, before = 0, begin;
    while (first < c->n && !is_assistant(message_at(c, first)))
        first++;
    if (first == c->n) return NRL_OK;
    if (!r->whole.n_marks)
        return nrl_fail(NRL_ERR_DATA,
                        "%s: {%% generation %%} marks no part of this conversation, which has an assistant turn",
                        jinja_name(r->code));
    bool earlier = false;
    for (size_t i = 0; i < c->n_prompt; i++)
        earlier |= is_assistant(message_at(c, i));
    if (earlier) NRL_TRY(turn_begin(r, first, &before, &begin));
    for (size_t i = 0; i < r->whole.n_marks; i++)
        if (r->whole.marks[i].begin >= before) spans_push(trained, r->whole.marks[i].begin, r->whole.marks[i].end);
    return drop_untrained(r, c, trained);
}

/* ---- roles ---- */

/* A template may accept any role, and most do. A role that is neither common nor named in the
 * template is therefore treated as a typing mistake. */
static nrl_status check_role(const jinja *t, const char *role, size_t i)
{
    static const char *const common_roles[] = {"user", "assistant", "system", "tool", "developer", "function"};
    suggestion near = {.word = role};
    for (size_t k = 0; k < sizeof common_roles / sizeof *common_roles; k++) {
        if (!strcmp(common_roles[k], role)) return NRL_OK;
        suggest_offer(&near, common_roles[k]);
    }
    if (jinja_has_string(t, role)) return NRL_OK;
    return nrl_fail(NRL_ERR_DATA,
                    "messages[%zu]: unknown role '%s': %s does not name it; expected user, "
                    "assistant, system, tool, "
                    "developer, function or a role that the template names\nhint: %s%s%s",
                    i, role, jinja_name(t), near.best ? "did you mean '" : "a template names a role by a constant: ",
                    near.best ? near.best : "{% set roles = ['narrator'] %}", near.best ? "'?" : "");
}

static nrl_status template_render(void *self, const nrl_conversation *c, nrl_rendering *out)
{
    const conversation_template *own = self;
    bool tools = nrl_node_kind(c->tools) == NRL_NODE_LIST && own->with_tools;
    if (nrl_node_size(c->variables) > MAX_GIVEN)
        return nrl_fail(NRL_ERR_DATA, "chat_template_kwargs: %zu variables, expected %d at most",
                        nrl_node_size(c->variables), MAX_GIVEN);
    const jinja *code = tools ? own->with_tools : own->plain;
    for (size_t i = 0; i < c->n; i++)
        NRL_TRY(check_role(code, message_at(c, i)->role, i));
    renderer *r = mem_alloc(sizeof *r);
    span_list trained = {0};
    *r = (renderer){.code = code, .now = own->now, .eos = named_token(own, "eos_token")};
    r->messages = arena_alloc(&r->memory, (c->n + 1) * sizeof *r->messages);
    for (size_t i = 0; i < c->n; i++)
        r->messages[i] = message_value(r->code, &r->memory, message_at(c, i));
    fill_variables(r, own, c);
    nrl_status st = render(r, c->n, c->add_generation_prompt, &r->whole);
    bool exact = jinja_has_marks(r->code) && !r->whole.lost_marks;
    out->span_rule = exact ? NRL_SPANS_TOUCH : NRL_SPANS_TURN;
    if (st == NRL_OK && out->trained) st = exact ? by_marks(r, c, &trained) : by_prefixes(r, c, &trained);
    if (st == NRL_OK && r->whole.text.size) nrl_text_add(out->text, r->whole.text.text, r->whole.text.size);
    for (size_t i = 0; st == NRL_OK && i < trained.n; i++)
        nrl_spans_add(out->trained, trained.at[i].begin, trained.at[i].end);
    jinja_output_free(&r->whole);
    arena_free(&r->memory);
    free(trained.at);
    free(r);
    return st;
}

/* The file name of Jinja files is certain; any other text may still be Jinja. */
static int32_t template_probe(const nrl_template_source *source)
{
    static const char *const ends[] = {".jinja", ".jinja2", ".j2"};
    size_t n = strlen(source->label);
    if (!source->text) return NRL_PROBE_NO;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (n > strlen(ends[i]) && !strcmp(source->label + n - strlen(ends[i]), ends[i])) return NRL_PROBE_YES;
    return strstr(source->text, "{%") || strstr(source->text, "{{") ? NRL_PROBE_YES : NRL_PROBE_PERHAPS;
}

static nrl_status template_as_jinja(void *self, nrl_text *out)
{
    const conversation_template *t = self;
    buffer set = {0};
    for (size_t i = 0; i < nrl_node_size(t->variables); i++) {
        const char *name = nrl_node_key(t->variables, i);
        char *value = json_write(nrl_node_at(t->variables, i), 0);
        buffer_print(&set, "{%%- if %s is not defined %%}{%%- set %s = %s %%}{%%- endif %%}\n", name, name, value);
        free(value);
    }
    if (set.size) nrl_text_add(out, set.text, set.size);
    buffer_free(&set);
    nrl_text_add(out, t->text, strlen(t->text));
    return NRL_OK;
}

static bool template_reads_keys(void *self)
{
    (void)self;
    return true;
}

static const nrl_template jinja_template = {
    NRL_PLUGIN(NRL_KIND_TEMPLATE, nrl_template, jinja_options, jinja_rows, "jinja", "0.1",
               "a chat template in Jinja, from the tokenizer or a file, as transformers runs it"),
    .plugin.check = template_check,
    .probe = template_probe,
    .open = template_open,
    .close = template_close,
    .render = template_render,
    .as_jinja = template_as_jinja,
    .reads_keys = template_reads_keys,
};

NRL_EXPORT(jinja_template)
