/*
 * pool.h - device memory from plain cudaMalloc, in segments that are split and joined.
 *
 * cudaFree waits for the whole device and cudaMalloc takes a fraction of a millisecond, so segments
 * are kept and reused; wholly idle segments are returned only when memory runs out. Requests up to 1
 * MiB share segments of 2 MiB, requests up to 10 MiB share segments of 20 MiB, larger requests have
 * their own.
 *
 * Work queued later on the same stream may reuse a freed block at once. If there are several streams
 * (cuda_pool_stream_add), a freed block first waits for an event on each. [step]
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
    size_t held_bytes, held_peak_bytes; /* allocated from the device */
    size_t waiting_bytes;               /* freed, but a stream may still read them */
    size_t largest_idle_bytes;
    double fragmentation;                        /* share of idle bytes outside the largest idle block, 0 to 1 */
    int64_t n_segments, n_blocks, n_allocations; /* n_allocations: made by the device in total */
} cuda_pool_stats;

/* limit_bytes: maximum held; 0 = no limit. */
nrl_status cuda_pool_create(const cuda_driver *driver, size_t limit_bytes, cuda_pool **out);
void cuda_pool_destroy(cuda_pool *p); /* frees everything, in use or not; NULL is allowed */

/* 512-byte aligned; the text of NRL_ERR_MEMORY has the requested, free and held bytes. */
nrl_status cuda_pool_take(cuda_pool *p, size_t bytes, void **out);
void cuda_pool_give(cuda_pool *p, void *memory); /* NULL is allowed */
void cuda_pool_trim(cuda_pool *p);               /* returns idle segments to the device */
void cuda_pool_measure(const cuda_pool *p, cuda_pool_stats *fill);

enum { CUDA_MAX_STREAMS = 16 };                              /* besides the device's own */
nrl_status cuda_pool_stream_add(cuda_pool *p, void *stream); /* its work follows that of the others so far */
void cuda_pool_stream_own(cuda_pool *p, void *stream);       /* the device's own is used too; again: nothing */
void cuda_pool_stream_remove(cuda_pool *p, void *stream);    /* the stream's work is complete */

#ifdef __cplusplus
}
#endif
#endif
