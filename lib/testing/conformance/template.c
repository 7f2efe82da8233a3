/*
 * template.c - rules for every chat template: the same text for the same conversation on any
 * thread; spans that lie in the text in order, include what the assistant said after the prompt,
 * and exclude what others said; and errors that name the message, or the line of the template's own
 * text.
 *
 * The suite tests all words of the table, the text of `--path`, or the template that the options
 * select. Its tokenizer is defined in this file and has every special token that a template asks
 * for.
 */
#include "base/arena.h"
#include "base/buffer.h"
#include "base/file.h"
#include "files.h"
#include "suites.h"
#include <nrl/harness.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_THREADS = 4, N_LIVES = 64, MAX_TEXT = 4 << 20, N_CUTS = 24, MAX_MESSAGES = 8 };

/* ---- a tokenizer that has every token ---- */

enum { FIRST_ASKED = 3, MAX_ASKED = 253, ASKED_SIZE = 64 };

typedef struct {
    pthread_mutex_t lock;
    int32_t n;
    char asked[MAX_ASKED][ASKED_SIZE];
} every_token;

/* Three roles, and the tokens that were asked for so far. */
static int32_t every_token_id(void *self, const char *text, size_t size)
{
    every_token *e = self;
    int32_t id = 0;
    pthread_mutex_lock(&e->lock);
    while (id < e->n && (strlen(e->asked[id]) != size || memcmp(e->asked[id], text, size)))
        id++;
    if (id == e->n && (!size || size >= ASKED_SIZE || e->n == MAX_ASKED))
        id = NRL_TOKEN_NONE;
    else if (id == e->n)
        memcpy(e->asked[e->n++], text, size);
    pthread_mutex_unlock(&e->lock);
    return id;
}

static const char *every_token_text(void *self, int32_t id, size_t *size, uint32_t *flags)
{
    every_token *e = self;
    pthread_mutex_lock(&e->lock);
    const char *text = id >= 0 && id < e->n ? e->asked[id] : NULL;
    pthread_mutex_unlock(&e->lock);
    if (!text) return NULL;
    *size = strlen(text);
    *flags = NRL_TOKEN_SPECIAL | NRL_TOKEN_ADDED;
    return text;
}

static const int32_t every_eos[] = {1};
static const nrl_named_token every_named[] = {{"bos_token", "<s>"}, {"eos_token", "</s>"}, {"pad_token", "<pad>"}};
static const nrl_tokenizer_info every_info = {.size = sizeof every_info,
                                              .vocab_size = MAX_ASKED,
                                              .bos = 0,
                                              .eos = 1,
                                              .pad = 2,
                                              .adds_bos = true,
                                              .eos_ids = every_eos,
                                              .n_eos = 1,
                                              .hash = "0000000000000000",
                                              .named = every_named,
                                              .n_named = 3,
                                              .named_size = sizeof *every_named};
static const nrl_tokenizer every_table = {.token_id = every_token_id, .token_text = every_token_text};

/* ---- one template ---- */

typedef struct {
    const nrl_template *table;
    const void *options;
    conformance_report *r;
    arena a;
    const char *word, *text, *label; /* of the source */
    const nrl_open_tokenizer *tokenizer;
    void *self;
} suite;

static nrl_status suite_open(const suite *s, const char *text, const nrl_open_tokenizer *tokenizer, void **self)
{
    /* Copies that are freed before the template is used. */
    char *word = s->word ? strdup(s->word) : NULL, *label = strdup(s->label), *own = text ? strdup(text) : NULL;
    const nrl_template_source source = {
        .size = sizeof source, .word = word, .label = label, .text = own, .tokenizer = tokenizer};
    nrl_fail(NRL_OK, "%s", "");
    nrl_status st = s->table->open(s->options, &source, self);
    char *const copies[] = {word, label, own};
    for (int i = 0; i < 3; i++)
        if (copies[i]) {
            memset(copies[i], 'x', strlen(copies[i]));
            free(copies[i]);
        }
    return st;
}

typedef struct {
    nrl_text *text;
    nrl_spans *spans;
    const char *bytes;
    size_t size, n_spans;
    uint32_t rule;
    bool bos;
} rendered;

static void rendered_free(rendered *d)
{
    nrl_harness_text_free(d->text);
    nrl_harness_spans_free(d->spans);
}

