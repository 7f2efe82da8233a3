/*
 * shape_device.c - see shape_device.h.
 */
#include "tensor/device/shape_device.h"
#include "base/arena.h"
#include "tensor/device/backend_call.h"
#include <stdlib.h>
#include <string.h>

/* The next free address. Addresses are unique, so that the pool can split its segments, and are never accessed. */
#define FIRST_ADDRESS ((uintptr_t)1 << 46)
enum { SPACE = 512 };

typedef struct {
    uintptr_t next;
} shape_space;

static nrl_status shape_alloc(void *instance, size_t bytes, void **out)
{
    shape_space *s = instance;
    *out = (void *)s->next;
    s->next += (bytes + SPACE - 1) / SPACE * SPACE + SPACE;
    return NRL_OK;
}

static void shape_free(void *instance, void *memory)
{
    (void)instance, (void)memory;
}

static nrl_status shape_transfer(void *instance, nrl_stream *stream, void *to, const void *from, size_t bytes,
                                 uint32_t direction)
{
    (void)instance, (void)stream, (void)from;
    if (direction == NRL_COPY_TO_HOST) memset(to, 0, bytes);
    return NRL_OK;
}

#define SHAPE_DEFINE(name, args)                                                                                       \
    static nrl_status shape_##name(void *instance, nrl_stream *stream, const args *a)                                  \
    {                                                                                                                  \
        (void)instance, (void)stream, (void)a;                                                                         \
        return NRL_OK;                                                                                                 \
    }
NRL_OPS(SHAPE_DEFINE)

static void shape_close(void *instance)
{
    free(instance);
}

#define SHAPE_MEMBER(name, args) .name = own.name || other.name ? shape_##name : NULL,

device shape_device(int64_t memory_bytes, const nrl_backend *of, const nrl_backend *delegate)
{
    const nrl_ops own = device_known_ops(of), other = delegate ? device_known_ops(delegate) : (nrl_ops){0};
    shape_space *s = mem_alloc(sizeof *s);
    s->next = FIRST_ADDRESS;
    device d = {.self = s,
                .ops = {.size = sizeof(nrl_ops), NRL_OPS(SHAPE_MEMBER)},
                .info = {.size = sizeof(nrl_device_info), .memory_bytes = memory_bytes, .has_f16 = true},
                .is_shapes = true,
                .table = {.close = shape_close, .alloc = shape_alloc, .free = shape_free, .copy = shape_transfer}};
    d.table.plugin.name = of->plugin.name;
    if (!delegate) return d;
    d.delegate = mem_alloc(sizeof *d.delegate); /* kernels of custom operations may be the delegate's */
    d.delegate->is_shapes = true;
    d.delegate->table.plugin.name = delegate->plugin.name;
    return d;
}
