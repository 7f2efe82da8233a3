/*
 * templates.h - chat templates that break one rule each, with the rule that must detect it. All are
 * the example template fixed, which here also accepts a text with balanced braces, with one member
 * replaced.
 */
#ifndef WRONG_TEMPLATES_H
#define WRONG_TEMPLATES_H
#include <nrl/nrl.h>
#undef NRL_EXPORT /* plugin.c exports a row instead */
#define NRL_EXPORT(t)                                                                                                  \
    __attribute__((unused)) static const void *fixed_table(void)                                                       \
    {                                                                                                                  \
        return &(t);                                                                                                   \
    }
#include "../../../examples/fixed_template/fixed.c"
#include <fcntl.h>
#include <nrl/harness.h>
#include <sched.h>
#include <stdio.h>

static int32_t greedy_probe(const nrl_template_source *source)
{
    (void)source;
    return NRL_PROBE_YES;
}

static int32_t blind_probe(const nrl_template_source *source)
{
    (void)source;
    return NRL_PROBE_NO;
}

/* ---- opening ---- */

static nrl_status wrong_open_text(const void *options, const nrl_template_source *source, const char *label,
                                  const char *line, nrl_status refused, void **self)
{
    int depth = 0, number = 1;
    for (const char *p = source->text ? source->text : ""; *p; p++) {
        number += *p == '\n';
        depth += *p == '{';
        depth -= *p == '}';
    }
    if (depth) return nrl_fail(refused, "%s: %s%d: a brace stays open", label, line, number);
    nrl_template_source fixed_source = *source;
    fixed_source.text = NULL;
    return fixed_open(options, &fixed_source, self);
}

static nrl_status right_open(const void *options, const nrl_template_source *source, void **self)
{
    return wrong_open_text(options, source, source->label, "line ", NRL_ERR_CONFIG, self);
}

static nrl_status lineless_open(const void *options, const nrl_template_source *source, void **self)
{
    return wrong_open_text(options, source, source->label, "somewhere ", NRL_ERR_CONFIG, self);
}

static nrl_status nameless_open(const void *options, const nrl_template_source *source, void **self)
{
    return wrong_open_text(options, source, "the template", "line ", NRL_ERR_CONFIG, self);
}

static nrl_status blaming_open(const void *options, const nrl_template_source *source, void **self)
{
    return wrong_open_text(options, source, source->label, "line ", NRL_ERR_BUG, self);
}

static nrl_status any_open(const void *options, const nrl_template_source *source, void **self)
{
    nrl_template_source any = *source;
    any.word = NULL;
    return right_open(options, &any, self);
}

static nrl_status needy_open(const void *options, const nrl_template_source *source, void **self)
{
    if (!source->tokenizer) return nrl_fail(NRL_ERR_CONFIG, "%s: there is no tokenizer", source->label);
    return right_open(options, source, self);
}

static nrl_status holding_open(const void *options, const nrl_template_source *source, void **self)
{
    NRL_TRY(right_open(options, source, self));
    return open("/dev/null", O_RDONLY) < 0 ? NRL_ERR_IO : NRL_OK;
}

static void leaking_close(void *self)
{
    (void)self;
}

static int wrong_closed;

static void sharing_close(void *self)
{
    wrong_closed++;
    free(self);
}

/* ---- text ---- */

static nrl_status sharing_render(void *self, const nrl_conversation *c, nrl_rendering *out)
{
    NRL_TRY(fixed_render(self, c, out));
    if (wrong_closed) nrl_text_add(out->text, &"0123456789"[wrong_closed % 10], 1);
    return NRL_OK;
}

static nrl_status chatty_render(void *self, const nrl_conversation *c, nrl_rendering *out)
{
    NRL_TRY(fixed_render(self, c, out));
    if (out->trained) nrl_text_add(out->text, " ", 1);
    return NRL_OK;
}

static nrl_status moody_render(void *self, const nrl_conversation *c, nrl_rendering *out)
{
    static unsigned n;
    NRL_TRY(fixed_render(self, c, out));
    nrl_text_add(out->text, &"0123456"[n++ % 7], 1);
    return NRL_OK;
}

static nrl_status leading_render(void *self, const nrl_conversation *c, nrl_rendering *out)
{
    NRL_TRY(fixed_render(self, c, out));
    if (c->add_generation_prompt) nrl_text_add(out->text, "Well, ", 6);
    return NRL_OK;
}

static nrl_status silent_render(void *self, const nrl_conversation *c, nrl_rendering *out)
{
    nrl_conversation shorter = *c;
    shorter.n = c->n > 4 ? 4 : c->n;
    return fixed_render(self, &shorter, out);
}

static nrl_status cutting_render(void *self, const nrl_conversation *c, nrl_rendering *out)
{
    nrl_message own[16];
    nrl_conversation cut = *c;
    for (size_t i = 0; i < c->n && i < 16; i++) {
        own[i] = *(const nrl_message *)(const void *)((const char *)c->messages + i * c->message_size);
        own[i].content_size = strnlen(own[i].content, own[i].content_size);
    }
    cut.messages = own;
    cut.message_size = sizeof *own;
    return fixed_render(self, &cut, out);
}

static nrl_status racing_render(void *self, const nrl_conversation *c, nrl_rendering *out)
{
    static int inside;
    __atomic_add_fetch(&inside, 1, __ATOMIC_SEQ_CST);
    nrl_status st = fixed_render(self, c, out);
    for (int i = 0; i < 4; i++)
        sched_yield();
    if (__atomic_fetch_sub(&inside, 1, __ATOMIC_SEQ_CST) > 1) nrl_text_add(out->text, " ", 1);
    return st;
}

