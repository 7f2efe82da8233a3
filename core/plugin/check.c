/*
 * check.c - checks that a plugin keeps the contract of plugin.h. A plugin is trusted code, but outdated, newer and
 * unfinished plugins are common and must end in an error message, not in a crash.
 */
#include "plugin/check.h"
#include "base/buffer.h"
#include "config/options.h"
#include <nrl/nrl.h>
#include <string.h>

enum { MAX_TABLE = 65536, MAX_ROWS = 4096, MAX_ROW_SIZE = 1024, MAX_OPTIONS_SIZE = 1 << 20 };

/* ---- members: those that a plugin must set; all others are optional, as the header of the kind documents ---- */

typedef struct {
    const char *name;
    uint32_t offset; /* of a pointer */
} member;

#define OF(kind, name)                                                                                                 \
    {                                                                                                                  \
#name, offsetof(nrl_##kind, name)                                                                              \
    }
#define END                                                                                                            \
    {                                                                                                                  \
        NULL, 0                                                                                                        \
    }

static const member algorithm[] = {OF(algorithm, weight), OF(algorithm, loss), END};
static const member parallel[] = {OF(parallel, create), OF(parallel, destroy), OF(parallel, plan), END};
static const member optimizer[] = {OF(optimizer, update), END};
static const member backend[] = {OF(backend, ops),   OF(backend, open), OF(backend, close), OF(backend, info),
                                 OF(backend, alloc), OF(backend, free), OF(backend, copy),  END};
static const member collective[] = {OF(collective, open),           OF(collective, split),
                                    OF(collective, close),          OF(collective, abort),
                                    OF(collective, barrier),        OF(collective, broadcast),
                                    OF(collective, all_reduce),     OF(collective, all_gather),
                                    OF(collective, reduce_scatter), OF(collective, wait),
                                    OF(collective, release),        OF(collective, failed_peer),
                                    OF(collective, info),           END};
static const member logger[] = {OF(logger, open), OF(logger, write), OF(logger, close), END};
static const member model[] = {OF(model, create), OF(model, destroy), OF(model, layout), OF(model, forward), END};
static const member tokenizer[] = {OF(tokenizer, probe),       OF(tokenizer, open),
                                   OF(tokenizer, close),       OF(tokenizer, info),
                                   OF(tokenizer, encode),      OF(tokenizer, decode),
                                   OF(tokenizer, decode_next), OF(tokenizer, token_id),
                                   OF(tokenizer, token_text),  END};
static const member template[] = {OF(template, probe), OF(template, open), OF(template, close), OF(template, render),
                                  END};

static const member dataset[] = {
    OF(dataset, probe),      OF(dataset, open),     OF(dataset, close),       OF(dataset, info),
    OF(dataset, next_range), OF(dataset, next_row), OF(dataset, close_range), END};

static const member format[] = {OF(format, probe),  OF(format, open), OF(format, close),
                                OF(format, info),   OF(format, load), OF(format, n_tensors),
                                OF(format, tensor), OF(format, read), END};

static const member frontend[] = {OF(frontend, run), END};
static const member adapter[] = {OF(adapter, choose),
                                 OF(adapter, create),
                                 OF(adapter, destroy),
                                 OF(adapter, declare),
                                 OF(adapter, forward),
                                 OF(adapter, merge),
                                 END};

static const member store[] = {
    OF(store_plugin, probe), OF(store_plugin, open),     OF(store_plugin, close),  OF(store_plugin, set),
    OF(store_plugin, get),   OF(store_plugin, set_once), OF(store_plugin, remove), END};

static const member schedule[] = {OF(schedule, factor), END};

static const member *const of_kind[] = {
    [NRL_KIND_ALGORITHM] = algorithm, [NRL_KIND_PARALLEL] = parallel,     [NRL_KIND_OPTIMIZER] = optimizer,
    [NRL_KIND_BACKEND] = backend,     [NRL_KIND_COLLECTIVE] = collective, [NRL_KIND_LOGGER] = logger,
    [NRL_KIND_MODEL] = model,         [NRL_KIND_TOKENIZER] = tokenizer,   [NRL_KIND_TEMPLATE] = template,
    [NRL_KIND_DATASET] = dataset,     [NRL_KIND_FORMAT] = format,         [NRL_KIND_ADAPTER] = adapter,
    [NRL_KIND_FRONTEND] = frontend,   [NRL_KIND_STORE] = store,           [NRL_KIND_SCHEDULE] = schedule};

static bool is_there(const nrl_plugin *t, uint32_t offset)
{
    static const char null[sizeof(void *)] = {0};
    return offset + sizeof null <= t->size && memcmp((const char *)t + offset, null, sizeof null) != 0;
}

static nrl_status check_members(const nrl_plugin *t)
{
    buffer absent = {0};
    for (const member *m = of_kind[t->kind]; m->name; m++) /* the kind is a known one */
        if (!is_there(t, m->offset)) buffer_print(&absent, "%s%s", absent.size ? ", " : "", m->name);
    nrl_status st = NRL_OK;
    if (absent.size) st = nrl_fail(NRL_ERR_PLUGIN, "lacks %s: required members of its table are NULL", absent.text);
    buffer_free(&absent);
    return st;
}

