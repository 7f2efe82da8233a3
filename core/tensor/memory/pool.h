/*
 * pool.h - device memory in refcounted blocks, allocated from segments.
 *
 * The pool allocates segments of whole MiBs on the device. A block is the best-fitting idle part of a segment; a
 * released block is merged with idle neighbours. So a step with the shapes of the previous step allocates nothing on
 * the device, and a step with other lengths uses memory that the longest step so far has left. Segments without live
 * blocks are freed when the pool holds more than 1.25 times the recent peak. Small blocks have separate segments, so
 * that a long-lived small block does not fragment a large segment.
 */
#ifndef TENSOR_POOL_H
#define TENSOR_POOL_H
#include "base/arena.h"
#include "tensor/device/device.h"

typedef enum {
    POOL_SMALL = 0,
    POOL_LARGE,
    POOL_EXACT,   /* persistent: an allocation of its own, freed on the device when released */
    POOL_BORROWED /* memory owned by other code; the pool never frees it */
} pool_kind;

typedef struct pool_block pool_block;
struct pool_block {
    void *data;
    size_t size;                 /* bytes that the block can hold; of borrowed memory those that count as live */
    pool_block *before, *after;  /* neighbours in the segment, NULL at its ends */
    pool_block *next, *previous; /* in an idle list; `next` also links spare headers */
    int32_t count;               /* number of tensors that refer to it; 0 = idle */
    pool_kind kind;
};

enum {
    POOL_CLASSES = 352, /* eight per power of two, up to 2^51 bytes */
    POOL_PERIODS = 8    /* micro-batches whose peak counts as recent */
};

typedef struct {
    const device *device;
    pool_block *idle[2][POOL_CLASSES];  /* by kind and size class: blocks of at least the size of the class */
    pool_block *headers;                /* spare */
    arena memory;                       /* of headers */
    size_t live_bytes;                  /* in use, pooled and exact */
    size_t peak_bytes;                  /* most of live_bytes since pool_reset_peak */
    size_t exact_bytes;                 /* the persistent part of live_bytes */
    size_t idle_bytes;                  /* allocated on the device, not in use */
    size_t held_bytes, held_peak_bytes; /* allocated on the device: now, and at most */
    size_t period_peak;                 /* peak of pooled live bytes since the last pool_period */
    size_t recent[POOL_PERIODS];
    int64_t n_periods;
    int64_t n_device_allocations; /* for tests: constant in the steady state */
} pool;

void pool_init(pool *p, const device *d);
void pool_destroy(pool *p); /* frees idle segments; live blocks must be gone */

/* Allocates a block of at least `bytes` (0 gives the smallest block), with count 1 and undefined contents. */
nrl_status pool_take(pool *p, size_t bytes, pool_block **out);
nrl_status pool_take_exact(pool *p, size_t bytes, pool_block **out);
/* Makes a block of memory that other code owns. The memory must outlive the block. `bytes` of it count as live. */
pool_block *pool_borrow(pool *p, void *data, size_t bytes);
size_t pool_bytes(const pool_block *b);    /* that a block holds */
void pool_release(pool *p, pool_block *b); /* decrements the count; frees the block at 0 */
void pool_period(
    pool *p);            /* call it when a micro-batch begins: frees segments that recent micro-batches did not need */
void pool_trim(pool *p); /* frees every idle segment */
void pool_reset_peak(pool *p);

#endif