/* ---- errors ---- */

static nrl_status crying_render(void *self, const nrl_conversation *c, nrl_rendering *out)
{
    return fixed_render(self, c, out) == NRL_OK ? NRL_OK : NRL_ERR_BUG;
}

static nrl_status vague_render(void *self, const nrl_conversation *c, nrl_rendering *out)
{
    nrl_status st = fixed_render(self, c, out);
    return st == NRL_OK ? st : nrl_fail(st, "a role is unknown");
}

/* ---- spans ---- */

static nrl_status idle_render(void *self, const nrl_conversation *c, nrl_rendering *out)
{
    nrl_rendering own = *out;
    own.trained = NULL;
    nrl_status st = fixed_render(self, c, &own);
    out->bos = own.bos;
    return st;
}

static nrl_status eager_render(void *self, const nrl_conversation *c, nrl_rendering *out)
{
    size_t size;
    NRL_TRY(idle_render(self, c, out));
    nrl_harness_text_bytes(out->text, &size);
    if (out->trained) nrl_spans_add(out->trained, 0, size);
    return NRL_OK;
}

static nrl_status prompting_render(void *self, const nrl_conversation *c, nrl_rendering *out)
{
    nrl_conversation all = *c;
    all.n_prompt = 0;
    return fixed_render(self, &all, out);
}

static nrl_status stubborn_render(void *self, const nrl_conversation *c, nrl_rendering *out)
{
    nrl_message own[16];
    nrl_conversation all = *c;
    for (size_t i = 0; i < c->n && i < 16; i++) {
        own[i] = *(const nrl_message *)(const void *)((const char *)c->messages + i * c->message_size);
        own[i].train = NRL_MESSAGE_UNSAID;
    }
    all.messages = own;
    all.message_size = sizeof *own;
    return fixed_render(self, &all, out);
}

/* The last span first. */
static nrl_status backward_render(void *self, const nrl_conversation *c, nrl_rendering *out)
{
    size_t begin, end;
    nrl_rendering own = *out;
    own.trained = nrl_harness_spans_create();
    nrl_status st = fixed_render(self, c, &own);
    out->bos = own.bos;
    for (size_t i = nrl_harness_spans_n(own.trained); out->trained && i-- > 0;) {
        nrl_harness_spans_at(own.trained, i, &begin, &end);
        nrl_spans_add(out->trained, begin, end);
    }
    nrl_harness_spans_free(own.trained);
    return st;
}

static nrl_status ruling_render(void *self, const nrl_conversation *c, nrl_rendering *out)
{
    NRL_TRY(fixed_render(self, c, out));
    out->span_rule = 7;
    return NRL_OK;
}

static int32_t endless_end(void *self)
{
    (void)self;
    return 9999;
}

static nrl_status empty_jinja(void *self, nrl_text *out)
{
    (void)self, (void)out;
    return NRL_OK;
}

#pragma GCC diagnostic ignored "-Woverride-init"
#define WRONG(nm, rule, ...)                                                                                           \
    {                                                                                                                  \
        NRL_PLUGIN(NRL_KIND_TEMPLATE, nrl_template, fixed_options, fixed_rows, #nm, "0", rule),                        \
            .words = fixed_words, .probe = fixed_probe, .open = right_open, .close = fixed_close,                      \
            .render = fixed_render, __VA_ARGS__                                                                        \
    }
static const nrl_template wrong[] = {
    WRONG(right, "nothing is wrong with it", .reads_keys = NULL),
    WRONG(greedy, "a probe leaves other words alone", .probe = greedy_probe),
    WRONG(blind, "a probe knows its own words", .probe = blind_probe),
    WRONG(lineless, "an error names the line", .open = lineless_open),
    WRONG(nameless, "an error names the text", .open = nameless_open),
    WRONG(blaming, "a text that cannot be read is NRL_ERR_CONFIG", .open = blaming_open),
    WRONG(any, "an unknown word is refused by its name", .open = any_open),
    WRONG(needy, "it opens without a tokenizer", .open = needy_open),
    WRONG(holding, "nothing stays open", .open = holding_open),
    WRONG(leaking, "close gives the memory back", .close = leaking_close),
    WRONG(sharing, "instances live side by side", .close = sharing_close, .render = sharing_render),
    WRONG(chatty, "spans change no text", .render = chatty_render),
    WRONG(moody, "equal conversations give equal text", .render = moody_render),
    WRONG(leading, "a generation prompt begins the answer's turn", .render = leading_render),
    WRONG(silent, "the text holds every message", .render = silent_render),
    WRONG(cutting, "content may hold NUL", .render = cutting_render),
    WRONG(racing, "several threads render the same text", .render = racing_render),
    WRONG(crying, "a refused conversation is NRL_ERR_DATA", .render = crying_render),
    WRONG(vague, "an error names the message", .render = vague_render),
    WRONG(idle, "a span includes what the assistant says", .render = idle_render),
    WRONG(eager, "messages of others are not trained", .render = eager_render),
    WRONG(prompting, "the prompt is not trained", .render = prompting_render),
    WRONG(stubborn, "a message that is marked untrained is not trained", .render = stubborn_render),
    WRONG(backward, "spans lie in the text, in order", .render = backward_render),
    WRONG(ruling, "a span rule is one of the header", .render = ruling_render),
    WRONG(endless, "the end token is a token of the tokenizer", .end_token = endless_end),
    WRONG(wordless, "its text in Jinja is written", .as_jinja = empty_jinja),
    WRONG(lacks_render, "render is NULL", .render = NULL),
};
#undef WRONG

#endif
