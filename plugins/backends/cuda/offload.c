/*
 * offload.c - the extension "offload": pinned memory of the host.
 *
 * Memory of `alloc` keeps its address on the device: kernels read and write it over the bus, in both directions at
 * once, and an update has the bits of one in device memory. Copies of activations have a stream for each direction,
 * ordered by events; the host waits for none of them.
 */
#include "cuda_backend.h"
#include <stdlib.h>
#include <string.h>

enum { PAGE = 4096, PLACES_PER_OCTAVE = 8 };

struct nrl_offload_copy {
    nrl_offload_copy *next; /* in the list of idle copies */
    char *memory;
    size_t room;
    void *moved; /* event after the last move */
    bool is_moved;
};

typedef struct {
    char *memory;
    size_t bytes;
} offload_block;

struct cuda_offload {
    nrl_offload table;
    cuda *device;
    offload_block *blocks; /* of `alloc` */
    int n_blocks;
    void *out, *back; /* streams; NULL until the first copy */
    void *ready;      /* event after the work that a copy follows */
    nrl_offload_copy *idle;
};

static nrl_status allocate_pinned(const cuda_offload *o, const char *folder, size_t bytes, void **out)
{
    const cuda_driver *d = o->device->driver;
    *out = NULL;
    if (folder)
        return nrl_fail(NRL_ERR_CONFIG, "train.offload: disk is not supported by backend 'cuda', which uses pinned "
                                        "host memory; expected host");
    NRL_TRY(cuda_enter(o->device));
    int code = d->allocate_host(out, bytes);
    if (!code) return NRL_OK;
    return nrl_fail(code == CUDA_NO_MEMORY ? NRL_ERR_MEMORY : NRL_ERR_DEVICE,
                    "cannot allocate %zu bytes of pinned host memory for train.offload: %s", bytes,
                    d->error_text(code));
}

/* ---- memory that is used where it is ---- */

static nrl_status offload_alloc(void *self, const char *folder, size_t bytes, void **out)
{
    cuda_offload *o = self;
    offload_block *more = realloc(o->blocks, (size_t)(o->n_blocks + 1) * sizeof *more);
    if (!more) return nrl_fail(NRL_ERR_MEMORY, "no memory for the list of offloaded blocks");
    o->blocks = more;
    NRL_TRY(allocate_pinned(o, folder, bytes ? bytes : 1, out));
    o->blocks[o->n_blocks++] = (offload_block){*out, bytes};
    memset(*out, 0, bytes);
    return NRL_OK;
}

/* Nothing to prepare: kernels reach all of it at any time. */
static void offload_use(void *self, void *memory, size_t bytes)
{
    (void)self, (void)memory, (void)bytes;
}

bool cuda_offload_holds(const cuda_offload *o, const void *memory)
{
    for (int i = 0; o && i < o->n_blocks; i++)
        if ((const char *)memory >= o->blocks[i].memory &&
            (const char *)memory < o->blocks[i].memory + o->blocks[i].bytes)
            return true;
    return false;
}

/* ---- copies ---- */

static nrl_status copies_open(cuda_offload *o)
{
    const cuda_driver *d = o->device->driver;
    if (!o->out) NRL_TRY(cuda_check(d, d->stream_create(&o->out), "creating a stream"));
    if (!o->back) NRL_TRY(cuda_check(d, d->stream_create(&o->back), "creating a stream"));
    return o->ready ? NRL_OK : cuda_check(d, d->event_create(&o->ready), "creating an event");
}

/* Sizes of micro-batches differ a little from step to step: with rounded sizes their places fit again. */
static size_t rounded(size_t bytes)
{
    size_t unit = PAGE;
    while (unit * 2 * PLACES_PER_OCTAVE <= bytes)
        unit *= 2;
    return (bytes + unit - 1) / unit * unit;
}