static nrl_status suite_render(const suite *s, const nrl_conversation *c, bool wants_spans, rendered *out)
{
    *out = (rendered){.text = nrl_harness_text_create(), .spans = nrl_harness_spans_create()};
    nrl_rendering r = {.size = sizeof r, .text = out->text, .trained = wants_spans ? out->spans : NULL};
    nrl_fail(NRL_OK, "%s", "");
    nrl_status st = s->table->render(s->self, c, &r);
    out->bytes = nrl_harness_text_bytes(out->text, &out->size);
    out->n_spans = nrl_harness_spans_n(out->spans);
    out->rule = r.span_rule;
    out->bos = r.bos;
    return st;
}

static bool same_text(const rendered *a, const rendered *b)
{
    return a->size == b->size && a->bos == b->bos && (!a->size || !memcmp(a->bytes, b->bytes, a->size));
}

static bool same_spans(const rendered *a, const rendered *b)
{
    if (a->n_spans != b->n_spans || a->rule != b->rule) return false;
    for (size_t i = 0, x[2], y[2]; i < a->n_spans; i++) {
        nrl_harness_spans_at(a->spans, i, &x[0], &x[1]);
        nrl_harness_spans_at(b->spans, i, &y[0], &y[1]);
        if (x[0] != y[0] || x[1] != y[1]) return false;
    }
    return true;
}

/* ---- conversations ---- */

/* A message with more members, as a later version may have. */
typedef struct {
    nrl_message m;
    uint64_t later;
} wide_message;

#define MESSAGE(r, text)                                                                                               \
    {                                                                                                                  \
        {.role = (r), .content = (text), .content_size = sizeof(text) - 1}, 0xa5a5a5a5a5a5a5a5u                        \
    }
static const wide_message messages[] = {
    MESSAGE("user", "first question"),
    MESSAGE("assistant", "first answer"),
    MESSAGE("user", "second \"question\" <b>&amp;</b> {{ x }} {% y %}\nline two"),
    MESSAGE("assistant", "second answer: na\xC3\xAFve \xF0\x9F\x98\x80 {{ x }}\n\nline three"),
    MESSAGE("user", "q"),
    MESSAGE("assistant", "third answer with some text"),
};
enum { N_MESSAGES = sizeof messages / sizeof *messages };

static nrl_conversation conversation_of(const wide_message *m, size_t n)
{
    return (nrl_conversation){
        .size = sizeof(nrl_conversation), .message_size = sizeof *m, .messages = &m->m, .n = n, .n_prompt = 0};
}

static const char *text_find_in(const char *text, size_t size, const nrl_message *m)
{
    for (size_t i = 0; i + m->content_size <= size; i++)
        if (!memcmp(text + i, m->content, m->content_size)) return text + i;
    return NULL;
}

/* Whether some span includes the whole content, or overlaps it if `touches`. */
static bool is_in_spans(const rendered *d, const nrl_message *m, bool touches)
{
    const char *at = text_find_in(d->bytes, d->size, m);
    if (!at) return false;
    size_t begin = (size_t)(at - d->bytes), end = begin + m->content_size, from, to;
    for (size_t i = 0; i < d->n_spans; i++) {
        nrl_harness_spans_at(d->spans, i, &from, &to);
        if (touches ? from < end && begin < to : from <= begin && end <= to) return true;
    }
    return false;
}

/* ---- rules ---- */

static void check_spans(const suite *s, const nrl_conversation *c, const rendered *d)
{
    size_t last = 0, begin, end;
    for (size_t i = 0; i < d->n_spans; i++, last = end) {
        nrl_harness_spans_at(d->spans, i, &begin, &end);
        if (!report_check(s->r, last <= begin && begin <= end && end <= d->size, "spans lie in the text, in order",
                          "span %zu is [%zu, %zu) of %zu bytes, the one before ends at %zu", i, begin, end, d->size,
                          last))
            return;
    }
    report_check(s->r, d->rule <= NRL_SPANS_TURN, "a span rule is one of the header", "%u", (unsigned)d->rule);
    for (size_t i = 0; i < c->n; i++) {
        const nrl_message *m = &messages[i].m, *given = (const void *)((const char *)c->messages + i * c->message_size);
        bool answer = !strcmp(given->role, "assistant");
        if (!report_check(s->r, text_find_in(d->bytes, d->size, m), "the text holds every message",
                          "messages[%zu], in '%.200s'", i, d->bytes))
            return;
        if (!answer)
            report_check(s->r, !is_in_spans(d, m, true), "messages of others are not trained", "messages[%zu]", i);
        else if (i < c->n_prompt)
            report_check(s->r, !is_in_spans(d, m, true), "the prompt is not trained", "messages[%zu] of %zu", i,
                         c->n_prompt);
        else if (given->train == NRL_MESSAGE_UNTRAINED)
            report_check(s->r, !is_in_spans(d, m, true), "a message that is marked untrained is not trained",
                         "messages[%zu]", i);
        else
            report_check(s->r, is_in_spans(d, m, false), "a span includes what the assistant says", "messages[%zu]", i);
    }
}

