/*
 * pool.c - segments and their blocks, idle lists by size, and the rule for freeing segments.
 */
#include "tensor/memory/pool.h"
#if defined(__has_feature)
#define HAS_FEATURE(x) __has_feature(x)
#else
#define HAS_FEATURE(x) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || HAS_FEATURE(address_sanitizer)
#include <sanitizer/asan_interface.h>
#define GUARD 64 /* poisoned bytes after every block */
#else
#define ASAN_POISON_MEMORY_REGION(data, size) ((void)(data), (void)(size))
#define ASAN_UNPOISON_MEMORY_REGION(data, size) ((void)(data), (void)(size))
#define GUARD 0
#endif

enum {
    ALIGN = 64,             /* bytes: alignment of addresses and sizes of blocks */
    CLASS_FROM = 512,       /* size classes: multiples of 64 below, eight per power of two above */
    SMALL_MOST = 256 << 10, /* largest size of a small block in bytes */
    SEGMENT = 2 << 20,      /* sizes of segments are multiples of this */
    ALLOWED_IDLE_DIV = 4    /* keep at most 1 + 1/4 of the recent peak */
};

void pool_init(pool *p, const device *d)
{
    *p = (pool){.device = d};
}

/* ---- headers ---- */

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

/* ---- poisoning for the address sanitizer ---- */

static void guard_used(const pool *p, const pool_block *b, size_t used)
{
    if (!p->device->info.host_memory) return;
    ASAN_UNPOISON_MEMORY_REGION(b->data, used);
    ASAN_POISON_MEMORY_REGION((char *)b->data + used, b->size - used);
}

/* ---- idle lists ---- */

/* The largest class whose size is at most `size`: multiples of 64, then 2^e (1 + q/8). */
static int class_of(size_t size)
{
    if (size < CLASS_FROM) return (int)(size / ALIGN) - 1;
    int e = 63 - __builtin_clzll((unsigned long long)size);
    int q = (int)(size >> (e - 3)) - 8;
    return CLASS_FROM / ALIGN - 1 + (e - 9) * 8 + q;
}

static void list_add(pool *p, pool_block *b)
{
    pool_block **list = &p->idle[b->kind][class_of(b->size)];
    b->count = 0;
    b->previous = NULL;
    b->next = *list;
    if (b->next) b->next->previous = b;
    *list = b;
    p->idle_bytes += b->size;
}

static void list_remove(pool *p, pool_block *b)
{
    if (b->next) b->next->previous = b->previous;
    if (b->previous)
        b->previous->next = b->next;
    else
        p->idle[b->kind][class_of(b->size)] = b->next;
    p->idle_bytes -= b->size;
}

/* The best fit in the size's own class, else any block of the next class that has one. */
static pool_block *find_idle(const pool *p, pool_kind kind, size_t size)
{
    int c = class_of(size);
    pool_block *best = NULL;
    for (pool_block *b = p->idle[kind][c]; b; b = b->next)
        if (b->size >= size && (!best || b->size < best->size)) best = b;
    for (c++; c < POOL_CLASSES && !best; c++)
        best = p->idle[kind][c];
    return best;
}

/* ---- segments ---- */

static size_t pooled_live(const pool *p)
{
    return p->live_bytes - p->exact_bytes;
}

/* Frees idle segments, largest first, until at most `keep` idle bytes are left. */
static void shrink(pool *p, size_t keep)
{
    for (int kind = POOL_LARGE; kind >= POOL_SMALL; kind--)
        for (int c = POOL_CLASSES - 1; c >= 0; c--)
            for (pool_block *b = p->idle[kind][c], *next; b && p->idle_bytes > keep; b = next) {
                next = b->next;
                if (b->before || b->after) continue;
                list_remove(p, b);
                guard_used(p, b, b->size);
                p->device->table.free(p->device->self, b->data);
                p->held_bytes -= b->size;
                header_free(p, b);
            }
}

/* In addition, one segment of each kind may be idle: freeing and allocating a single segment repeatedly costs more. */
static size_t allowed_reserve(const pool *p)
{
    size_t peak = p->period_peak;
    for (int i = 0; i < POOL_PERIODS; i++)
        if (p->recent[i] > peak) peak = p->recent[i];
    return peak + peak / ALLOWED_IDLE_DIV + 2 * SEGMENT;
}

