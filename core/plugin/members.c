/*
 * members.c - one list for each kind of the members that a plugin must set. All other members are optional, as
 * documented in the kind's header.
 */
#include "plugin/members.h"
#include <nrl/nrl.h>
#include <stdio.h>
#include <string.h>

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

nrl_status members_check(const nrl_plugin *t)
{
    char absent[256] = "";
    size_t used = 0;
    for (const member *m = of_kind[t->kind]; m->name; m++) { /* the kind is a known one */
        if (is_there(t, m->offset)) continue;
        used += (size_t)snprintf(absent + used, sizeof absent - used, "%s%s", used ? ", " : "", m->name);
    }
    return used ? nrl_fail(NRL_ERR_PLUGIN, "lacks %s: required members of its table are NULL", absent) : NRL_OK;
}
