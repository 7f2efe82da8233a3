/*
 * apart_plugin.c - the backend "apart": computes like the cpu backend, in memory that the host must
 * not touch. For the core, a run on it is a run on a separate device.
 *
 * The operations of cpu get the arguments with every pointer into device memory replaced by an
 * accessible address of the same bytes. The options are those of cpu.
 */
#include "arena.h"
#include <dlfcn.h>
#include <nrl/nrl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEVICE_BYTES ((size_t)16 << 30) /* of address space */

NRL_API const nrl_plugin *nrl_plugin_entry(void);

struct nrl_stream {
    int unused; /* all work is done when a call returns */
};

struct nrl_event {
    nrl_stream *stream;
};

typedef struct {
    const nrl_backend *cpu;
    void *cpu_self;
    apart_arena arena;
} apart;

/* The cpu backend of the same build as this plugin: BUILD/tests/apart/backends/apart.so */
static const nrl_backend *cpu_table(void)
{
    Dl_info own;
    char path[4096];
    const bool found = dladdr((const void *)&nrl_plugin_entry, &own) != 0;
    const char *slash = found ? strrchr(own.dli_fname, '/') : NULL;
    if (!slash) return NULL;
    snprintf(path, sizeof path, "%.*s/../../../lib/nrl/backends/cpu.so", (int)(slash - own.dli_fname), own.dli_fname);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
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

static nrl_status apart_info(void *instance, nrl_device_info *fill)
{
    apart *self = instance;
    NRL_TRY(self->cpu->info(self->cpu_self, fill));
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

static nrl_status apart_copy(void *instance, nrl_stream *stream, void *to, const void *from, size_t bytes,
                             uint32_t direction)
{
    apart *self = instance;
    apart_arena *a = &self->arena;
    bool to_device = direction != NRL_COPY_TO_HOST, from_device = direction != NRL_COPY_TO_DEVICE;
    if (apart_holds(a, to) != to_device || apart_holds(a, from) != from_device)
        return nrl_fail(NRL_ERR_BUG, "a copy has direction %u, but its addresses do not match", direction);
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

/* Replaces the pointers at these offsets of `args` that point into device memory. Only members that
 * are pointers are checked, because padding and numbers may have the bits of an address. */
static void translate(const apart *self, void *args, const size_t *offsets, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        void *pointer;
        memcpy(&pointer, (char *)args + offsets[i], sizeof pointer);
        if (!apart_holds(&self->arena, pointer)) continue;
        pointer = apart_real(&self->arena, pointer);
        memcpy((char *)args + offsets[i], &pointer, sizeof pointer);
    }
}

/* APART_OP(name, member...): MAT(x) is a matrix of the arguments, PTR(x) a pointer. */
#define MAT(member) offsetof(op_args, member.data)
#define PTR(member) offsetof(op_args, member)
#define APART_OP(name, ...)                                                                                            \
    static nrl_status apart_op_##name(void *instance, nrl_stream *stream, const nrl_##name##_args *a)                  \
    {                                                                                                                  \
        typedef nrl_##name##_args op_args;                                                                             \
        static const size_t offsets[] = {__VA_ARGS__};                                                                 \
        const apart *self = instance;                                                                                  \
        op_args args = *a;                                                                                             \
        (void)stream;                                                                                                  \
        translate(self, &args, offsets, sizeof offsets / sizeof *offsets);                                             \
        return self->cpu->ops->name(self->cpu_self, NULL, &args);                                                      \
    }

APART_OP(fill, MAT(y))
APART_OP(copy, MAT(x), MAT(y))
APART_OP(unary, MAT(x), MAT(y))
APART_OP(unary_grad, MAT(x), MAT(y), MAT(dy), MAT(dx))
APART_OP(binary, MAT(a), MAT(b), MAT(y))
APART_OP(binary_grad, MAT(a), MAT(b), MAT(dy), MAT(da), MAT(db))
APART_OP(where, MAT(mask), MAT(a), MAT(b), MAT(y))
APART_OP(reduce, MAT(x), MAT(y))
APART_OP(softmax, MAT(x), MAT(y))
APART_OP(softmax_grad, MAT(y), MAT(dy), MAT(dx))
APART_OP(gemm, MAT(a), MAT(b), MAT(c), MAT(bias), PTR(fp8_a.scale), PTR(fp8_a.amax), PTR(fp8_b.scale), PTR(fp8_b.amax))
APART_OP(gather, MAT(x), MAT(y), PTR(index))
APART_OP(scatter, MAT(dy), MAT(dx), PTR(index))
APART_OP(norm, MAT(x), MAT(residual), MAT(sum), MAT(weight), MAT(bias), MAT(y), MAT(mean), MAT(rstd))
APART_OP(norm_grad, MAT(x), MAT(weight), MAT(mean), MAT(rstd), MAT(dy), MAT(dsum), MAT(dx), MAT(dweight), MAT(dbias))
APART_OP(rope, MAT(x), MAT(y), PTR(cos), PTR(sin))
APART_OP(attention, MAT(q), MAT(k), MAT(v), MAT(y), MAT(lse), PTR(cu_q), PTR(cu_k), PTR(prefix), PTR(sinks))

static nrl_status apart_op_attention_grad(void *instance, nrl_stream *stream, const nrl_attention_grad_args *a)
{
#define FORWARD(member) offsetof(nrl_attention_args, member)
    static const size_t of_forward[] = {FORWARD(q.data), FORWARD(k.data),   FORWARD(v.data),
                                        FORWARD(y.data), FORWARD(lse.data), FORWARD(cu_q),
                                        FORWARD(cu_k),   FORWARD(prefix),   FORWARD(sinks)};
#undef FORWARD
    typedef nrl_attention_grad_args op_args;
    static const size_t offsets[] = {MAT(dy), MAT(dq), MAT(dk), MAT(dv), PTR(dsinks)};
    const apart *self = instance;
    nrl_attention_args forward = *a->forward;
    op_args args = *a;
    (void)stream;
    args.forward = &forward;
    translate(self, &forward, of_forward, sizeof of_forward / sizeof *of_forward);
    translate(self, &args, offsets, sizeof offsets / sizeof *offsets);
    return self->cpu->ops->attention_grad(self->cpu_self, NULL, &args);
}

APART_OP(glu, MAT(gate), MAT(up), MAT(y))
APART_OP(glu_grad, MAT(gate), MAT(up), MAT(dy), MAT(dgate), MAT(dup))
APART_OP(head, MAT(logits), PTR(target), PTR(logp), PTR(lse), PTR(entropy), PTR(log_sum_p2), PTR(argmax))
APART_OP(head_grad, MAT(logits), MAT(dlogits), PTR(target), PTR(lse), PTR(entropy), PTR(dlogp), PTR(dentropy),
         PTR(dlse))
APART_OP(adamw, MAT(master), MAT(grad), MAT(m), MAT(v), MAT(work), MAT(low))
APART_OP(square_sum, MAT(x), PTR(out))
APART_OP(dropout, MAT(x), MAT(y), PTR(rows))
APART_OP(split16, MAT(wide), MAT(high), MAT(low))
APART_OP(quantize, MAT(x), MAT(q), MAT(scale), MAT(code))
APART_OP(dequantize, MAT(x), MAT(q), MAT(scale), MAT(code), MAT(nested), MAT(nested_code), MAT(offset))

#define APART_ENTRY(name, args) .name = apart_op_##name,
static const nrl_ops apart_ops = {.size = sizeof(nrl_ops), NRL_OPS(APART_ENTRY)};

static nrl_backend apart_table = {
    .ops = &apart_ops,
    .open = apart_open,
    .close = apart_close,
    .info = apart_info,
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
const nrl_plugin *nrl_plugin_entry(void)
{
    apart_table.plugin = cpu_table()->plugin;
    apart_table.plugin.size = sizeof apart_table;
    apart_table.plugin.name = "apart";
    apart_table.plugin.priority = 1000; /* `auto` selects it whenever it is allowed */
    apart_table.plugin.summary = "for tests: the CPU, in memory that the host must not touch";
    apart_table.probe = cpu_table()->probe;
    return &apart_table.plugin;
}
