/*
 * fixed.c - a chat template with a fixed format: each turn is a header, a line end, the content and
 * an empty line; an answer ends with the tokenizer's EOS. A config selects it with `data.template:
 * fixed`, or with other headers as `data.template: {name: fixed, question: "Q:", answer: "A:"}`.
 *
 * Begin with the table at the end of this file. nrl/template.h describes the arguments and the
 * contract of each member.
 */
#include <nrl/nrl.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const char *question, *answer, *system;
} fixed_options;

static const nrl_option fixed_rows[] = {
    NRL_OPT_STR(fixed_options, question, "### Instruction:", "the line before a user message"),
    NRL_OPT_STR(fixed_options, answer, "### Response:", "the line before an answer"),
    NRL_OPT_STR(fixed_options, system, "### System:", "the line before the system message"),
};

typedef struct {
    const fixed_options *headers; /* live as long as the instance */
    const nrl_open_tokenizer *tokenizer;
    const char *end; /* text of the EOS token */
} fixed;

static const char *const fixed_words[] = {"fixed", NULL};

static int32_t fixed_probe(const nrl_template_source *source)
{
    return source->word && !strcmp(source->word, "fixed") ? NRL_PROBE_YES : NRL_PROBE_NO;
}

static void fixed_close(void *self)
{
    free(self);
}

static nrl_status fixed_open(const void *options, const nrl_template_source *source, void **self)
{
    const nrl_open_tokenizer *tokenizer = source->tokenizer;
    const char *end = "";
    if (source->text || (source->word && strcmp(source->word, "fixed")))
        return nrl_fail(NRL_ERR_CONFIG,
                        "cannot open template '%s': template 'fixed' accepts neither a text nor another name",
                        source->label);
    if (tokenizer) {
        size_t size;
        uint32_t flags;
        end = tokenizer->table->token_text(tokenizer->self, tokenizer->info->eos, &size, &flags);
        if (!end)
            return nrl_fail(NRL_ERR_CONFIG, "template 'fixed' ends an answer with EOS, but the tokenizer has none");
    }
    fixed *f = malloc(sizeof *f);
    if (!f) return nrl_fail(NRL_ERR_MEMORY, "cannot allocate a template");
    *f = (fixed){.headers = options, .tokenizer = tokenizer, .end = end};
    *self = f;
    return NRL_OK;
}

static const char *fixed_header(const fixed *f, const char *role)
{
    return !strcmp(role, "user")        ? f->headers->question
           : !strcmp(role, "assistant") ? f->headers->answer
           : !strcmp(role, "system")    ? f->headers->system
                                        : NULL;
}

/* Appends bytes and counts them, because spans are offsets in the text. */
static void fixed_put(nrl_text *text, size_t *at, const char *bytes, size_t size)
{
    if (size) nrl_text_add(text, bytes, size);
    *at += size;
}

static nrl_status fixed_render(void *self, const nrl_conversation *c, nrl_rendering *out)
{
    const fixed *f = self;
    size_t at = 0;
    for (size_t i = 0; i < c->n; i++) {
        const nrl_message *m = (const void *)((const char *)c->messages + i * c->message_size);
        const char *header = fixed_header(f, m->role);
        if (!header)
            return nrl_fail(NRL_ERR_DATA, "messages[%zu]: unknown role '%s'; expected system, user or assistant", i,
                            m->role);
        bool is_answer = !strcmp(m->role, "assistant");
        fixed_put(out->text, &at, header, strlen(header));
        fixed_put(out->text, &at, "\n", 1);
        size_t begin = at;
        fixed_put(out->text, &at, m->content, m->content_size);
        if (is_answer) fixed_put(out->text, &at, f->end, strlen(f->end));
        if (out->trained && is_answer && i >= c->n_prompt && m->train != NRL_MESSAGE_UNTRAINED)
            nrl_spans_add(out->trained, begin, at);
        fixed_put(out->text, &at, "\n\n", 2);
    }
    if (c->add_generation_prompt) {
        fixed_put(out->text, &at, f->headers->answer, strlen(f->headers->answer));
        fixed_put(out->text, &at, "\n", 1);
    }
    const nrl_tokenizer_info *info = f->tokenizer->info;
    out->bos = info->adds_bos && info->bos != NRL_TOKEN_NONE;
    out->span_rule = NRL_SPANS_BEGIN;
    return NRL_OK;
}

static const nrl_template fixed_template = {
    NRL_PLUGIN(NRL_KIND_TEMPLATE, nrl_template, fixed_options, fixed_rows, "fixed", "0.1",
               "instruction and response under fixed headers"),
    .words = fixed_words,
    .probe = fixed_probe,
    .open = fixed_open,
    .close = fixed_close,
    .render = fixed_render,
};
NRL_EXPORT(fixed_template)