/* ---- options ---- */

/* Size and alignment of the field of an option of this type; 0 = no such type. */
static size_t field_size(uint32_t type)
{
    switch ((nrl_type)type) {
    case NRL_TYPE_BOOL:
        return sizeof(bool);
    case NRL_TYPE_INT:
    case NRL_TYPE_ENUM:
        return sizeof(int64_t);
    case NRL_TYPE_F64:
        return sizeof(double);
    case NRL_TYPE_STR:
    case NRL_TYPE_PATH:
    case NRL_TYPE_NODE:
        return sizeof(void *);
    default:
        return 0;
    }
}

static nrl_status bad_row(uint32_t i, const nrl_option *row, const char *what)
{
    return nrl_fail(NRL_ERR_PLUGIN, "option %u (%.60s): %s", i, row->name ? row->name : "?", what);
}

/* Checks that the default is a value that the option accepts. */
static nrl_status check_default(const nrl_plugin *t, uint32_t i, const nrl_option *row, void *scratch)
{
    arena a = {0};
    config_problems problems = {0};
    const option_part part = {row, 1, sizeof *row, scratch};
    if (row->initial) options_fill(&a, &problems, t->name, NULL, &part, 1);
    nrl_status st = problems_report(&problems);
    arena_free(&a);
    if (st == NRL_OK) return NRL_OK;
    nrl_add_context("option %u: the default is invalid", i);
    return NRL_ERR_PLUGIN;
}

static nrl_status check_row(const nrl_plugin *t, uint32_t i, void *scratch)
{
    const nrl_option *row = option_row(t->options, i, t->option_size);
    size_t size = field_size(row->type);
    if (!row->name || !*row->name) return bad_row(i, row, "has no name");
    if (!strcmp(row->name, "name")) return bad_row(i, row, "the key 'name' is reserved for the plugin's name");
    if (!size) return bad_row(i, row, "has an unknown type");
    if (row->offset % size || row->offset > t->options_size || t->options_size - row->offset < size)
        return bad_row(i, row, "is outside the options struct");
    if (row->type == NRL_TYPE_ENUM && (!row->choices || !*row->choices))
        return bad_row(i, row, "is an enum without choices");
    if (!(row->min <= row->max)) return bad_row(i, row, "min is greater than max");
    for (uint32_t j = 0; j < i; j++)
        if (!strcmp(option_row(t->options, j, t->option_size)->name, row->name))
            return bad_row(i, row, "is declared twice");
    for (uint32_t j = 0; j < i; j++) {
        const nrl_option *other = option_row(t->options, j, t->option_size);
        if (row->offset < other->offset + field_size(other->type) && other->offset < row->offset + size)
            return bad_row(i, row, "uses the same field of the options struct as an earlier option");
    }
    return check_default(t, i, row, scratch);
}

nrl_status plugin_check(const nrl_plugin *t, const plugin_kind *kind, const char *name)
{
    if (t->abi != NRL_ABI)
        return nrl_fail(NRL_ERR_PLUGIN, "has ABI %u, expected %d; rebuild the plugin", t->abi, NRL_ABI);
    if (t->build != NRL_BUILD)
        return nrl_fail(NRL_ERR_PLUGIN, "has build parameters %u, expected %u; rebuild the plugin", t->build,
                        NRL_BUILD);
    if (t->kind != kind->kind) {
        const plugin_kind *other = plugin_kind_find(t->kind);
        return nrl_fail(NRL_ERR_PLUGIN, "has %s%s, expected kind %s", other ? "kind " : "an unknown kind",
                        other ? other->name : "", kind->name);
    }
    if (t->size < sizeof *t || t->size > MAX_TABLE)
        return nrl_fail(NRL_ERR_PLUGIN, "its table has %u bytes, which is not the size of a %s", t->size, kind->name);
    for (size_t i = kind->table_size; i < t->size; i++)
        if (((const char *)t)[i])
            return nrl_fail(NRL_ERR_PLUGIN, "needs a newer nrl (its table has %u bytes, this nrl knows %zu)", t->size,
                            kind->table_size);
    if (!t->name || !t->version || !t->summary) return nrl_fail(NRL_ERR_PLUGIN, "lacks its name, version or summary");
    if (strcmp(t->name, name))
        return nrl_fail(NRL_ERR_PLUGIN, "has the name '%.60s' in its table; expected '%.60s', as its file is called",
                        t->name, name);
    NRL_TRY(check_members(t));
    if (!t->n_options) return NRL_OK;
    if (!t->options || t->n_options > MAX_ROWS || t->option_size < sizeof(nrl_option) ||
        t->option_size > MAX_ROW_SIZE || t->option_size % sizeof(void *) || t->options_size > MAX_OPTIONS_SIZE)
        return nrl_fail(NRL_ERR_PLUGIN, "its option table is invalid (%u options of %u bytes at %s)", t->n_options,
                        t->option_size, t->options ? "some address" : "NULL");
    arena a = {0};
    void *scratch = arena_alloc(&a, t->options_size);
    nrl_status st = NRL_OK;
    for (uint32_t i = 0; i < t->n_options && st == NRL_OK; i++)
        st = check_row(t, i, scratch);
    arena_free(&a);
    return st;
}
