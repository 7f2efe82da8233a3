/*
 * apart_plugin.c - the backend "apart": computes as the cpu backend does, in memory that the host
 * must not touch. What runs on it runs on a device of its own, as far as the core goes.
 *
 * Arguments reach the cpu's operations with every pointer into device memory replaced by where the
 * same bytes can be reached. Options are the cpu's.
 */
#include "arena.h"
#include <dlfcn.h>
#include <nrl/nrl.h>
#include <stdlib.h>
#include <string.h>

#define DEVICE_BYTES ((size_t)16 << 30) /* of addresses */

struct nrl_stream {
    int unused; /* all is done when a call returns */
};

struct nrl_event {
    nrl_stream *stream;
};

typedef struct {
    const nrl_backend *cpu;
    void *cpu_self;
    apart_arena arena;
} apart;

static const nrl_backend *cpu_table(void)
{
    void *library = dlopen(APART_CPU, RTLD_NOW | RTLD_LOCAL);
    void *symbol = library ? dlsym(library, "nrl_plugin_entry") : NULL;
    const nrl_plugin *(*entry)(void);
    memcpy(&entry, &symbol, sizeof entry);
    return entry ? (const nrl_backend *)(const void *)entry() : NULL;
}

static nrl_status apart_open(const void *options, int32_t index, void **out)
{
    *out = NULL;
    apart *self = calloc(1, sizeof *self);
    if (!self) return nrl_fail(NRL_ERR_MEMORY, "no memory to open the device");
    self->cpu = cpu_table();
    nrl_status st = apart_arena_open(&self->arena, DEVICE_BYTES);
    if (!st) st = self->cpu->open(options, index, &self->cpu_self);
    if (st) {
        apart_arena_close(&self->arena);
        free(self);
        return st;
    }
    *out = self;
    return NRL_OK;
}

static void apart_close(void *instance)
{
    apart *self = instance;
    self->cpu->close(self->cpu_self);
    apart_arena_close(&self->arena);
    free(self);
}

static nrl_status apart_facts(void *instance, nrl_device_facts *fill)
{
    apart *self = instance;
    NRL_TRY(self->cpu->facts(self->cpu_self, fill));
    strcpy(fill->name, "memory that is not the host's");
    fill->memory_bytes = (int64_t)DEVICE_BYTES;
    fill->host_memory = false;
    return NRL_OK;
}

/* ---- memory and copies ---- */

static nrl_status apart_alloc(void *instance, size_t bytes, void **out)
{
    return apart_arena_take(&((apart *)instance)->arena, bytes, out);
}

static void apart_free(void *instance, void *memory)
{
    apart_arena_give(&((apart *)instance)->arena, memory);
}

static nrl_status apart_alloc_host(void *instance, size_t bytes, void **out)
{
    apart *self = instance;
    return self->cpu->alloc_host(self->cpu_self, bytes, out);
}

static void apart_free_host(void *instance, void *memory)
{
    apart *self = instance;
    self->cpu->free_host(self->cpu_self, memory);
}

static nrl_status apart_copy(void *instance, nrl_stream *stream, void *to, const void *from,
                             size_t bytes, uint32_t direction)
{
    apart *self = instance;
    apart_arena *a = &self->arena;
    bool to_device = direction != NRL_COPY_TO_HOST, from_device = direction != NRL_COPY_TO_DEVICE;
    if (apart_holds(a, to) != to_device || apart_holds(a, from) != from_device)
        return nrl_fail(NRL_ERR_BUG, "a copy says that it goes the way %u, its addresses do not",
                        direction);
    (void)stream;
    memmove(to_device ? apart_real(a, to) : to, from_device ? apart_real(a, from) : from, bytes);
    return NRL_OK;
}

/* ---- streams and events ---- */

static nrl_status apart_stream_create(void *instance, nrl_stream **out)
{
    (void)instance;
    *out = calloc(1, sizeof **out);
    return *out ? NRL_OK : nrl_fail(NRL_ERR_MEMORY, "no memory for a stream");
}