/* Renders all lengths that end with an answer, all prompts, and each turn marked as untrained once. */
static void check_conversations(const suite *s)
{
    static const char ok[] = "a conversation is rendered", pure[] = "spans change no text";
    for (size_t n = 2; n <= N_MESSAGES; n += 2)
        for (size_t prompt = 0; prompt < n; prompt += 1) {
            wide_message own[N_MESSAGES];
            memcpy(own, messages, sizeof own);
            nrl_conversation c = conversation_of(own, n);
            c.n_prompt = prompt;
            for (size_t marked = 0; marked < n; marked++) {
                rendered d, plain, again;
                own[marked].m.train = NRL_MESSAGE_UNTRAINED;
                nrl_status st = suite_render(s, &c, true, &d);
                if (report_ok(s->r, st, ok)) check_spans(s, &c, &d);
                st = suite_render(s, &c, false, &plain);
                report_check(s->r, st == NRL_OK && same_text(&d, &plain) && !plain.n_spans, pure, "of %zu messages", n);
                st = suite_render(s, &c, true, &again);
                report_check(s->r, st == NRL_OK && same_text(&d, &again) && same_spans(&d, &again),
                             "equal conversations give equal text", "of %zu messages", n);
                own[marked].m.train = NRL_MESSAGE_UNSAID;
                rendered_free(&d);
                rendered_free(&plain);
                rendered_free(&again);
            }
        }
}

/* The prompt for sampling is the text that precedes the answer in training. */
static void check_prompt(const suite *s)
{
    nrl_conversation c = conversation_of(messages, N_MESSAGES - 1), whole = conversation_of(messages, N_MESSAGES);
    rendered asked, all;
    c.add_generation_prompt = true;
    nrl_status st = suite_render(s, &c, false, &asked);
    if (st == NRL_OK) {
        st = suite_render(s, &whole, false, &all);
        bool begins = st == NRL_OK && asked.size <= all.size && !memcmp(asked.bytes, all.bytes, asked.size);
        report_check(s->r, begins && asked.bos == all.bos, "a generation prompt begins the answer's turn",
                     "'...%.60s', and with the answer '...%.60s'",
                     asked.bytes + (asked.size > 60 ? asked.size - 60 : 0),
                     all.bytes + (asked.size > 60 ? asked.size - 60 : 0));
        rendered_free(&all);
    } else {
        report_ok(s->r, st, "a conversation is rendered");
    }
    rendered_free(&asked);
}

static void check_odd(const suite *s)
{
    static const wide_message odd[] = {MESSAGE("user", "a\0b"), MESSAGE("assistant", "c\0d")};
    static const wide_message stranger[] = {MESSAGE("user", "a"), MESSAGE("narrator_of_nothing", "b")};
    static const char refused[] = "a refused conversation is NRL_ERR_DATA", where[] = "an error names the message";
    rendered d;
    nrl_conversation c = conversation_of(odd, 2);
    if (report_ok(s->r, suite_render(s, &c, true, &d), "content may hold NUL"))
        report_check(s->r, text_find_in(d.bytes, d.size, &odd[0].m) && is_in_spans(&d, &odd[1].m, false),
                     "content may hold NUL", "it is truncated there");
    rendered_free(&d);
    c = conversation_of(stranger, 2);
    nrl_status st = suite_render(s, &c, true, &d);
    report_check(s->r, st == NRL_OK || st == NRL_ERR_DATA, refused, "an unknown role: status %d", (int)st);
    report_check(s->r, st == NRL_OK || strstr(nrl_error_text(), "messages[1]"), where, "an unknown role: '%s'",
                 nrl_error_text());
    rendered_free(&d);
    c = conversation_of(messages, 0);
    st = suite_render(s, &c, true, &d);
    report_check(s->r, st == NRL_OK || (st == NRL_ERR_DATA && *nrl_error_text()), refused, "no message: status %d",
                 (int)st);
    rendered_free(&d);
}

