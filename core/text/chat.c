/*
 * chat.c - see chat.h. Also the functions with which templates write spans.
 */
#include "text/chat.h"
#include "base/file.h"
#include "base/json.h"
#include "tokens/written.h"
#include <stdlib.h>
#include <string.h>

enum { MAX_TEMPLATE_SIZE = 4 << 20 };

void nrl_spans_add(nrl_spans *s, size_t begin, size_t end)
{
    if (s->lacks_memory) return;
    if (s->n == s->room) {
        size_t room = s->room ? s->room * 2 : 16;
        void *at = mem_try_grow(s->at, room * sizeof *s->at, "the trained spans of a conversation");
        s->lacks_memory = !at;
        if (!at) return;
        s->at = at;
        s->room = room;
    }
    s->at[s->n].begin = begin;
    s->at[s->n++].end = end;
}

/* ---- opening ---- */

static int32_t chat_probe(const plugin *p, const void *source)
{
    return ((const nrl_template *)p->table)->probe(source);
}

char *chat_template_names(plugin_host *host)
{
    arena a = {0};
    buffer words = {0};
    const char **names;
    const plugin *p;
    size_t n = plugin_names(host, &a, NRL_KIND_TEMPLATE, &names);
    for (size_t i = 0; i < n; i++) {
        if (plugin_open_candidate(host, NRL_KIND_TEMPLATE, names[i], &p) != NRL_OK) continue;
        for (const char *const *w = ((const nrl_template *)p->table)->words; w && *w; w++)
            buffer_print(&words, "%s%s", words.size ? ", " : "", *w);
    }
    arena_free(&a);
    return buffer_take(&words);
}

static nrl_status chat_check_tokens(const chat_template *t)
{
    const char *const *token = t->table->required_tokens ? t->table->required_tokens(t->self) : NULL;
    for (; token && *token; token++) {
        uint32_t flags = 0;
        int32_t id = tokenizer_token_id(t->tok, *token);
        if (id != NRL_TOKEN_NONE) tokenizer_token_text(t->tok, id, &flags);
        if (!(flags & NRL_TOKEN_ADDED))
            return nrl_fail(NRL_ERR_CONFIG, "%s requires the special token %s, which the tokenizer does not have%s",
                            t->label, *token, t->hint);
    }
    return NRL_OK;
}

/* Hashes everything that determines the rendering: the word, the text, the options, and the template in Jinja. */
static void chat_hash(chat_template *t, const config_choice *choice, const nrl_template_source *source)
{
    char hash[HASH_TEXT];
    char *jinja = t->tok ? chat_template_jinja(t) : NULL;
    char *options = choice && choice->options ? json_write(choice->options, 0) : NULL;
    char *all = mem_printf("%s\n%s\n%s\n%s\n%s", source->word ? source->word : "", source->text ? source->text : "",
                           source->tools_text ? source->tools_text : "", jinja ? jinja : "", options ? options : "");
    hash_bytes(all, strlen(all), hash);
    t->hash = arena_strdup(&t->memory, hash);
    t->identity = arena_printf(&t->memory, "%s %s", t->plugin, hash);
    free(all);
    free(options);
    free(jinja);
}

static nrl_status chat_open_by(plugin_host *host, const plugin *p, const config_choice *choice,
                               const nrl_template_source *source, const tokenizer *tok, const chat_template **out)
{
    void *options, *self;
    chat_template *t = mem_alloc(sizeof *t);
    t->table = (const nrl_template *)p->table;
    t->tok = tok;
    t->hint = "";
    if (source->text) {
        char *names = chat_template_names(host);
        if (*names)
            t->hint =
                arena_printf(&t->memory, "\nhint: data.template can select a built-in template instead: %s", names);
        free(names);
    }
    nrl_status st = plugin_choice_options(&t->memory, "data.template", choice, p, &options);
    if (st == NRL_OK) {
        st = t->table->open(options, source, &self);
        if (st != NRL_OK) st = nrl_fail(st, "%s%s", nrl_error_text(), t->hint);
    }
    if (st != NRL_OK) {
        arena_free(&t->memory);
        free(t);
        return st;
    }
    t->self = self;
    t->label = source->word ? arena_printf(&t->memory, "template '%s'", source->word)
                            : arena_strdup(&t->memory, source->label);
    t->plugin = arena_printf(&t->memory, "%s %s", p->name, p->table->version);
    if (tok) st = chat_check_tokens(t);
    if (st != NRL_OK) {
        chat_template_close(t);
        return st;
    }
    chat_hash(t, choice, source);
    *out = t;
    return NRL_OK;
}