static nrl_status from_device(pool *p, size_t size, pool_kind kind, pool_block **out)
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
    p->held_bytes += size;
    if (p->held_bytes > p->held_peak_bytes) p->held_peak_bytes = p->held_bytes;
    *out = header_new(p);
    (*out)->data = data;
    (*out)->size = size;
    (*out)->kind = kind;
    return NRL_OK;
}

static nrl_status new_segment(pool *p, size_t size, pool_kind kind, pool_block **out)
{
    size_t bytes = (size + SEGMENT - 1) / SEGMENT * SEGMENT;
    size_t limit = allowed_reserve(p), wanted = pooled_live(p) + bytes;
    if (wanted + p->idle_bytes > limit) shrink(p, limit > wanted ? limit - wanted : 0);
    return from_device(p, bytes, kind, out);
}

/* ---- blocks ---- */

/* Without the guard after it. */
size_t pool_bytes(const pool_block *b)
{
    return b->kind <= POOL_LARGE ? b->size - GUARD : b->size;
}

/* Splits the part beyond `size` off as an idle block. */
static void split(pool *p, pool_block *b, size_t size)
{
    if (b->size == size) return;
    pool_block *rest = header_new(p);
    rest->data = (char *)b->data + size;
    rest->size = b->size - size;
    rest->kind = b->kind;
    rest->before = b;
    rest->after = b->after;
    if (rest->after) rest->after->before = rest;
    b->after = rest;
    b->size = size;
    list_add(p, rest);
}

/* Merges b with its neighbour b->after. */
static void join(pool *p, pool_block *b)
{
    pool_block *gone = b->after;
    b->size += gone->size;
    b->after = gone->after;
    if (b->after) b->after->before = b;
    header_free(p, gone);
}

static void count_live(pool *p, const pool_block *b)
{
    p->live_bytes += pool_bytes(b);
    if (b->kind >= POOL_EXACT) p->exact_bytes += b->size;
    if (p->live_bytes > p->peak_bytes) p->peak_bytes = p->live_bytes;
    if (pooled_live(p) > p->period_peak) p->period_peak = pooled_live(p);
}

static nrl_status rounded(size_t bytes, size_t *size)
{
    if (bytes > (size_t)1 << 50)
        return nrl_fail(NRL_ERR_MEMORY, "cannot allocate a tensor of %zu bytes: it is too large", bytes);
    *size = bytes ? (bytes + ALIGN - 1) / ALIGN * ALIGN : ALIGN;
    return NRL_OK;
}

nrl_status pool_take(pool *p, size_t bytes, pool_block **out)
{
    size_t size = 0;
    NRL_TRY(rounded(bytes, &size));
    size += GUARD;
    pool_kind kind = size <= SMALL_MOST ? POOL_SMALL : POOL_LARGE;
    pool_block *b = find_idle(p, kind, size);
    if (b)
        list_remove(p, b);
    else
        NRL_TRY(new_segment(p, size, kind, &b));
    b->count = 1;
    split(p, b, size);
    guard_used(p, b, size - GUARD);
    count_live(p, b);
    *out = b;
    return NRL_OK;
}

nrl_status pool_take_exact(pool *p, size_t bytes, pool_block **out)
{
    size_t size = 0;
    NRL_TRY(rounded(bytes, &size));
    NRL_TRY(from_device(p, size, POOL_EXACT, out));
    count_live(p, *out);
    return NRL_OK;
}

pool_block *pool_borrow(pool *p, void *data, size_t bytes)
{
    pool_block *b = header_new(p);
    b->data = data;
    b->size = bytes;
    b->kind = POOL_BORROWED;
    count_live(p, b);
    return b;
}

void pool_release(pool *p, pool_block *b)
{
    NRL_ASSERT(b->count, >, 0);
    if (--b->count) return;
    p->live_bytes -= pool_bytes(b);
    if (b->kind == POOL_SMALL || b->kind == POOL_LARGE) {
        if (p->device->info.host_memory) ASAN_POISON_MEMORY_REGION(b->data, b->size);
        if (b->after && !b->after->count) {
            list_remove(p, b->after);
            join(p, b);
        }
        if (b->before && !b->before->count) {
            b = b->before;
            list_remove(p, b);
            join(p, b);
        }
        list_add(p, b);
        return;
    }
    if (b->kind >= POOL_EXACT) p->exact_bytes -= b->size;
    if (b->kind == POOL_EXACT) {
        p->held_bytes -= b->size;
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