static void check_tokens(const suite *s)
{
    const char *const *required = s->table->required_tokens ? s->table->required_tokens(s->self) : NULL;
    for (; required && *required; required++)
        report_check(s->r, **required, "required tokens have a text", "one is empty");
    if (!s->table->end_token) return;
    size_t size;
    uint32_t flags;
    int32_t end = s->table->end_token(s->self);
    report_check(s->r, end == NRL_TOKEN_NONE || every_token_text(s->tokenizer->self, end, &size, &flags),
                 "the end token is a token of the tokenizer", "id %d", end);
}

static void check_jinja(const suite *s)
{
    nrl_text *text = nrl_harness_text_create(), *again = nrl_harness_text_create();
    size_t size = 0, other = 0;
    if (s->table->as_jinja && report_ok(s->r, s->table->as_jinja(s->self, text), "its text in Jinja is written")) {
        const char *bytes = nrl_harness_text_bytes(text, &size);
        report_check(s->r, size && !memchr(bytes, 0, size), "its text in Jinja is written", "%zu bytes", size);
        bool same = s->table->as_jinja(s->self, again) == NRL_OK;
        const char *twice = nrl_harness_text_bytes(again, &other);
        report_check(s->r, same && size == other && !memcmp(bytes, twice, size),
                     "its text in Jinja is the same each time", "%zu bytes, then %zu", size, other);
    }
    nrl_harness_text_free(text);
    nrl_harness_text_free(again);
}

/* ---- threads and instances ---- */

typedef struct {
    const suite *s;
    const rendered *expected;
    pthread_t thread;
    int64_t differ;
} renderer;

static void *render_all(void *arg)
{
    renderer *w = arg;
    const nrl_conversation c = conversation_of(messages, N_MESSAGES);
    for (int i = 0; i < 100; i++) {
        rendered d;
        nrl_status st = suite_render(w->s, &c, true, &d);
        w->differ += st != NRL_OK || !same_text(&d, w->expected) || !same_spans(&d, w->expected);
        rendered_free(&d);
    }
    return NULL;
}

static void check_threads(const suite *s)
{
    renderer threads[N_THREADS];
    const nrl_conversation c = conversation_of(messages, N_MESSAGES);
    rendered expected;
    int64_t differ = 0;
    int n = 0;
    if (suite_render(s, &c, true, &expected) == NRL_OK) {
        for (; n < N_THREADS; n++) {
            threads[n] = (renderer){.s = s, .expected = &expected};
            if (pthread_create(&threads[n].thread, NULL, render_all, &threads[n])) break;
        }
        for (int i = 0; i < n; i++) {
            pthread_join(threads[i].thread, NULL);
            differ += threads[i].differ;
        }
        report_check(s->r, n == N_THREADS && !differ, "several threads render the same text",
                     "%lld texts differ on %d threads", (long long)differ, n);
    }
    rendered_free(&expected);
}

static void live_once(const suite *s)
{
    suite other = *s;
    const nrl_conversation c = conversation_of(messages, N_MESSAGES);
    rendered d;
    if (suite_open(s, s->text, s->tokenizer, &other.self) != NRL_OK) return;
    suite_render(&other, &c, true, &d);
    rendered_free(&d);
    s->table->close(other.self);
}

static void check_lives(const suite *s)
{
    static const char alone[] = "instances live side by side";
    const nrl_conversation c = conversation_of(messages, N_MESSAGES);
    suite other = *s;
    rendered d, same;
    nrl_status st = suite_render(s, &c, true, &d);
    if (report_ok(s->r, suite_open(s, s->text, s->tokenizer, &other.self), alone)) {
        live_once(s);
        bool equal = suite_render(&other, &c, true, &same) == st && same_text(&d, &same);
        rendered_free(&same);
        s->table->close(other.self);
        equal &= suite_render(s, &c, true, &same) == st && same_text(&d, &same);
        rendered_free(&same);
        report_check(s->r, equal, alone, "an instance renders differently while another one exists");
    }
    rendered_free(&d);
    for (int i = 0; i < 4; i++)
        live_once(s);
    int descriptors = files_open_descriptors();
    size_t bytes = files_memory_in_use();
    for (int i = 0; i < N_LIVES; i++)
        live_once(s);
    report_check(s->r, files_open_descriptors() == descriptors, "nothing stays open", "%d descriptors more",
                 files_open_descriptors() - descriptors);
    size_t now = files_memory_in_use();
    report_check(s->r, now < bytes + N_LIVES * 16, "close gives the memory back", "%zu bytes more after %d instances",
                 now - bytes, N_LIVES);
}

