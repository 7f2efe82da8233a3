/*
 * transfer.c - copies, streams and events of the backend's table.
 */
#include "cuda_backend.h"
#include <string.h>

/* A copy of memory of offload.c, which is pinned host memory whatever the direction says. Between two places of the
 * host, outside of steps, the host copies after the queued work. */
static nrl_status copy_offloaded(cuda *self, nrl_stream *stream, void *to, const void *from, size_t bytes,
                                 uint32_t direction)
{
    const cuda_driver *d = self->driver;
    const bool reads = cuda_offload_holds(self->offload, from), writes = cuda_offload_holds(self->offload, to);
    if (direction == NRL_COPY_ON_DEVICE && reads != writes)
        return cuda_check(d, d->copy(to, from, bytes, reads ? CUDA_TO_DEVICE : CUDA_TO_HOST, cuda_stream(self, stream)),
                          "copying what train.offload keeps on the host");
    NRL_TRY(cuda_stream_wait(self, stream));
    memcpy(to, from, bytes);
    return NRL_OK;
}

nrl_status cuda_copy_bytes(void *instance, nrl_stream *stream, void *to, const void *from, size_t bytes,
                           uint32_t direction)
{
    cuda *self = instance;
    NRL_TRY(cuda_enter(self));
    if (!bytes) return NRL_OK;
    if (cuda_offload_holds(self->offload, to) || cuda_offload_holds(self->offload, from))
        return copy_offloaded(self, stream, to, from, bytes, direction);
    cuda_copy_way way = direction == NRL_COPY_TO_DEVICE ? CUDA_TO_DEVICE
                        : direction == NRL_COPY_TO_HOST ? CUDA_TO_HOST
                                                        : CUDA_ON_DEVICE;
    NRL_TRY(cuda_staging_copy(self->staging, cuda_stream(self, stream), to, from, bytes, way));
    return way == CUDA_TO_HOST ? cuda_check_fault(self) : NRL_OK; /* work before the wait may have failed */
}

nrl_status cuda_stream_create(void *instance, nrl_stream **out)
{
    cuda *self = instance;
    const cuda_driver *d = self->driver;
    void *stream;
    NRL_TRY(cuda_enter(self));
    NRL_TRY(cuda_check(d, d->stream_create(&stream), "creating a stream"));
    nrl_status st = cuda_pool_stream_add(self->pool, stream);
    if (st) {
        (void)d->stream_destroy(stream);
        return st;
    }
    *out = stream;
    return NRL_OK;
}

void cuda_stream_destroy(void *instance, nrl_stream *stream)
{
    cuda *self = instance;
    if (!stream || cuda_enter(self) != NRL_OK) return;
    (void)self->driver->stream_wait(stream);
    cuda_release_stream(self, stream);
    cuda_pool_stream_remove(self->pool, stream);
    (void)self->driver->stream_destroy(stream);
}

nrl_status cuda_stream_wait(void *instance, nrl_stream *stream)
{
    cuda *self = instance;
    NRL_TRY(cuda_enter(self));
    int code = self->driver->stream_wait(cuda_stream(self, stream));
    NRL_TRY(cuda_check(self->driver, code, "waiting for queued work"));
    return cuda_check_fault(self);
}

static nrl_status record(cuda *self, nrl_stream *stream, int (*create)(void **out), nrl_event **out)
{
    const cuda_driver *d = self->driver;
    void *event;
    NRL_TRY(cuda_enter(self));
    NRL_TRY(cuda_check(d, create(&event), "creating an event"));
    int code = d->event_record(event, cuda_stream(self, stream));
    if (code) {
        (void)d->event_destroy(event);
        return cuda_check(d, code, "recording an event");
    }
    *out = event;
    return NRL_OK;
}

nrl_status cuda_event_record(void *instance, nrl_stream *stream, nrl_event **out)
{
    cuda *self = instance;
    return record(self, stream, self->driver->event_create, out);
}

nrl_status cuda_event_record_timed(void *instance, nrl_stream *stream, nrl_event **out)
{
    cuda *self = instance;
    return record(self, stream, self->driver->event_create_timed, out);
}

nrl_status cuda_event_seconds(void *instance, nrl_event *from, nrl_event *to, double *seconds)
{
    cuda *self = instance;
    float milliseconds = 0;
    int code = self->driver->event_elapsed(&milliseconds, from, to);
    *seconds = 1e-3 * (double)milliseconds;
    return cuda_check(self->driver, code, "reading the time between two events");
}

nrl_status cuda_event_fence(void *instance, nrl_stream *stream, nrl_event *event)
{
    cuda *self = instance;
    NRL_TRY(cuda_enter(self));
    int code = self->driver->stream_fence(cuda_stream(self, stream), event);
    return cuda_check(self->driver, code, "waiting for an event");
}

nrl_status cuda_event_wait(void *instance, nrl_event *event)
{
    cuda *self = instance;
    NRL_TRY(cuda_enter(self));
    NRL_TRY(cuda_check(self->driver, self->driver->event_wait(event), "waiting for an event"));
    return cuda_check_fault(self);
}

void cuda_event_destroy(void *instance, nrl_event *event)
{
    cuda *self = instance;
    if (event && cuda_enter(self) == NRL_OK) (void)self->driver->event_destroy(event);
}
