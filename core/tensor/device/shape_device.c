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
    nrl_offload offload;
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

/* The extension "offload", whose memory is not counted and whose copies go nowhere. */
static nrl_status shape_offload_alloc(void *instance, const char *folder, size_t bytes, void **out)
{
    (void)folder;
    return shape_alloc(instance, bytes, out);
}

static void shape_offload_use(void *instance, void *memory, size_t bytes)
{
    (void)instance, (void)memory, (void)bytes;
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

static nrl_status shape_copy_create(void *self, const char *folder, size_t bytes, nrl_offload_copy **out)
{
    (void)self, (void)folder, (void)bytes;
    *out = NULL;
    return NRL_OK;
}

static nrl_status shape_copy_out(void *self, nrl_stream *stream, nrl_offload_copy *copy, size_t offset,
                                 const void *memory, size_t bytes)
{
    (void)self, (void)stream, (void)copy, (void)offset, (void)memory, (void)bytes;
    return NRL_OK;
}

static nrl_status shape_copy_back(void *self, nrl_stream *stream, nrl_offload_copy *copy, size_t offset, void *memory,
                                  size_t bytes)
{
    return shape_copy_out(self, stream, copy, offset, memory, bytes);
}

static nrl_status shape_copy_wait(void *self, nrl_stream *stream, nrl_offload_copy *copy)
{
    (void)self, (void)stream, (void)copy;
    return NRL_OK;
}

static void shape_copy_free(void *self, nrl_offload_copy *copy)
{
    (void)self, (void)copy;
}

static const void *shape_extension(void *instance, const char *name)
{
    return strcmp(name, "offload") ? NULL : &((const shape_space *)instance)->offload;
}

static void shape_close(void *instance)
{
    free(instance);
}

#define SHAPE_MEMBER(name, args) .name = own.name || other.name ? shape_##name : NULL,

device shape_device(int64_t memory_bytes, const nrl_backend *of, const nrl_backend *delegate)
{
    const nrl_ops own = device_known_ops(of), other = delegate ? device_known_ops(delegate) : (nrl_ops){0};
    shape_space *s = mem_alloc(sizeof *s);
    *s = (shape_space){.next = FIRST_ADDRESS,
                       .offload = {.size = sizeof s->offload,
                                   .self = s,
                                   .alloc = shape_offload_alloc,
                                   .use = shape_offload_use,
                                   .copy_create = shape_copy_create,
                                   .copy_out = shape_copy_out,
                                   .copy_back = shape_copy_back,
                                   .copy_wait = shape_copy_wait,
                                   .copy_free = shape_copy_free}};
    device d = {.self = s,
                .ops = {.size = sizeof(nrl_ops), NRL_OPS(SHAPE_MEMBER)},
                .info = {.size = sizeof(nrl_device_info),
                         .memory_bytes = memory_bytes,
                         .has_f16 = true,
                         .bf16_logits = true,
                         .has_fp8 = true,
                         .has_fp8_blocks = true},
                .is_shapes = true,
                .table = {.close = shape_close,
                          .alloc = shape_alloc,
                          .free = shape_free,
                          .copy = shape_transfer,
                          .extension = shape_extension}};
    d.table.plugin.name = of->plugin.name;
    d.table.custom_ops = of->custom_ops;
    d.table.attention_lacks = device_attention_lacks(of, delegate);
    d.table.joins_linears = of->joins_linears;
    d.table.rotates_gradients = of->rotates_gradients;
    if (!delegate) return d;
    d.delegate = mem_alloc(sizeof *d.delegate); /* kernels of custom operations may be the delegate's */
    d.delegate->is_shapes = true;
    d.delegate->table.plugin.name = delegate->plugin.name;
    d.delegate->table.custom_ops = delegate->custom_ops;
    return d;
}
