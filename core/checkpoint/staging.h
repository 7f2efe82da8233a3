/*
 * staging.h - host memory that snapshots are copied into. It is touched once and kept: a page that the
 * kernel still has to find and clear costs several times the copy. One thread at a time.
 */
#ifndef CHECKPOINT_STAGING_H
#define CHECKPOINT_STAGING_H
#include "checkpoint/workers.h"
#include <stdbool.h>

typedef struct {
    unsigned char *base;
    size_t size, used;
} staging_block;

typedef struct {
    staging_block *blocks;
    size_t n;
} staging;

/* Room for `size` bytes in one block, touched. NRL_ERR_MEMORY also where the machine, or the
 * process's control group, has not that much available. */
nrl_status staging_reserve(staging *s, size_t size, workers *pool);
/* 64-byte aligned; stays where it is until staging_reset. NRL_ERR_MEMORY. */
nrl_status staging_take(staging *s, size_t size, void **room);
void staging_reset(staging *s); /* all of it is free again */
void staging_free(staging *s);

/* One copy of a snapshot. */
typedef struct {
    void *to; /* of staging_take */
    const void *from;
    size_t size;
} staging_copy;
/* All of them, by all workers. */
void staging_copy_all(workers *pool, const staging_copy *copies, size_t n);

#endif