/* Opens the source with the plugin that the config names, or else with the plugin whose probe serves it. */
static nrl_status chat_open_source(plugin_host *host, const config_choice *choice, nrl_template_source *source,
                                   const tokenizer *tok, const chat_template **out)
{
    buffer asked = {0};
    const plugin *p = NULL;
    source->size = sizeof *source;
    source->tokenizer = tok ? &tok->open : NULL;
    if (choice->name)
        NRL_TRY(plugin_open(host, NRL_KIND_TEMPLATE, choice->name, &p));
    else
        p = plugin_find(host, NRL_KIND_TEMPLATE, INT32_MAX, chat_probe, source, &asked);
    nrl_status st;
    if (p) {
        st = chat_open_by(host, p, choice, source, tok, out);
    } else if (source->word) {
        char *names = chat_template_names(host);
        st = nrl_fail(NRL_ERR_CONFIG,
                      "unknown template '%s'; expected one of: %s; auto (the tokenizer's template); or a file",
                      source->word, names);
        free(names);
    } else {
        st = nrl_fail(NRL_ERR_CONFIG, "%s: no template plugin recognises it; tried: %s", source->label,
                      asked.text ? asked.text : "none is installed");
    }
    buffer_free(&asked);
    return st;
}

nrl_status chat_template_open_text(plugin_host *host, const config_choice *choice, const char *text,
                                   const tokenizer *tok, const chat_template **out)
{
    nrl_template_source source = {.label = choice->source, .text = text};
    return chat_open_source(host, choice, &source, tok, out);
}

static nrl_status chat_open_auto(plugin_host *host, const config_choice *choice, const tokenizer *tok,
                                 const chat_template **out)
{
    const char *folder = tok && tok->info.folder ? tok->info.folder : "the tokenizer";
    char *label = mem_printf("chat template of %s", folder);
    nrl_template_source source = {.label = label};
    nrl_status st;
    if (tok && tok->info.chat_template) {
        source.text = tok->info.chat_template;
        source.tools_text = tok->info.tools_template;
        st = chat_open_source(host, choice, &source, tok, out);
    } else {
        char *names = chat_template_names(host);
        st = nrl_fail(NRL_ERR_CONFIG,
                      "template 'auto' is the template of the tokenizer, but %s\nhint: use one of: %s; or a file",
                      tok ? "the tokenizer has none" : "there is no tokenizer", names);
        free(names);
    }
    free(label);
    return st;
}

static nrl_status chat_open_file(plugin_host *host, const config_choice *choice, const tokenizer *tok,
                                 const chat_template **out)
{
    char *text;
    size_t size;
    nrl_status st = file_read(choice->source, MAX_TEMPLATE_SIZE, &text, &size);
    if (st != NRL_OK) {
        char *names = chat_template_names(host);
        st = nrl_fail(NRL_ERR_CONFIG, "template: %s\nexpected a file, auto, or one of: %s", nrl_error_text(), names);
        free(names);
        return st;
    }
    nrl_template_source source = {.label = choice->source, .text = text};
    st = memchr(text, 0, size) ? nrl_fail(NRL_ERR_CONFIG, "%s: a template must not contain NUL", choice->source)
                               : chat_open_source(host, choice, &source, tok, out);
    free(text);
    return st;
}

/* The name of a plugin takes precedence over the words that other plugins serve. */
static bool chat_is_plugin(plugin_host *host, const char *word)
{
    arena a = {0};
    const char **names;
    bool is = false;
    size_t n = plugin_names(host, &a, NRL_KIND_TEMPLATE, &names);
    for (size_t i = 0; i < n; i++)
        is |= !strcmp(names[i], word);
    arena_free(&a);
    return is;
}

nrl_status chat_template_open(plugin_host *host, const config_choice *choice, const tokenizer *tok,
                              const chat_template **out)
{
    const char *word = choice->source;
    if (word && !strcmp(word, "auto")) return chat_open_auto(host, choice, tok, out);
    if (word && strpbrk(word, "/.")) return chat_open_file(host, choice, tok, out);
    config_choice named = *choice;
    if (word && !choice->name && chat_is_plugin(host, word)) {
        named.name = word;
        word = NULL;
    }
    nrl_template_source source = {.word = word, .label = word ? word : named.name};
    return chat_open_source(host, &named, &source, tok, out);
}

void chat_template_close(const chat_template *t)
{
    if (!t) return;
    t->table->close(t->self);
    arena memory = t->memory;
    arena_free(&memory);
    free((void *)t);
}

char *chat_template_jinja(const chat_template *t)
{
    nrl_text out = {0};
    if (!t->table->as_jinja || t->table->as_jinja(t->self, &out) != NRL_OK) {
        buffer_free(&out.b);
        return NULL;
    }
    return buffer_take(&out.b);
}
