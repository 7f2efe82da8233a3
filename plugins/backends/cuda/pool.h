/*
 * pool.h - device memory from plain cudaMalloc, in segments that are cut and joined.
 *
 * cudaFree waits for the whole device and cudaMalloc takes a fraction of a millisecond, so what was
 * once got is kept and cut anew; segments that are idle as a whole go back only when memory runs
 * out. Requests up to 1 MiB share segments of 2 MiB, up to 10 MiB ones of 20 MiB, larger have their
 * own.
 *
 * A freed block may be used again at once by work queued later on the same stream. Where several
 * streams live (pool_stream_add), a freed block first waits for an event on each. [step]
 */
#ifndef CUDA_POOL_H
#define CUDA_POOL_H
#include "driver.h"
#include <nrl/status.h>
#include <stdbool.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef struct cuda_pool cuda_pool;

typedef struct {
    size_t used_bytes, used_peak_bytes; /* handed out */
    size_t held_bytes, held_peak_bytes; /* got from the device */
    size_t waiting_bytes;               /* freed, but a stream may still read it */
    size_t largest_idle_bytes;
    double fragmentation;                        /* share of idle bytes outside the largest idle block, 0 to 1 */
    int64_t n_segments, n_blocks, n_allocations; /* n_allocations: asked of the device, ever */
} cuda_pool_stats;

/* limit_bytes: held at most; 0 = as much as there is. */
nrl_status cuda_pool_create(const cuda_driver *driver, size_t limit_bytes, cuda_pool **out);
void cuda_pool_destroy(cuda_pool *p); /* gives back everything, used or not; NULL is fine */

/* 512-byte aligned; NRL_ERR_MEMORY says what was wanted, is free and is held. */
nrl_status cuda_pool_take(cuda_pool *p, size_t bytes, void **out);
void cuda_pool_give(cuda_pool *p, void *memory); /* NULL is fine */
void cuda_pool_trim(cuda_pool *p);               /* idle segments go back to the device */
void cuda_pool_measure(const cuda_pool *p, cuda_pool_stats *fill);

enum { CUDA_MAX_STREAMS = 16 };
nrl_status cuda_pool_stream_add(cuda_pool *p, void *stream);
void cuda_pool_stream_remove(cuda_pool *p, void *stream); /* its work is done */

#ifdef __cplusplus
}
#endif
#endif