static nrl_status copy_create(void *self, const char *folder, size_t bytes, nrl_offload_copy **out)
{
    cuda_offload *o = self;
    const cuda_driver *d = o->device->driver;
    const size_t room = rounded(bytes);
    nrl_offload_copy **best = NULL;
    void *memory;
    *out = NULL;
    for (nrl_offload_copy **at = &o->idle; *at; at = &(*at)->next)
        if ((*at)->room >= room && (!best || (*at)->room < (*best)->room)) best = at;
    if (best) {
        *out = *best;
        *best = (*best)->next;
        return NRL_OK;
    }
    NRL_TRY(allocate_pinned(o, folder, room, &memory));
    nrl_status st = copies_open(o);
    nrl_offload_copy *copy = calloc(1, sizeof *copy);
    if (st == NRL_OK && !copy) st = nrl_fail(NRL_ERR_MEMORY, "no memory for an offloaded copy");
    if (st == NRL_OK) st = cuda_check(d, d->event_create(&copy->moved), "creating an event");
    if (st != NRL_OK) {
        free(copy);
        (void)d->release_host(memory);
        return st;
    }
    copy->memory = memory;
    copy->room = room;
    *out = copy;
    return NRL_OK;
}

/* Moves on `queue` after the work of `stream` so far, and after the copy's last move. */
static nrl_status move(cuda_offload *o, nrl_stream *stream, void *queue, nrl_offload_copy *copy, void *to,
                       const void *from, size_t bytes, cuda_copy_way way)
{
    const cuda_driver *d = o->device->driver;
    NRL_TRY(cuda_enter(o->device));
    int code = d->event_record(o->ready, cuda_stream(o->device, stream));
    if (!code) code = d->stream_fence(queue, o->ready);
    if (!code && copy->is_moved) code = d->stream_fence(queue, copy->moved);
    if (!code) code = d->copy(to, from, bytes, way, queue);
    if (!code) code = d->event_record(copy->moved, queue);
    copy->is_moved = copy->is_moved || !code;
    return cuda_check(d, code, "copying what train.offload keeps on the host");
}

static nrl_status copy_out(void *self, nrl_stream *stream, nrl_offload_copy *copy, size_t offset, const void *memory,
                           size_t bytes)
{
    cuda_offload *o = self;
    return move(o, stream, o->out, copy, copy->memory + offset, memory, bytes, CUDA_TO_HOST);
}

static nrl_status copy_back(void *self, nrl_stream *stream, nrl_offload_copy *copy, size_t offset, void *memory,
                            size_t bytes)
{
    cuda_offload *o = self;
    return move(o, stream, o->back, copy, memory, copy->memory + offset, bytes, CUDA_TO_DEVICE);
}

static nrl_status copy_wait(void *self, nrl_stream *stream, nrl_offload_copy *copy)
{
    const cuda_offload *o = self;
    const cuda_driver *d = o->device->driver;
    if (!copy->is_moved) return NRL_OK;
    NRL_TRY(cuda_enter(o->device));
    return cuda_check(d, d->stream_fence(cuda_stream(o->device, stream), copy->moved), "waiting for an event");
}

/* The next move of the same memory waits for the last one. */
static void copy_free(void *self, nrl_offload_copy *copy)
{
    cuda_offload *o = self;
    copy->next = o->idle;
    o->idle = copy;
}

/* ---- the extension ---- */

const nrl_offload *cuda_offload_open(cuda *self)
{
    if (!self->offload && (self->offload = calloc(1, sizeof *self->offload))) {
        self->offload->device = self;
        self->offload->table = (nrl_offload){.size = sizeof(nrl_offload),
                                             .self = self->offload,
                                             .alloc = offload_alloc,
                                             .use = offload_use,
                                             .copy_create = copy_create,
                                             .copy_out = copy_out,
                                             .copy_back = copy_back,
                                             .copy_wait = copy_wait,
                                             .copy_free = copy_free};
    }
    return self->offload ? &self->offload->table : NULL;
}

void cuda_offload_close(cuda_offload *o)
{
    if (!o) return;
    const cuda_driver *d = o->device->driver;
    void *const streams[] = {o->out, o->back};
    for (int i = 0; i < 2; i++) {
        if (!streams[i]) continue;
        (void)d->stream_wait(streams[i]);
        (void)d->stream_destroy(streams[i]);
    }
    if (o->ready) (void)d->event_destroy(o->ready);
    for (nrl_offload_copy *copy = o->idle, *next; copy; copy = next) {
        next = copy->next;
        (void)d->event_destroy(copy->moved);
        (void)d->release_host(copy->memory);
        free(copy);
    }
    for (int i = 0; i < o->n_blocks; i++)
        (void)d->release_host(o->blocks[i].memory);
    free(o->blocks);
    free(o);
}
