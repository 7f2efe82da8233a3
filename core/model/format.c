/*
 * format.c - see format.h. Plugins that cannot be opened are reported only when no other plugin serves the path.
 */
#include "model/format.h"
#include "base/buffer.h"

static const char *format_no_variable(const char *name)
{
    (void)name;
    return NULL;
}

nrl_format_host format_host(const format_scope *scope)
{
    return (nrl_format_host){.size = sizeof(nrl_format_host),
                             .variable = scope && scope->variable ? scope->variable : format_no_variable};
}

static const char *format_holds_word(uint32_t holds)
{
    return holds == NRL_HOLDS_ADAPTER ? "an adapter" : "a model";
}

static nrl_status format_by_name(const format_scope *scope, uint32_t holds, const nrl_format **out)
{
    const plugin *p;
    NRL_TRY(plugin_open(scope->host, NRL_KIND_FORMAT, scope->name, &p));
    *out = (const nrl_format *)p->table;
    if ((*out)->holds == holds) return NRL_OK;
    return nrl_fail(NRL_ERR_CONFIG, "cannot use format '%s': it holds %s, expected a format that holds %s", scope->name,
                    format_holds_word((*out)->holds), format_holds_word(holds));
}

/* Calls `rate` on every format of the wanted kind (`holds`). The highest positive answer wins; of equals, the first. */
static nrl_status format_best(const format_scope *scope, uint32_t holds,
                              int32_t (*rate)(const nrl_format *f, const void *user), const void *user,
                              const nrl_format **out, buffer *broken)
{
    arena a = {0};
    const char **names;
    const plugin *p;
    int32_t best = 0;
    *out = NULL;
    size_t n = plugin_names(scope->host, &a, NRL_KIND_FORMAT, &names);
    for (size_t i = 0; i < n; i++) {
        if (plugin_open_candidate(scope->host, NRL_KIND_FORMAT, names[i], &p) != NRL_OK) {
            buffer_print(broken, "\n  %s cannot be used: %s", names[i], nrl_error_text());
            continue;
        }
        const nrl_format *f = (const nrl_format *)p->table;
        int32_t sure = f->holds == holds ? rate(f, user) : 0;
        if (sure <= best) continue;
        best = sure;
        *out = f;
    }
    arena_free(&a);
    return NRL_OK;
}

typedef struct {
    const char *path;
    nrl_format_host host;
} format_question;

static int32_t format_probe(const nrl_format *f, const void *user)
{
    const format_question *q = user;
    return f->probe(q->path, &q->host);
}

nrl_status format_find(const format_scope *scope, uint32_t holds, const char *path, const nrl_format **out)
{
    if (scope->name && *scope->name) return format_by_name(scope, holds, out);
    buffer broken = {0};
    const format_question q = {path, format_host(scope)};
    nrl_status st = format_best(scope, holds, format_probe, &q, out, &broken);
    if (st == NRL_OK && !*out)
        st = nrl_fail(NRL_ERR_CONFIG, "cannot open '%s': no format plugin recognises it as %s%s", path,
                      format_holds_word(holds), broken.text ? broken.text : "");
    buffer_free(&broken);
    return st;
}

static int32_t format_rate_writer(const nrl_format *f, const void *user)
{
    int32_t rank = f->plugin.priority < 0 ? 0 : f->plugin.priority;
    return !f->begin ? 0 : f == user ? INT32_MAX : rank < INT32_MAX - 1 ? rank + 1 : rank;
}

nrl_status format_for_writing(const format_scope *scope, uint32_t holds, const nrl_format *read, const nrl_format **out)
{
    buffer broken = {0};
    nrl_status st = NRL_OK;
    if (scope->name && *scope->name)
        st = format_by_name(scope, holds, out);
    else
        st = format_best(scope, holds, format_rate_writer, read, out, &broken);
    if (st == NRL_OK && (!*out || !(*out)->begin))
        st = nrl_fail(NRL_ERR_CONFIG, "cannot write %s: %s%s", format_holds_word(holds),
                      *out ? "the format is read-only" : "no format plugin writes it", broken.text ? broken.text : "");
    buffer_free(&broken);
    return st;
}