static void apart_stream_destroy(void *instance, nrl_stream *stream)
{
    (void)instance;
    free(stream);
}

static nrl_status apart_stream_wait(void *instance, nrl_stream *stream)
{
    (void)instance;
    (void)stream;
    return NRL_OK;
}

static nrl_status apart_event_record(void *instance, nrl_stream *stream, nrl_event **out)
{
    *out = malloc(sizeof **out);
    if (!*out) return nrl_fail(NRL_ERR_MEMORY, "no memory for an event");
    (void)instance;
    (*out)->stream = stream;
    return NRL_OK;
}

static nrl_status apart_event_fence(void *instance, nrl_stream *stream, nrl_event *event)
{
    (void)instance;
    (void)stream;
    (void)event;
    return NRL_OK;
}

static nrl_status apart_event_wait(void *instance, nrl_event *event)
{
    (void)instance;
    (void)event;
    return NRL_OK;
}

static void apart_event_destroy(void *instance, nrl_event *event)
{
    (void)instance;
    free(event);
}

/* ---- operations ---- */

/* Words that are addresses of device memory become what the cpu can use. */
static void translate(const apart *self, void *args, size_t bytes)
{
    for (size_t i = 0; i + sizeof(void *) <= bytes; i += sizeof(void *)) {
        void *word;
        memcpy(&word, (char *)args + i, sizeof word);
        if (!apart_holds(&self->arena, word)) continue;
        word = apart_real(&self->arena, word);
        memcpy((char *)args + i, &word, sizeof word);
    }
}

/* clang-format off */
#define APART_OPS(X)                                                                               \
    X(fill) X(copy) X(unary) X(unary_grad) X(binary) X(binary_grad) X(where) X(reduce) X(softmax)  \
    X(softmax_grad) X(gemm) X(gather) X(scatter) X(norm) X(norm_grad) X(rope) X(attention)         \
    X(attention_grad) X(glu) X(glu_grad) X(head) X(head_grad) X(adamw) X(square_sum) X(dropout) X(split16)
/* clang-format on */
#define APART_OP(name)                                                                             \
    static nrl_status apart_op_##name(void *instance, nrl_stream *stream, const nrl_##name##_args *a) \
    {                                                                                              \
        const apart *self = instance;                                                              \
        nrl_##name##_args args = *a;                                                               \
        (void)stream;                                                                              \
        translate(self, &args, sizeof args);                                                       \
        return self->cpu->ops->name(self->cpu_self, NULL, &args);                                  \
    }
APART_OPS(APART_OP)

#define APART_ENTRY(name) .name = apart_op_##name,
static const nrl_ops apart_ops = {.size = sizeof(nrl_ops), APART_OPS(APART_ENTRY)};

static nrl_backend apart_table = {
    .ops = &apart_ops,
    .open = apart_open,
    .close = apart_close,
    .facts = apart_facts,
    .alloc = apart_alloc,
    .free = apart_free,
    .alloc_host = apart_alloc_host,
    .free_host = apart_free_host,
    .copy = apart_copy,
    .stream_create = apart_stream_create,
    .stream_destroy = apart_stream_destroy,
    .stream_wait = apart_stream_wait,
    .event_record = apart_event_record,
    .event_fence = apart_event_fence,
    .event_wait = apart_event_wait,
    .event_destroy = apart_event_destroy,
};

/* The cpu's options under another name. */
NRL_API const nrl_plugin *nrl_plugin_entry(void);
const nrl_plugin *nrl_plugin_entry(void)
{
    apart_table.plugin = cpu_table()->plugin;
    apart_table.plugin.size = sizeof apart_table;
    apart_table.plugin.name = "apart";
    apart_table.plugin.summary = "for tests: the CPU, in memory that the host must not touch";
    apart_table.probe = cpu_table()->probe;
    return &apart_table.plugin;
}
