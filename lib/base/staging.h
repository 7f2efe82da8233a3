/*
 * staging.h - host memory for snapshots of state that changes. It is touched once and kept, because copying into a page
 * that the kernel must first allocate and clear takes several times as long. Snapshots of a device's memory use the
 * device's own host memory, which it copies to without the processor. One thread at a time.
 */
#ifndef BASE_STAGING_H
#define BASE_STAGING_H
#include "base/workers.h"
#include <stdbool.h>

typedef struct {
    unsigned char *base;
    size_t size, used;
    bool is_mapped; /* not from the source */
} staging_block;

/* Whose memory is used; without alloc, or after alloc has failed, that of anonymous mappings. */
typedef struct {
    nrl_status (*alloc)(void *user, size_t size, void **memory); /* 64-byte aligned */
    void (*free)(void *user, void *memory);
    void *user;
} staging_source;

typedef struct {
    staging_block *blocks;
    size_t n;
    staging_source source; /* set it before the first use */
} staging;

/* Allocates and touches `size` bytes in one block. NRL_ERR_MEMORY also if that much is not available on the machine or
 * in the control group of the process. */
nrl_status staging_reserve(staging *s, size_t size, workers *pool);
/* Returns 64-byte aligned memory, valid until staging_reset. NRL_ERR_MEMORY. */
nrl_status staging_take(staging *s, size_t size, void **room);
void staging_reset(staging *s); /* releases everything that was taken and keeps the memory */
void staging_free(staging *s);

/* One copy of a snapshot. */
typedef struct {
    void *to; /* from staging_take */
    const void *from;
    size_t size;
} staging_copy;
/* Runs all copies on all workers. NRL_ERR_MEMORY. */
nrl_status staging_copy_all(workers *pool, const staging_copy *copies, size_t n);

#endif
