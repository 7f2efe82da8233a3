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
    return nrl_fail(NRL_ERR_CONFIG, "cannot use format '%s': it stores %s, expected a format that stores %s",
                    scope->name, format_holds_word((*out)->holds), format_holds_word(holds));
}

typedef struct {
    uint32_t holds;
    const char *path;
    nrl_format_host host;
    const nrl_format *read; /* the format of what is written now, which the same format writes if it can */
} format_question;

static int32_t format_probe(const plugin *p, const void *user)
{
    const format_question *q = user;
    const nrl_format *f = (const nrl_format *)p->table;
    return f->holds == q->holds ? f->probe(q->path, &q->host) : NRL_PROBE_NO;
}

/* The format with the highest answer. Plugins that cannot be opened are reported only if there is none. */
static nrl_status format_best(const format_scope *scope, plugin_question *ask, const format_question *q,
                              const char *problem, const nrl_format **out)
{
    buffer asked = {0};
    const plugin *p = plugin_find(scope->host, NRL_KIND_FORMAT, INT32_MAX, ask, q, &asked);
    *out = p ? (const nrl_format *)p->table : NULL;
    nrl_status st = p ? NRL_OK
                      : nrl_fail(NRL_ERR_CONFIG, "%s%s; asked: %s", problem, format_holds_word(q->holds),
                                 asked.text ? asked.text : "none is installed");
    buffer_free(&asked);
    return st;
}

nrl_status format_find(const format_scope *scope, uint32_t holds, const char *path, const nrl_format **out)
{
    if (scope->name && *scope->name) return format_by_name(scope, holds, out);
    const format_question q = {.holds = holds, .path = path, .host = format_host(scope)};
    nrl_status st = format_best(scope, format_probe, &q, "no format plugin recognises it as ", out);
    if (st != NRL_OK) nrl_add_context("cannot open '%s'", path);
    return st;
}

static int32_t format_rate_writer(const plugin *p, const void *user)
{
    const format_question *q = user;
    const nrl_format *f = (const nrl_format *)p->table;
    int32_t rank = f->plugin.priority < 0 ? 0 : f->plugin.priority;
    if (!f->begin || f->holds != q->holds) return NRL_PROBE_NO;
    return f == q->read ? INT32_MAX : rank < INT32_MAX - 1 ? rank + 1 : rank;
}

nrl_status format_for_writing(const format_scope *scope, uint32_t holds, const nrl_format *read, const nrl_format **out)
{
    const format_question q = {.holds = holds, .read = read};
    nrl_status st = scope->name && *scope->name
                        ? format_by_name(scope, holds, out)
                        : format_best(scope, format_rate_writer, &q, "no format plugin writes ", out);
    if (st != NRL_OK || (*out)->begin) return st;
    return nrl_fail(NRL_ERR_CONFIG, "cannot write %s: the format is read-only", format_holds_word(holds));
}
