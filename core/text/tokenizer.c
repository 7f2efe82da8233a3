/*
 * tokenizer.c - see tokenizer.h.
 */
#include "text/serve.h"
#include "text/tokenizer.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- what plugins write into ---- */

void nrl_text_add(nrl_text *text, const char *bytes, size_t size)
{
    buffer_add(&text->b, bytes, size);
}

void nrl_token_ids_reserve(nrl_token_ids *list, size_t n)
{
    size_t room = list->room ? list->room : 256;
    while (room - list->n < n)
        room *= 2;
    if (room > list->room || !list->ids) list->ids = mem_realloc(list->ids, room * sizeof *list->ids);
    if (list->want_starts && (room > list->room || !list->starts)) /* asked for after the list had grown */
        list->starts = mem_realloc(list->starts, room * sizeof *list->starts);
    list->room = room;
}

void nrl_token_ids_free(nrl_token_ids *list)
{
    free(list->ids);
    free(list->starts);
    *list = (nrl_token_ids){.want_starts = list->want_starts};
}

/* ---- opening ---- */

static int32_t tokenizer_probe(const plugin *p, const void *source)
{
    return ((const nrl_tokenizer *)p->table)->probe(source);
}

static nrl_status tokenizer_open_by(const plugin *p, const config_choice *choice, const nrl_tokenizer_source *source,
                                    tokenizer **out)
{
    void *options, *self;
    tokenizer *tok = mem_alloc(sizeof *tok);
    const nrl_tokenizer *table = (const nrl_tokenizer *)p->table;
    nrl_status st = serve_options(&tok->memory, "model.tokenizer", choice, p, &options);
    if (st == NRL_OK) st = table->open(options, source, &self);
    if (st != NRL_OK) {
        arena_free(&tok->memory);
        free(tok);
        return st;
    }
    tok->info.size = sizeof tok->info;
    table->info(self, &tok->info);
    tok->open = (nrl_open_tokenizer){.size = sizeof tok->open, .table = table, .self = self, .info = &tok->info};
    tok->plugin = arena_printf(&tok->memory, "%s %s", p->name, p->table->version);
    tok->identity = arena_printf(&tok->memory, "%s %s", tok->plugin, tok->info.hash);
    *out = tok;
    return NRL_OK;
}

nrl_status tokenizer_open(plugin_host *host, const config_choice *choice, tokenizer **out)
{
    struct stat info;
    buffer asked = {0};
    const plugin *p = NULL;
    const nrl_tokenizer_source source = {.size = sizeof source, .path = choice->source};
    if (stat(source.path, &info))
        return nrl_fail(errno == ENOENT || errno == ENOTDIR ? NRL_ERR_CONFIG : NRL_ERR_IO,
                        "%s: %s, expected a tokenizer", source.path, strerror(errno));
    if (choice->name)
        NRL_TRY(plugin_open(host, NRL_KIND_TOKENIZER, choice->name, &p));
    else
        p = serve_find(host, NRL_KIND_TOKENIZER, tokenizer_probe, &source, &asked);
    nrl_status st = p ? tokenizer_open_by(p, choice, &source, out)
                      : nrl_fail(NRL_ERR_DATA,
                                 "%s: no tokenizer plugin reads it; asked: %s\n"
                                 "hint: model.tokenizer: {name: PLUGIN, path: PATH} names the plugin",
                                 source.path, asked.text ? asked.text : "none is installed");
    buffer_free(&asked);
    return st;
}

nrl_status tokenizer_open_path(plugin_host *host, const char *path, tokenizer **out)
{
    const config_choice choice = {.source = path};
    return tokenizer_open(host, &choice, out);
}

nrl_status tokenizer_open_memory(plugin_host *host, const char *plugin_name, const char *label, const char *bytes,
                                 size_t size, tokenizer **out)
{
    const plugin *p;
    const config_choice choice = {.name = plugin_name};
    const nrl_tokenizer_source source = {.size = sizeof source, .path = label, .bytes = bytes, .n_bytes = size};
    NRL_TRY(plugin_open(host, NRL_KIND_TOKENIZER, plugin_name, &p));
    return tokenizer_open_by(p, &choice, &source, out);
}

void tokenizer_close(tokenizer *tok)
{
    if (!tok) return;
    tok->open.table->close(tok->open.self);
    arena_free(&tok->memory);
    free(tok);
}

bool tokenizer_is_at(plugin_host *host, const char *path)
{
    buffer asked = {0};
    const nrl_tokenizer_source source = {.size = sizeof source, .path = path};
    bool is = serve_find(host, NRL_KIND_TOKENIZER, tokenizer_probe, &source, &asked) != NULL;
    buffer_free(&asked);
    return is;
}

/* ---- encoding and decoding ---- */

struct tokenizer_scratch {
    const nrl_tokenizer *table;
    void *of_plugin;
};

