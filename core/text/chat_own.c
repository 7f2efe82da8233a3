/*
 * chat_own.c - see chat_own.h. The template gets the variables that transformers gives it: messages
 * with all keys of the row that are not null, tools, documents (none), add_generation_prompt, the
 * named special tokens, and what the row's chat_template_kwargs say.
 *
 * What is trained is read off the template itself, never guessed:
 * - marks of {% generation %}, where it has them (transformers' return_assistant_tokens_mask);
 * - else turn i goes from the end of messages[0..i) with the generation prompt to the end of
 *   messages[0..i], and each of these renderings must be how the whole one begins. A prompt that goes
 *   on otherwise than the turn (a <think> opened for the model) counts up to where both part, as in
 *   TRL, if the messages before it are rendered alike.
 * An EOS behind the last message of a rendering, where others have none, is not held against it.
 * A template without that property (one that drops the reasoning of earlier turns) is an error.
 */
#include "text/chat_own.h"
#include "base/suggest.h"
#include "text/jinja.h"
#include "text/unicode.h"
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

struct chat_own {
    jinja *plain, *with_tools; /* the second may be NULL */
    const tokenizer *tok;
    char *text;
    int64_t now; /* when it was opened: strftime_now's clock */
};

enum { MAX_VARIABLES = 64, MAX_GIVEN = 32 }; /* of a row */

static const char *const token_names[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                          "pad_token", "cls_token", "mask_token"};
enum { N_TOKENS = sizeof token_names / sizeof *token_names };

nrl_status chat_own_open(const char *name, const char *text, const char *tools, const tokenizer *tok, chat_own **out)
{
    chat_own *own = mem_alloc(sizeof *own);
    own->tok = tok;
    own->text = mem_strdup(text);
    own->now = (int64_t)time(NULL);
    nrl_status st = jinja_compile(name, text, strlen(text), &own->plain);
    if (st == NRL_OK && tools) st = jinja_compile(name, tools, strlen(tools), &own->with_tools);
    if (st == NRL_OK) {
        *out = own;
        return NRL_OK;
    }
    chat_own_close(own);
    return nrl_fail(st, "%s\ndata.template may name a built-in one instead: %s", nrl_error_text(),
                    chat_template_names());
}

void chat_own_close(chat_own *own)
{
    if (!own) return;
    jinja_free(own->plain);
    jinja_free(own->with_tools);
    free(own->text);
    free(own);
}

const char *chat_own_text(const chat_own *own)
{
    return own->text;
}

/* ---- variables ---- */

/* The reasoning of a message under the names that templates read, as transformers gives it. */
static const nrl_node *find_reasoning(const nrl_node *node)
{
    static const char *const names[] = {"reasoning_content", "thinking", "reasoning"};
    for (int i = 0; i < 3; i++) {
        const nrl_node *found = nrl_node_find(node, names[i]);
        if (found && nrl_node_kind(found) != NRL_NODE_NULL) return found;
    }
    return NULL;
}

/* Lists of content parts stay lists for a template that reads a part's text; others get the texts
 * joined, as the built-in templates do. */
static jinja_value content_of(const jinja *t, arena *a, const chat_message *m)
{
    const nrl_node *content = nrl_node_find(m->node, "content");
    if (nrl_node_kind(content) == NRL_NODE_LIST && jinja_mentions(t, "text")) return jinja_from_node(a, content);
    return jinja_string(m->content, m->content_size);
}

static jinja_value key_of(const char *text)
{
    return jinja_string(text, strlen(text));
}

/* One key of the row's message: role and content as they were read, also where they are called from and value. */
static void add_member(const jinja *t, arena *a, const chat_message *m, size_t i, bool shared, jinja_map *to)
{
    const char *key = nrl_node_key(m->node, i);
    const nrl_node *value = nrl_node_at(m->node, i);
    bool role = !strcmp(key, shared ? "from" : "role"), content = !strcmp(key, shared ? "value" : "content");
    bool hidden = shared && (!strcmp(key, "role") || !strcmp(key, "content"));
    if (nrl_node_kind(value) == NRL_NODE_NULL || hidden) return;
    if (role)
        jinja_map_add(a, to, key_of("role"), key_of(m->role));
    else if (content)
        jinja_map_add(a, to, key_of("content"), content_of(t, a, m));
    else if (!strcmp(key, "thinking"))
        jinja_map_set(a, to, key_of(key), jinja_from_node(a, value));
    else
        jinja_map_add(a, to, key_of(key), jinja_from_node(a, value));
}

