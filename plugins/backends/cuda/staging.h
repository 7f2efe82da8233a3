/*
 * staging.h - host memory that the device copies from at full speed.
 *
 * Allocating pinned memory is slow (milliseconds), so freed blocks are kept by size. Copies between
 * pageable memory and the device go in pieces through a ring of pinned buffers: while one buffer is
 * being transferred, the host fills or empties the next. Small copies share a buffer; the host waits
 * only when the ring wraps around. The runtime's own copies of pageable memory are not used, because
 * they may wait for the stream. [any]
 */
#ifndef CUDA_STAGING_H
#define CUDA_STAGING_H
#include "driver.h"
#include <nrl/status.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef struct cuda_staging cuda_staging;

nrl_status cuda_staging_create(const cuda_driver *driver, cuda_staging **out);
void cuda_staging_destroy(cuda_staging *s); /* NULL is allowed */

nrl_status cuda_staging_take(cuda_staging *s, size_t bytes, void **out);
void cuda_staging_give(cuda_staging *s, void *memory);

/* Queued on stream. With pinned memory of this staging the call returns at once, and the memory must stay
 * valid. From pageable memory, it returns when the memory was read; to pageable memory, when it is
 * written. */
nrl_status cuda_staging_copy(cuda_staging *s, void *stream, void *to, const void *from, size_t bytes,
                             cuda_copy_way way);

#ifdef __cplusplus
}
#endif
#endif
