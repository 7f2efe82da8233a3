/*
 * pool.c - size classes, idle lists and the rule for giving memory back.
 */
#include "tensor/pool.h"
#include <string.h>

enum {
    SMALLEST = 64,       /* bytes; also the step of the classes up to SMALL_END */
    SMALL_END = 512,     /* above it, eight classes a power of two */
    NEAR_CLASSES = 2,    /* a block a quarter too large still serves */
    FAR_CLASSES = 8,     /* one twice too large serves rather than pass the limit */
    ALLOWED_IDLE_DIV = 4 /* reserve at most 1 + 1/4 of the recent peak */
};

/* Rounds up to the class size: multiples of 64 up to 512, then 2^e (1 + q/8). */
static int size_class(size_t bytes, size_t *size)
{
    if (bytes <= SMALL_END) {
        size_t n = bytes ? (bytes + SMALLEST - 1) / SMALLEST : 1;
        *size = n * SMALLEST;
        return (int)n - 1;
    }
    int e = 63 - __builtin_clzll((unsigned long long)bytes - 1); /* 2^e <= bytes-1 < 2^(e+1) */
    size_t step = (size_t)1 << (e - 3);
    size_t n = (bytes + step - 1) / step; /* 9 .. 16 */
    *size = n * step;
    return SMALL_END / SMALLEST + (e - 9) * 8 + (int)n - 9;
}

void pool_init(pool *p, const device *d)
{
    *p = (pool){.device = d};
}

static size_t pooled_live(const pool *p)
{
    return p->live_bytes - p->exact_bytes;
}

static pool_block *header_new(pool *p)
{
    pool_block *b = p->headers;
    if (b)
        p->headers = b->next;
    else
        b = arena_alloc(&p->memory, sizeof *b);
    *b = (pool_block){.count = 1};
    return b;
}

static void header_free(pool *p, pool_block *b)
{
    b->next = p->headers;
    p->headers = b;
}

/* Gives idle blocks back, largest first, until at most `keep` idle bytes are left. */
static void shrink(pool *p, size_t keep)
{
    for (int c = POOL_CLASSES - 1; c >= 0 && p->idle_bytes > keep; c--) {
        while (p->idle[c] && p->idle_bytes > keep) {
            pool_block *b = p->idle[c];
            p->idle[c] = b->next;
            p->idle_bytes -= b->size;
            p->device->table.free(p->device->self, b->data);
            header_free(p, b);
        }
    }
}

static size_t recent_peak(const pool *p)
{
    size_t most = p->period_peak;
    for (int i = 0; i < POOL_PERIODS; i++)
        if (p->recent[i] > most) most = p->recent[i];
    return most;
}

static size_t allowed_reserve(const pool *p)
{
    size_t peak = recent_peak(p);
    return peak + peak / ALLOWED_IDLE_DIV;
}

static pool_block *take_idle(pool *p, int first, int n_classes)
{
    int end = first + n_classes < POOL_CLASSES ? first + n_classes : POOL_CLASSES;
    for (int c = first; c < end; c++) {
        pool_block *b = p->idle[c];
        if (!b) continue;
        p->idle[c] = b->next;
        p->idle_bytes -= b->size;
        b->next = NULL;
        b->count = 1;
        return b;
    }
    return NULL;
}

static void count_live(pool *p, const pool_block *b)
{
    p->live_bytes += b->size;
    if (b->class_ == POOL_EXACT) p->exact_bytes += b->size;
    if (p->live_bytes > p->peak_bytes) p->peak_bytes = p->live_bytes;
    if (pooled_live(p) > p->period_peak) p->period_peak = pooled_live(p);
}

static nrl_status from_device(pool *p, size_t size, int class_, pool_block **out)
{
    const device *d = p->device;
    void *data = NULL;
    nrl_status st = d->table.alloc(d->self, size, &data);
    if (st == NRL_ERR_MEMORY && p->idle_bytes) {
        pool_trim(p);
        st = d->table.alloc(d->self, size, &data);
    }
    if (st) return st;
    p->n_device_allocations++;
    *out = header_new(p);
    (*out)->data = data;
    (*out)->size = size;
    (*out)->class_ = class_;
    return NRL_OK;
}

nrl_status pool_take(pool *p, size_t bytes, pool_block **out)
{
    if (bytes > (size_t)1 << 50)
        return nrl_fail(NRL_ERR_MEMORY, "a tensor of %zu bytes is too large", bytes);
    size_t size;
    int class_ = size_class(bytes, &size);
    pool_block *b = take_idle(p, class_, 1 + NEAR_CLASSES);
    size_t limit = allowed_reserve(p), wanted = pooled_live(p) + size;
    if (!b && wanted + p->idle_bytes > limit && p->idle_bytes) {
        b = take_idle(p, class_, 1 + FAR_CLASSES);
        if (!b) shrink(p, limit > wanted ? limit - wanted : wanted / ALLOWED_IDLE_DIV);
    }
    if (!b) NRL_TRY(from_device(p, size, class_, &b));
    count_live(p, b);
    *out = b;
    return NRL_OK;
}

nrl_status pool_take_exact(pool *p, size_t bytes, pool_block **out)
{
    if (bytes > (size_t)1 << 50)
        return nrl_fail(NRL_ERR_MEMORY, "a tensor of %zu bytes is too large", bytes);
    size_t size = (bytes + SMALLEST - 1) / SMALLEST * SMALLEST;
    NRL_TRY(from_device(p, size ? size : SMALLEST, POOL_EXACT, out));
    count_live(p, *out);
    return NRL_OK;
}

pool_block *pool_borrow(pool *p, void *data)
{
    pool_block *b = header_new(p);
    b->data = data;
    b->class_ = POOL_BORROWED;
    return b;
}

void pool_release(pool *p, pool_block *b)
{
    NRL_ASSERT(b->count, >, 0);
    if (--b->count) return;
    p->live_bytes -= b->size;
    if (b->class_ >= 0) {
        b->next = p->idle[b->class_];
        p->idle[b->class_] = b;
        p->idle_bytes += b->size;
        return;
    }
    if (b->class_ == POOL_EXACT) {
        p->exact_bytes -= b->size;
        p->device->table.free(p->device->self, b->data);
    }
    header_free(p, b);
}

void pool_period(pool *p)
{
    p->recent[p->n_periods++ % POOL_PERIODS] = p->period_peak;
    p->period_peak = pooled_live(p);
    size_t allowed = allowed_reserve(p), live = pooled_live(p);
    shrink(p, allowed > live ? allowed - live : 0);
}

void pool_trim(pool *p)
{
    shrink(p, 0);
}

void pool_reset_peak(pool *p)
{
    p->peak_bytes = p->live_bytes;
}

void pool_destroy(pool *p)
{
    pool_trim(p);
    arena_free(&p->memory);
}