static jinja_value message_value(const jinja *t, arena *a, const chat_message *m)
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

typedef struct {
    const jinja *code;
    arena memory;
    jinja_value *messages; /* [n] of the whole conversation */
    jinja_variable variables[MAX_VARIABLES];
    size_t n;
    int64_t now, steps; /* the second of all renderings of this conversation */
    const char *eos;    /* eos_token as the template has it, or NULL */
    jinja_output whole; /* the rendering that all others are compared with */
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

static void fill_variables(renderer *r, const chat_own *own, const chat_conversation *c)
{
    for (int i = 0; i < N_TOKENS; i++) {
        const char *text = tokenizer_named_token(own->tok, token_names[i]);
        if (text) set_variable(r, token_names[i], jinja_string(text, strlen(text)));
    }
    for (size_t i = 0; i < nrl_node_size(c->variables); i++)
        set_variable(r, nrl_node_key(c->variables, i), jinja_from_node(&r->memory, nrl_node_at(c->variables, i)));
    set_variable(r, "tools", jinja_from_node(&r->memory, c->tools));
    set_variable(r, "documents", jinja_none());
}

static nrl_status render(renderer *r, size_t n, bool add_generation_prompt, jinja_output *out)
{
    set_variable(r, "messages", jinja_list_of(&r->memory, JINJA_LIST, r->messages, n));
    set_variable(r, "add_generation_prompt", jinja_bool(add_generation_prompt));
    const jinja_input in = {.variables = r->variables, .n = r->n, .now = r->now, .steps = &r->steps};
    nrl_status st = jinja_render(r->code, &in, out);
    if (st == NRL_ERR_CONFIG)
        return nrl_fail(st, "%s\ndata.template may name a built-in one instead: %s", nrl_error_text(),
                        chat_template_names());
    return st;
}

/* ---- what is trained ---- */

/* Bytes that the whole text and this one begin with alike, whole characters of them. */
static size_t common(const buffer *whole, const buffer *part)
{
    size_t n = 0, most = part->size < whole->size ? part->size : whole->size;
    while (n < most && part->text[n] == whole->text[n])
        n++;
    while (n && n < whole->size && ((unsigned char)whole->text[n] & 0xC0) == 0x80)
        n--;
    return n;
}

/* The rendering of the first n messages: its size, and how much of it the whole text begins with. */
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
    return nrl_fail(NRL_ERR_DATA,
                    "messages[%zu]: %s: %s, so its tokens cannot be told in the whole conversation\n"
                    "data.train_on: last trains the last turn alone; a template with {%% generation %%} around its "
                    "assistant turns trains all of them",
                    i, jinja_name(r->code), what);
}

/* Where the messages before turn i end (*before) and where the turn itself begins. */
static nrl_status turn_begin(renderer *r, size_t i, size_t *before, size_t *begin)
{
    size_t size, shared, plain, plain_shared;
    nrl_status st = measure(r, i, true, &size, &shared);
    if (st == NRL_OK) st = measure(r, i, false, &plain, &plain_shared);
    if (st != NRL_OK) {
        nrl_note("messages[%zu]: what comes before it", i);
        return st;
    }
    *before = plain_shared;
    *begin = shared;
    if (shared == size) return NRL_OK;
    if (plain_shared < plain)
        return fail_prefix(r, i, "the messages before it are written otherwise when they stand alone");
    if (shared < plain) *begin = plain;
    return NRL_OK;
}

/* Less the EOS that some templates write behind a conversation's last message alone. */
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

/* A template that opens an assistant turn behind every conversation, asked or not, ends turn i as it ends what
 * comes before it: with the same header. */
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
            "messages[%zu]: %s: it opens an assistant turn behind the last one, so where that ends cannot be told\n"
            "expected a template that does so where add_generation_prompt asks, or {%% generation %%} in it",
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
    if (st == NRL_OK && shared < less) st = fail_prefix(r, i, "this turn is written otherwise when it is the last");
    jinja_output_free(&part);
    return st;
}

static bool is_assistant(const chat_message *m)
{
    return !strcmp(m->role, "assistant");
}

static bool is_trained(const chat_message *m)
{
    return is_assistant(m) && m->train != CHAT_TRAIN_NO;
}

