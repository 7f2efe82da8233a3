/*
 * pool.h - device memory in counted blocks, cut from segments.
 *
 * The device is asked for segments of whole MiBs; a block is the best fitting idle piece of one,
 * and a released block joins its idle neighbours. So a step that repeats the shapes of the last one
 * asks the device for nothing, and one of other lengths finds room in what the longest so far has
 * left. Segments that are idle as a whole go back when more than a quarter beyond the recent peak
 * is held. Small blocks have segments of their own, so that a long-lived one does not keep a large
 * one split.
 */
#ifndef TENSOR_POOL_H
#define TENSOR_POOL_H
#include "base/arena.h"
#include "tensor/device.h"

typedef enum {
    POOL_SMALL = 0,
    POOL_LARGE,
    POOL_EXACT,   /* persistent: its own size, back to the device when released */
    POOL_BORROWED /* somebody else's memory: never freed here */
} pool_kind;

typedef struct pool_block pool_block;
struct pool_block {
    void *data;
    size_t size;                 /* bytes that the block can hold; 0 for borrowed memory */
    pool_block *before, *after;  /* neighbours in the segment, NULL at its ends */
    pool_block *next, *previous; /* in an idle list; next also among spare headers */
    int32_t count;               /* tensors that look into it, 0 = idle */
    pool_kind kind;
};

enum {
    POOL_CLASSES = 352, /* eight a power of two, up to 2^51 bytes */
    POOL_PERIODS = 8    /* micro-batches whose peak counts as recent */
};

typedef struct {
    const device *device;
    pool_block *idle[2][POOL_CLASSES];  /* by kind and size: blocks of at least the class's size */
    pool_block *headers;                /* spare */
    arena memory;                       /* of headers */
    size_t live_bytes;                  /* in use, pooled and exact */
    size_t peak_bytes;                  /* most of live_bytes since pool_reset_peak */
    size_t exact_bytes;                 /* of live_bytes, persistent */
    size_t idle_bytes;                  /* held from the device, not in use */
    size_t held_bytes, held_peak_bytes; /* got from the device: now, and most at once */
    size_t period_peak;                 /* most of the pooled live bytes since the last pool_period */
    size_t recent[POOL_PERIODS];
    int64_t n_periods;
    int64_t n_device_allocations; /* for tests: steady state means that it stands still */
} pool;

void pool_init(pool *p, const device *d);
void pool_destroy(pool *p); /* frees idle segments; live blocks must be gone */

/* A block of at least `bytes` (0 gives the smallest), count 1, contents undefined. */
nrl_status pool_take(pool *p, size_t bytes, pool_block **out);
nrl_status pool_take_exact(pool *p, size_t bytes, pool_block **out);
/* A header for memory that somebody else owns and that outlives the block. */
pool_block *pool_borrow(pool *p, void *data);
void pool_release(pool *p, pool_block *b); /* one count less */

void pool_period(pool *p); /* a micro-batch begins: give back what recent ones did not need */
void pool_trim(pool *p);   /* give back every idle segment */
void pool_reset_peak(pool *p);

#endif
