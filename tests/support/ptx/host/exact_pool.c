/*
 * exact_pool.c - replaces the pool of the backend when kernels run as PTX: every block is a
 * separate range, so that a byte past its end is out of bounds, and the contents of each scratch
 * block are undefined.
 */
#include "cuda_backend.h"
#include "ptx.h"
#include <stdlib.h>

typedef struct block block;
struct block {
    block *next;
    void *memory;
    size_t bytes;
};

struct cuda_pool {
    const cuda_driver *driver;
    size_t limit_bytes;
    block *blocks;
    cuda_pool_stats stats;
};

nrl_status cuda_pool_create(const cuda_driver *driver, size_t limit_bytes, cuda_pool **out)
{
    cuda_pool *p = calloc(1, sizeof *p);
    if (!p) return nrl_fail(NRL_ERR_MEMORY, "no memory for a pool");
    p->driver = driver;
    p->limit_bytes = limit_bytes;
    *out = p;
    return NRL_OK;
}

void cuda_pool_destroy(cuda_pool *p)
{
    while (p && p->blocks)
        cuda_pool_give(p, p->blocks->memory);
    free(p);
}

nrl_status cuda_pool_take(cuda_pool *p, size_t bytes, void **out)
{
    cuda_pool_stats *f = &p->stats;
    block *b = calloc(1, sizeof *b);
    if (!b) return nrl_fail(NRL_ERR_MEMORY, "no memory");
    b->bytes = bytes;
    bool fits = !p->limit_bytes || (bytes <= p->limit_bytes && f->used_bytes <= p->limit_bytes - bytes);
    if (!fits || p->driver->allocate(&b->memory, bytes)) {
        free(b);
        return nrl_fail(NRL_ERR_MEMORY, "the GPU has no %zu bytes left: %zu are used of %zu", bytes, f->used_bytes,
                        p->limit_bytes);
    }
    b->next = p->blocks;
    p->blocks = b;
    f->used_bytes = f->held_bytes = f->used_bytes + bytes;
    if (f->used_bytes > f->used_peak_bytes) f->used_peak_bytes = f->held_peak_bytes = f->used_bytes;
    f->n_blocks = ++f->n_segments;
    f->n_allocations++;
    *out = b->memory;
    return NRL_OK;
}

void cuda_pool_give(cuda_pool *p, void *memory)
{
    for (block **at = &p->blocks; memory && *at; at = &(*at)->next) {
        block *b = *at;
        if (b->memory != memory) continue;
        *at = b->next;
        p->stats.used_bytes -= b->bytes;
        p->stats.held_bytes = p->stats.used_bytes;
        p->stats.n_blocks = --p->stats.n_segments;
        (void)p->driver->release(memory);
        free(b);
        return;
    }
}

void cuda_pool_trim(cuda_pool *p)
{
    (void)p;
}

void cuda_pool_measure(const cuda_pool *p, cuda_pool_stats *fill)
{
    *fill = p->stats;
}

nrl_status cuda_pool_stream_add(cuda_pool *p, void *stream)
{
    (void)p, (void)stream;
    return NRL_OK;
}

void cuda_pool_stream_own(cuda_pool *p, void *stream)
{
    (void)p, (void)stream;
}

void cuda_pool_stream_remove(cuda_pool *p, void *stream)
{
    (void)p, (void)stream;
}

/* Callers of cuda_scratch come here through the linker's --wrap. */
nrl_status __real_cuda_scratch(cuda *self, void *stream, size_t bytes, void **out);
nrl_status __wrap_cuda_scratch(cuda *self, void *stream, size_t bytes, void **out);
nrl_status __wrap_cuda_scratch(cuda *self, void *stream, size_t bytes, void **out)
{
    NRL_TRY(__real_cuda_scratch(self, stream, bytes, out));
    if (bytes) ptx_memory_add(*out, bytes, true);
    return NRL_OK;
}
