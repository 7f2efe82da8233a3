/*
 * @NAME@.c - a chat template: replace it by your own. A turn is "ROLE: CONTENT" and a line end; an
 * answer ends with the tokenizer's EOS. A config selects it with `data.template: @NAME@`.
 * nrl/template.h describes the arguments and the contract of each member; docs/plugins/templates.md
 * explains spans.
 */
#include <nrl/nrl.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const nrl_open_tokenizer *tokenizer; /* NULL: nothing is rendered */
    const char *end;                     /* text of the EOS token */
} @NAME@_template;

static const char *const @NAME@_words[] = {"@NAME@", NULL};

static int32_t @NAME@_probe(const nrl_template_source *source)
{
    return source->word && !strcmp(source->word, "@NAME@") ? NRL_PROBE_YES : NRL_PROBE_NO;
}

static void @NAME@_close(void *self)
{
    free(self);
}

static nrl_status @NAME@_open(const void *options, const nrl_template_source *source, void **self)
{
    (void)options;
    const nrl_open_tokenizer *k = source->tokenizer;
    size_t size;
    uint32_t flags;
    if (source->text || (source->word && strcmp(source->word, "@NAME@")))
        return nrl_fail(NRL_ERR_CONFIG, "cannot open template '%s': '@NAME@' accepts neither a text nor another name", source->label);
    const char *end = k ? k->table->token_text(k->self, k->info->eos, &size, &flags) : "";
    if (!end) return nrl_fail(NRL_ERR_CONFIG, "template '@NAME@' ends an answer with EOS, but the tokenizer has none");
    @NAME@_template *t = malloc(sizeof *t);
    if (!t) return nrl_fail(NRL_ERR_MEMORY, "cannot allocate a template");
    *t = (@NAME@_template){k, end};
    *self = t;
    return NRL_OK;
}

/* Appends bytes and counts them, because spans are offsets in the text. */
static void @NAME@_put(nrl_text *text, size_t *at, const char *bytes, size_t size)
{
    if (size) nrl_text_add(text, bytes, size);
    *at += size;
}

static nrl_status @NAME@_render(void *self, const nrl_conversation *c, nrl_rendering *out)
{
    const @NAME@_template *t = self;
    size_t at = 0;
    for (size_t i = 0; i < c->n; i++) {
        const nrl_message *m = (const void *)((const char *)c->messages + i * c->message_size);
        bool is_answer = !strcmp(m->role, "assistant");
        if (!is_answer && strcmp(m->role, "user") && strcmp(m->role, "system"))
            return nrl_fail(NRL_ERR_DATA, "messages[%zu]: unknown role '%s'; expected system, user or assistant", i, m->role);
        @NAME@_put(out->text, &at, m->role, strlen(m->role));
        @NAME@_put(out->text, &at, ": ", 2);
        size_t begin = at;
        @NAME@_put(out->text, &at, m->content, m->content_size);
        if (is_answer) @NAME@_put(out->text, &at, t->end, strlen(t->end));
        if (out->trained && is_answer && i >= c->n_prompt && m->train != NRL_MESSAGE_UNTRAINED)
            nrl_spans_add(out->trained, begin, at);
        @NAME@_put(out->text, &at, "\n", 1);
    }
    if (c->add_generation_prompt) @NAME@_put(out->text, &at, "assistant: ", strlen("assistant: "));
    out->bos = t->tokenizer->info->adds_bos;
    out->span_rule = NRL_SPANS_BEGIN;
    return NRL_OK;
}

static const nrl_template @NAME@ = {
    NRL_PLUGIN_PLAIN(NRL_KIND_TEMPLATE, nrl_template, "@NAME@", "0.1", "one line for `nrl plugins`"),
    .words = @NAME@_words,
    .probe = @NAME@_probe,
    .open = @NAME@_open,
    .close = @NAME@_close,
    .render = @NAME@_render,
};
NRL_EXPORT(@NAME@)
