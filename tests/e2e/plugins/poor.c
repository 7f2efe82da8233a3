/*
 * poor.c - a backend with all operations by their names, which it never computes, and without anything in attention
 * that a backend may lack.
 */
#include <nrl/nrl.h>
#include <stdlib.h>
#include <string.h>

#define STUB(name, args)                                                                                               \
    static nrl_status poor_op_##name(void *self, nrl_stream *stream, const args *a)                                    \
    {                                                                                                                  \
        (void)self, (void)stream, (void)a;                                                                             \
        return nrl_fail(NRL_ERR_BUG, "the poor backend was asked for " #name);                                         \
    }
NRL_OPS(STUB)

#define MEMBER(name, args) .name = poor_op_##name,
static const nrl_ops ops = {.size = sizeof ops, NRL_OPS(MEMBER)};

static nrl_status poor_open(const void *options, int32_t index, void **self)
{
    (void)options, (void)index;
    *self = malloc(1);
    return *self ? NRL_OK : nrl_fail(NRL_ERR_MEMORY, "out of memory");
}

static nrl_status poor_info(void *self, nrl_device_info *fill)
{
    (void)self;
    strcpy(fill->name, "a poor one");
    fill->memory_bytes = 1 << 30;
    fill->host_memory = true;
    return NRL_OK;
}

static nrl_status poor_alloc(void *self, size_t bytes, void **out)
{
    (void)self;
    *out = aligned_alloc(64, (bytes + 63) / 64 * 64);
    return *out ? NRL_OK : nrl_fail(NRL_ERR_MEMORY, "%zu bytes wanted", bytes);
}

static void poor_free(void *self, void *memory)
{
    (void)self;
    free(memory);
}

static nrl_status poor_copy(void *self, nrl_stream *stream, void *to, const void *from, size_t bytes,
                            uint32_t direction)
{
    (void)self, (void)stream, (void)direction;
    memcpy(to, from, bytes);
    return NRL_OK;
}

static const nrl_backend table = {
    NRL_PLUGIN_PLAIN(NRL_KIND_BACKEND, nrl_backend, "poor", "1.0", "lacks what attention may lack"),
    .ops = &ops,
    .open = poor_open,
    .close = free,
    .info = poor_info,
    .alloc = poor_alloc,
    .free = poor_free,
    .copy = poor_copy,
    .attention_lacks = NRL_ATTENTION_SOFT_CAP | NRL_ATTENTION_SINKS | NRL_ATTENTION_MERGE,
};
NRL_EXPORT(table)