tokenizer_scratch *tokenizer_scratch_create(const tokenizer *tok)
{
    tokenizer_scratch *s = mem_alloc(sizeof *s);
    s->table = tok->open.table;
    if (s->table->scratch_create) s->of_plugin = s->table->scratch_create(tok->open.self);
    return s;
}

void tokenizer_scratch_destroy(tokenizer_scratch *s)
{
    if (!s) return;
    if (s->table->scratch_destroy) s->table->scratch_destroy(s->of_plugin);
    free(s);
}

size_t tokenizer_scratch_dropped(const tokenizer_scratch *s)
{
    return s->table->scratch_dropped ? s->table->scratch_dropped(s->of_plugin) : 0;
}

static nrl_status tokenizer_check_size(size_t size)
{
    if (size <= NRL_ENCODE_MAX_TEXT) return NRL_OK;
    return nrl_fail(NRL_ERR_DATA, "a text of %zu bytes, expected at most %d in one piece", size, NRL_ENCODE_MAX_TEXT);
}

nrl_status tokenizer_encode(const tokenizer *tok, tokenizer_scratch *scratch, const char *text, size_t size,
                            uint32_t flags, nrl_token_ids *out)
{
    NRL_TRY(tokenizer_check_size(size));
    return tok->open.table->encode(tok->open.self, scratch->of_plugin, text, size, flags, out);
}

nrl_status tokenizer_decode(const tokenizer *tok, const int32_t *ids, size_t n, bool skip_special, char **text,
                            size_t *size)
{
    nrl_text out = {0};
    nrl_status st = tok->open.table->decode(tok->open.self, ids, n, skip_special, &out);
    if (st != NRL_OK) {
        buffer_free(&out.b);
        return st;
    }
    if (size) *size = out.b.size;
    *text = buffer_take(&out.b);
    return NRL_OK;
}

int32_t tokenizer_token_id(const tokenizer *tok, const char *text)
{
    return tok->open.table->token_id(tok->open.self, text, strlen(text));
}

const char *tokenizer_token_text(const tokenizer *tok, int32_t id, uint32_t *flags)
{
    size_t size;
    return tok->open.table->token_text(tok->open.self, id, &size, flags);
}

bool tokenizer_is_special(const tokenizer *tok, int32_t id)
{
    uint32_t flags = 0;
    return tokenizer_token_text(tok, id, &flags) && (flags & NRL_TOKEN_SPECIAL);
}

bool tokenizer_is_eos(const tokenizer *tok, int32_t id)
{
    for (size_t i = 0; i < tok->info.n_eos; i++)
        if (tok->info.eos_ids[i] == id) return true;
    return false;
}

/* ---- training a vocabulary ---- */

struct tokenizer_trainer {
    const nrl_tokenizer *table;
    void *of_plugin;
    arena memory;
};

static int32_t trainer_probe(const plugin *p, const void *source)
{
    (void)source;
    return ((const nrl_tokenizer *)p->table)->train_begin ? NRL_PROBE_YES : NRL_PROBE_NO;
}

nrl_status tokenizer_trainer_create(plugin_host *host, const char *plugin_name, const nrl_train_tokenizer *what,
                                    tokenizer_trainer **out)
{
    buffer asked = {0};
    const plugin *p = NULL;
    const config_choice choice = {.name = plugin_name};
    void *options;
    if (plugin_name)
        NRL_TRY(plugin_open(host, NRL_KIND_TOKENIZER, plugin_name, &p));
    else
        p = serve_find(host, NRL_KIND_TOKENIZER, trainer_probe, NULL, &asked);
    buffer_free(&asked);
    const nrl_tokenizer *table = p ? (const nrl_tokenizer *)p->table : NULL;
    if (!table || !table->train_begin)
        return nrl_fail(NRL_ERR_CONFIG, "cannot train a tokenizer: %s%s",
                        p ? "no train members in plugin " : "no plugin that trains is installed", p ? p->name : "");
    tokenizer_trainer *t = mem_alloc(sizeof *t);
    t->table = table;
    nrl_status st = serve_options(&t->memory, "tokenizer", &choice, p, &options);
    if (st == NRL_OK) st = table->train_begin(options, what, &t->of_plugin);
    if (st != NRL_OK) {
        arena_free(&t->memory);
        free(t);
        return st;
    }
    *out = t;
    return NRL_OK;
}

nrl_status tokenizer_trainer_add(tokenizer_trainer *t, const char *text, size_t size)
{
    NRL_TRY(tokenizer_check_size(size));
    return t->table->train_add(t->of_plugin, text, size);
}

nrl_status tokenizer_trainer_save(tokenizer_trainer *t, const char *folder, int64_t *n_tokens)
{
    return t->table->train_save(t->of_plugin, folder, n_tokens);
}

void tokenizer_trainer_destroy(tokenizer_trainer *t)
{
    if (!t) return;
    t->table->train_end(t->of_plugin);
    arena_free(&t->memory);
    free(t);
}