/* ---- sources ---- */

/* Truncates the text at many positions: it opens, or the error has its name and a line. */
static void check_cuts(const suite *s)
{
    static const char refused[] = "a text that cannot be read is NRL_ERR_CONFIG", named[] = "an error names the text",
                      line[] = "an error names the line";
    size_t size = strlen(s->text);
    for (size_t i = 0; i < N_CUTS; i++) {
        char *part = strndup(s->text, size * (2 * i + 1) / (2 * N_CUTS));
        void *self;
        nrl_status st = suite_open(s, part, s->tokenizer, &self);
        const char *error = nrl_error_text();
        if (st == NRL_OK) {
            s->table->close(self);
        } else {
            report_check(s->r, st == NRL_ERR_CONFIG, refused, "status %d: %s", (int)st, error);
            const char *after = strstr(error, s->label);
            report_check(s->r, after, named, "'%s'", error);
            after = after ? after + strlen(s->label) : error;
            const char *number = strstr(after, "line ");
            report_check(s->r,
                         (number && number[5] >= '1' && number[5] <= '9') ||
                             (*after == ':' && after[1] >= '1' && after[1] <= '9'),
                         line, "'%s'", error);
        }
        free(part);
    }
}

static void check_source(suite *s)
{
    void *closed;
    if (report_ok(s->r, suite_open(s, s->text, NULL, &closed), "it opens without a tokenizer")) s->table->close(closed);
    if (!report_ok(s->r, suite_open(s, s->text, s->tokenizer, &s->self), "it opens")) return;
    check_conversations(s);
    check_prompt(s);
    check_odd(s);
    check_tokens(s);
    check_jinja(s);
    check_threads(s);
    check_lives(s);
    s->table->close(s->self);
    if (s->text) check_cuts(s);
}

/* A word that no template has. */
static void check_foreign(suite *s)
{
    static const char rule[] = "an unknown word is refused by its name";
    const nrl_template_source source = {.size = sizeof source, .word = "no_such_word", .label = "no_such_word"};
    void *self;
    int32_t sure = s->table->probe(&source);
    report_check(s->r, sure <= NRL_PROBE_EXPLAINS, "a probe leaves other words alone", "it returned %d", (int)sure);
    s->word = s->label = "no_such_word";
    nrl_status st = suite_open(s, NULL, s->tokenizer, &self);
    if (st == NRL_OK) s->table->close(self);
    report_check(s->r, st == NRL_ERR_CONFIG && strstr(nrl_error_text(), "no_such_word"), rule, "status %d: '%s'",
                 (int)st, nrl_error_text());
}

void conformance_template(const nrl_template *table, const conformance_setup *setup, conformance_report *report)
{
    every_token every = {.lock = PTHREAD_MUTEX_INITIALIZER, .n = FIRST_ASKED, .asked = {"<s>", "</s>", "<pad>"}};
    const nrl_open_tokenizer tokenizer = {
        .size = sizeof tokenizer, .table = &every_table, .self = &every, .info = &every_info};
    suite s = {.table = table, .options = setup->options, .r = report, .tokenizer = &tokenizer};
    REPORT_CASE(report, "a probe leaves other words alone") check_foreign(&s);
    for (const char *const *word = table->words; word && *word; word++) {
        const nrl_template_source source = {.size = sizeof source, .word = *word, .label = *word};
        int32_t sure = table->probe(&source);
        report_check(report, sure >= NRL_PROBE_PERHAPS, "a probe knows its own words", "%s: it returned %d", *word,
                     (int)sure);
        s.word = s.label = *word;
        REPORT_CASE(report, "a conversation is rendered") check_source(&s);
    }
    char *text = NULL;
    size_t size;
    s.word = NULL;
    s.label = setup->path ? setup->path : "the options";
    if (setup->path && report_ok(report, file_read(setup->path, MAX_TEXT, &text, &size), "the suite reads its text")) {
        s.text = text;
        REPORT_CASE(report, "a conversation is rendered") check_source(&s);
    } else if (!table->words) {
        void *self;
        if (suite_open(&s, NULL, s.tokenizer, &self) == NRL_OK) {
            table->close(self);
            REPORT_CASE(report, "a conversation is rendered") check_source(&s);
        } else {
            report_skip(report, "it opens", "it has no word and needs a text: --path FILE");
        }
    }
    free(text);
    arena_free(&s.a);
}
