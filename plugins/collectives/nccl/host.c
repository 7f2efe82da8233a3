/*
 * host.c - operands in host memory: the small exchanges of the mesh, next to those of device tensors.
 * NCCL takes only device memory, so operands are copied to the request's room on the group's stream
 * before the exchange, and results are copied back after the exchange is known to have ended: a copy
 * that waited for the exchange would never end when a rank is lost.
 */
#include "group.h"
#include <string.h>

enum { ALIGN = 256, SMALLEST = 4096 };

/* An operand, and the offset of its copy in the room. */
typedef struct {
    char *host;
    size_t bytes, place;
} span;

static size_t padded(size_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static int64_t end_of_all(const int64_t *counts, const int64_t *offsets, int64_t count, int32_t size)
{
    int64_t end = 0;
    for (int32_t r = 0; r < size; r++) {
        int64_t n = nccl_offset_at(counts, offsets, count, r) + nccl_count_at(counts, count, r);
        end = n > end ? n : end;
    }
    return end;
}

static span span_of(const nccl_group *g, const nrl_comm_args *a, nccl_extent extent, const void *host)
{
    int64_t n = 0;
    switch (extent) {
    case NCCL_COUNT:
        n = a->count;
        break;
    case NCCL_OWN:
        n = nccl_count_at(a->counts, a->count, g->rank);
        break;
    case NCCL_ALL:
        n = end_of_all(a->counts, a->offsets, a->count, g->size);
        break;
    case NCCL_GIVEN:
        n = end_of_all(a->receive_counts, a->receive_offsets, a->count, g->size);
        break;
    default:
        break;
    }
    return (span){.host = (char *)(uintptr_t)host,
                  .bytes = host && n > 0 ? (size_t)n * nrl_dtype_size((nrl_dtype)a->dtype) : 0};
}

static bool lies_inside(const span *part, const span *whole)
{
    return part->bytes && part->host >= whole->host && part->host + part->bytes <= whole->host + whole->bytes;
}

/* If one operand lies inside the other, its copy lies inside the other's copy. Returns the bytes of both. */
static size_t lay_out(span *send, span *receive)
{
    if (lies_inside(send, receive)) {
        send->place = (size_t)(send->host - receive->host);
        return padded(receive->bytes);
    }
    if (lies_inside(receive, send)) {
        receive->place = (size_t)(receive->host - send->host);
        return padded(send->bytes);
    }
    receive->place = padded(send->bytes);
    return receive->place + padded(receive->bytes);
}

void nccl_host_free(const nccl_group *g, nrl_request *r)
{
    const nccl_driver *d = g->engine->driver;
    if (r->room) (void)d->release(r->room);
    if (r->pinned) (void)d->release_host(r->pinned);
    r->room = 0;
    r->pinned = NULL;
    r->room_bytes = 0;
}

static nrl_status make_room(const nccl_group *g, nrl_request *r, size_t bytes)
{
    const nccl_driver *d = g->engine->driver;
    size_t size = SMALLEST;
    if (bytes <= r->room_bytes) return NRL_OK;
    while (size < bytes)
        size *= 2;
    nccl_host_free(g, r);
    NRL_TRY(nccl_driver_check(d->allocate(&r->room, size), "allocating device memory"));
    NRL_TRY(nccl_driver_check(d->allocate_host(&r->pinned, size), "allocating pinned memory"));
    r->room_bytes = size;
    return NRL_OK;
}

static nrl_status copy_in(const nccl_group *g, const nrl_request *r, const span *s)
{
    char *pinned = (char *)r->pinned + s->place;
    if (!s->bytes) return NRL_OK;
    memcpy(pinned, s->host, s->bytes);
    return nccl_driver_check(g->engine->driver->copy_in(r->room + s->place, pinned, s->bytes, g->stream),
                             "copying operands");
}

nrl_status nccl_host_in(const nccl_group *g, nrl_request *r, nccl_extent send, nccl_extent receive, nrl_comm_args *a)
{
    span from = span_of(g, a, send, a->send), to = span_of(g, a, receive, a->receive);
    size_t bytes = lay_out(&from, &to);
    if (!bytes) return NRL_OK;
    NRL_TRY(make_room(g, r, bytes));
    /* Copy the old contents too where the exchange may leave some of them: in place, into a broadcast, between shares.
     */
    bool both = lies_inside(&from, &to), leaves = !from.bytes || a->offsets || a->receive_offsets;
    if (both || (leaves && !lies_inside(&to, &from))) NRL_TRY(copy_in(g, r, &to));
    if (!both) NRL_TRY(copy_in(g, r, &from));
    if (from.bytes) a->send = (const void *)(r->room + from.place);
    if (!to.bytes) return NRL_OK;
    a->receive = (void *)(r->room + to.place);
    r->host = to.host;
    r->result = r->room + to.place;
    r->result_bytes = to.bytes;
    return NRL_OK;
}

nrl_status nccl_host_out(const nccl_group *g, nrl_request *r)
{
    void *host = r->host;
    r->host = NULL;
    if (!host) return NRL_OK;
    return nccl_driver_check(g->engine->driver->copy_out(host, r->result, r->result_bytes), "copying results");
}