static nrl_status by_prefixes(renderer *r, const chat_conversation *c, spans *trained)
{
    for (size_t i = c->n_prompt; i < c->n; i++) {
        size_t before, begin, end;
        if (!is_trained(&c->messages[i])) continue;
        NRL_TRY(turn_begin(r, i, &before, &begin));
        NRL_TRY(turn_end(r, i, c->n, &end));
        if (begin < end) spans_push(trained, begin, end);
    }
    return NRL_OK;
}

/* Takes the marks of the turns that say so out again. */
static nrl_status drop_untrained(renderer *r, const chat_conversation *c, spans *trained)
{
    for (size_t i = c->n_prompt; i < c->n; i++) {
        size_t before, begin, end, n = 0;
        if (!is_assistant(&c->messages[i]) || is_trained(&c->messages[i])) continue;
        NRL_TRY(turn_begin(r, i, &before, &begin));
        NRL_TRY(turn_end(r, i, c->n, &end));
        for (size_t k = 0; k < trained->n; k++)
            if (trained->at[k].begin < before || trained->at[k].begin >= end)
                trained->at[n++] = trained->at[k];
        trained->n = n;
    }
    return NRL_OK;
}

/* Marks of the prompt's own turns are left out. */
static nrl_status by_marks(renderer *r, const chat_conversation *c, spans *trained)
{
    size_t first = c->n_prompt, before = 0, begin;
    while (first < c->n && !is_assistant(&c->messages[first]))
        first++;
    if (first == c->n) return NRL_OK;
    if (!r->whole.n_marks)
        return nrl_fail(NRL_ERR_DATA,
                        "%s: its {%% generation %%} marks nothing of this conversation, which has an assistant turn",
                        jinja_name(r->code));
    bool earlier = false;
    for (size_t i = 0; i < c->n_prompt; i++)
        earlier |= is_assistant(&c->messages[i]);
    if (earlier) NRL_TRY(turn_begin(r, first, &before, &begin));
    for (size_t i = 0; i < r->whole.n_marks; i++)
        if (r->whole.marks[i].begin >= before) spans_push(trained, r->whole.marks[i].begin, r->whole.marks[i].end);
    return drop_untrained(r, c, trained);
}

/* ---- roles ---- */

/* A template may write any role that it is given, and most do; so a role that neither is common nor
 * stands in the template is a slip of the pen rather than a role. */
static nrl_status check_role(const jinja *t, const char *role, size_t i)
{
    static const char *const common_roles[] = {"user", "assistant", "system",
                                               "tool", "developer", "function"};
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
                    i, role, jinja_name(t),
                    near.best ? "did you mean '" : "a template names a role by a constant: ",
                    near.best ? near.best : "{% set roles = ['narrator'] %}",
                    near.best ? "'?" : "");
}

nrl_status chat_own_write(const chat_own *own, const chat_conversation *c, buffer *text, spans *trained, bool *exact)
{
    bool tools = nrl_node_kind(c->tools) == NRL_NODE_LIST && own->with_tools;
    if (nrl_node_size(c->variables) > MAX_GIVEN)
        return nrl_fail(NRL_ERR_DATA, "chat_template_kwargs: %zu variables, expected %d at most", nrl_node_size(c->variables), MAX_GIVEN);
    const jinja *code = tools ? own->with_tools : own->plain;
    for (size_t i = 0; i < c->n; i++)
        NRL_TRY(check_role(code, c->messages[i].role, i));
    renderer *r = mem_alloc(sizeof *r);
    *r = (renderer){
        .code = code, .now = own->now, .eos = tokenizer_named_token(own->tok, "eos_token")};
    r->messages = arena_alloc(&r->memory, (c->n + 1) * sizeof *r->messages);
    for (size_t i = 0; i < c->n; i++)
        r->messages[i] = message_value(r->code, &r->memory, &c->messages[i]);
    fill_variables(r, own, c);
    nrl_status st = render(r, c->n, c->add_generation_prompt, &r->whole);
    *exact = jinja_has_marks(r->code) && !r->whole.lost_marks;
    if (st == NRL_OK && trained) st = *exact ? by_marks(r, c, trained) : by_prefixes(r, c, trained);
    if (st == NRL_OK && r->whole.text.size) buffer_add(text, r->whole.text.text, r->whole.text.size);
    jinja_output_free(&r->whole);
    arena_free(&r->memory);
    free(r);
    return st;
}
