/*
 * tokenizer.c - see tokenizer.h. Also the functions of nrl/tokenizer.h, which plugins call.
 */
#include "plugin/component.h"
#include "text/tokenizer.h"
#include "tokens/written.h"
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
    if (list->lacks_memory) return;
    size_t room = list->room ? list->room : 256;
    while (room - list->n < n)
        room *= 2;
    int32_t *ids = list->ids;
    size_t *starts = list->starts;
    if (room > list->room || !ids) ids = mem_try_grow(ids, room * sizeof *ids, "token ids");
    if (ids) list->ids = ids;
    if (ids && list->want_starts && (room > list->room || !starts)) /* the list grew before starts were wanted */
        starts = mem_try_grow(starts, room * sizeof *starts, "the starts of tokens");
    if (starts) list->starts = starts;
    list->lacks_memory = !ids || (list->want_starts && !starts);
    if (!list->lacks_memory) list->room = room;
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
    nrl_status st = plugin_choice_options(&tok->memory, "model.tokenizer", choice, p, &options);
    if (st == NRL_OK) st = table->open(options, source, &self);
    if (st != NRL_OK) {
        arena_free(&tok->memory);
        free(tok);
        return st;
    }
    tok->info.size = sizeof tok->info;
    table->info(self, &tok->info);
    tok->open = (nrl_open_tokenizer){.size = sizeof tok->open, .table = table, .self = self, .info = &tok->info};
    tok->has_new_tokens = nrl_node_find(choice->options, "add_tokens");
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
        p = plugin_find(host, NRL_KIND_TOKENIZER, INT32_MAX, tokenizer_probe, &source, &asked);
    nrl_status st = p ? tokenizer_open_by(p, choice, &source, out)
                      : nrl_fail(NRL_ERR_DATA,
                                 "%s: no tokenizer plugin recognises it; tried: %s\n"
                                 "hint: model.tokenizer: {name: PLUGIN, path: PATH} selects the plugin",
                                 source.path, asked.text ? asked.text : "none is installed");
    buffer_free(&asked);
    return st;
}

config_choice tokenizer_with_tokens(arena *a, config_choice choice, const nrl_node *new_tokens)
{
    nrl_node *options = choice.options ? node_copy(a, choice.options) : node_new(a, NRL_NODE_MAP);
    if (!new_tokens) return choice;
    node_set(a, options, "add_tokens", node_copy(a, new_tokens));
    choice.options = options;
    return choice;
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
    bool is = plugin_find(host, NRL_KIND_TOKENIZER, NRL_PROBE_YES, tokenizer_probe, &source, &asked) != NULL;
    buffer_free(&asked);
    return is;
}

/* ---- encoding and decoding ---- */

nrl_status nrl_tokenizer_encode(const nrl_open_tokenizer *t, void *scratch, const char *text, size_t size,
                                uint32_t flags, nrl_token_ids *out)
{
    if (size > NRL_ENCODE_MAX_TEXT)
        return nrl_fail(NRL_ERR_DATA, "a text of %zu bytes; expected at most %d bytes", size, NRL_ENCODE_MAX_TEXT);
    void *own = scratch || !t->table->scratch_create ? NULL : t->table->scratch_create(t->self);
    nrl_status st = t->table->encode(t->self, own ? own : scratch, text, size, flags, out),
               memory = token_ids_check(out);
    if (own) t->table->scratch_destroy(own);
    return st == NRL_OK ? memory : st;
}

nrl_status nrl_tokenizer_decode(const nrl_open_tokenizer *t, const int32_t *ids, size_t n, bool skip_special,
                                char **text, size_t *size)
{
    nrl_text out = {.b.what = "the text of tokens"};
    nrl_status st = t->table->decode(t->self, ids, n, skip_special, &out);
    if (st != NRL_OK) {
        buffer_free(&out.b);
        return st;
    }
    if (size) *size = out.b.size;
    *text = buffer_take(&out.b);
    return *text ? NRL_OK : NRL_ERR_MEMORY;
}
