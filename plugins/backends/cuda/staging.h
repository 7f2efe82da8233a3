/*
 * staging.h - host memory that the device copies from at full speed.
 *
 * Pinned memory is slow to get (milliseconds), so freed pieces are kept by size. Copies between
 * pageable memory and the device go in pieces through a ring of pinned buffers: while one is on the
 * wire, the host fills or empties the next. Small ones lie side by side in a buffer; the host waits
 * only when the ring has come round. The runtime's own copies of pageable memory are not used: they may
 * wait for the stream. [any]
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
void cuda_staging_destroy(cuda_staging *s); /* NULL is fine */

nrl_status cuda_staging_take(cuda_staging *s, size_t bytes, void **out);
void cuda_staging_give(cuda_staging *s, void *memory);

/* Queued on stream. From or to pinned memory of this staging: returns at once, the memory must
 * stay. From pageable memory: returns when it was read; to pageable memory: when it is there. */
nrl_status cuda_staging_copy(cuda_staging *s, void *stream, void *to, const void *from, size_t bytes,
                             cuda_copy_way way);

#ifdef __cplusplus
}
#endif
#endif
