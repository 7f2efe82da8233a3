/*
 * pool.c - segments, the blocks split from them, idle lists by size, and blocks that wait for other
 * streams.
 */
#include "pool_block.h"
#include <stdlib.h>
#include <string.h>

#define MIB ((size_t)1 << 20)
#define LARGEST ((size_t)1 << 50) /* a larger request is an error */
enum { ALIGN = 512, CLASSES = 42 * 4 /* four per power of two, from 512 bytes */ };

struct cuda_pool {
    const cuda_driver *driver;
    size_t limit_bytes;
    cuda_block *idle[CUDA_POOL_KINDS][CLASSES];
    cuda_block *waiting;
    cuda_table used;
    void *streams[CUDA_MAX_STREAMS + 1];
    int n_streams;
    bool has_own;          /* one of them is the device's own */
    cuda_pool_stats stats; /* largest_idle_bytes and fragmentation are computed on request */
};

nrl_status cuda_pool_create(const cuda_driver *driver, size_t limit_bytes, cuda_pool **out)
{
    cuda_pool *p = calloc(1, sizeof *p);
    if (!p) return nrl_fail(NRL_ERR_MEMORY, "no memory for the pool");
    p->driver = driver;
    p->limit_bytes = limit_bytes;
    *out = p;
    return NRL_OK;
}

/* ---- idle lists ---- */

/* The largest class whose size is at most `bytes`: 2^e (1 + q/4). */
static int class_of(size_t bytes)
{
    int e = 63 - __builtin_clzll((unsigned long long)bytes);
    return (e - 9) * 4 + (int)(bytes >> (e - 2)) - 4;
}

static void list_add(cuda_pool *p, cuda_block *b)
{
    cuda_block **list = &p->idle[b->kind][class_of(b->bytes)];
    b->state = CUDA_BLOCK_IDLE;
    b->previous = NULL;
    b->next = *list;
    if (b->next) b->next->previous = b;
    *list = b;
}

static void list_remove(cuda_pool *p, cuda_block *b)
{
    if (b->next) b->next->previous = b->previous;
    if (b->previous)
        b->previous->next = b->next;
    else
        p->idle[b->kind][class_of(b->bytes)] = b->next;
}

/* The best fit in the request's class, else any block of the next class that has one. */
static cuda_block *find_idle(const cuda_pool *p, cuda_pool_kind kind, size_t bytes)
{
    int c = class_of(bytes);
    cuda_block *best = NULL;
    for (cuda_block *b = p->idle[kind][c]; b; b = b->next)
        if (b->bytes >= bytes && (!best || b->bytes < best->bytes)) best = b;
    for (c++; c < CLASSES && !best; c++)
        best = p->idle[kind][c];
    return best;
}

/* ---- blocks ---- */

/* Splits off the part beyond `bytes`; without memory for the new header the block stays whole. */
static void split(cuda_pool *p, cuda_block *b, size_t bytes)
{
    cuda_block *rest = b->bytes > bytes ? calloc(1, sizeof *rest) : NULL;
    if (!rest) return;
    rest->memory = b->memory + bytes;
    rest->bytes = b->bytes - bytes;
    rest->kind = b->kind;
    rest->before = b;
    rest->after = b->after;
    if (rest->after) rest->after->before = rest;
    b->after = rest;
    b->bytes = bytes;
    list_add(p, rest);
}

static void join(cuda_block *b)
{
    cuda_block *gone = b->after;
    b->bytes += gone->bytes;
    b->after = gone->after;
    if (b->after) b->after->before = b;
    free(gone);
}

static void make_idle(cuda_pool *p, cuda_block *b)
{
    if (b->after && b->after->state == CUDA_BLOCK_IDLE) {
        list_remove(p, b->after);
        join(b);
    }
    if (b->before && b->before->state == CUDA_BLOCK_IDLE) {
        b = b->before;
        list_remove(p, b);
        join(b);
    }
    list_add(p, b);
}

/* ---- blocks that other streams may still use ---- */

static void drop_events(const cuda_pool *p, cuda_block *b)
{
    for (int i = 0; i < b->n_events; i++)
        (void)p->driver->event_destroy(b->events[i]);
    b->n_events = 0;
}

static bool record_events(const cuda_pool *p, cuda_block *b)
{
    for (int i = 0; i < p->n_streams; i++) {
        void *event;
        if (p->driver->event_create(&event) != CUDA_DONE) return false;
        b->events[b->n_events++] = event;
        if (p->driver->event_record(event, p->streams[i]) != CUDA_DONE) return false;
    }
    return true;
}

static bool events_done(const cuda_pool *p, const cuda_block *b, bool wait)
{
    for (int i = 0; i < b->n_events; i++) {
        int code = wait ? p->driver->event_wait(b->events[i]) : p->driver->event_query(b->events[i]);
        if (code == CUDA_NOT_READY) return false; /* the next wait finds any other error */
    }
    return true;
}

static void collect_waiting(cuda_pool *p, bool wait)
{
    for (cuda_block **at = &p->waiting; *at;) {
        cuda_block *b = *at;
        if (!events_done(p, b, wait)) {
            at = &b->next;
            continue;
        }
        *at = b->next;
        drop_events(p, b);
        p->stats.waiting_bytes -= b->bytes;
        make_idle(p, b);
    }
}

/* Idle blocks may have been freed when there was one stream, whose work may still use them: what a further stream will
 * do follows that work. Without events the host waits for it. */
static void follow_others(const cuda_pool *p, void *stream)
{
    const cuda_driver *d = p->driver;
    for (int i = 0; i < p->n_streams; i++) {
        void *event = NULL;
        int code = d->event_create(&event);
        if (!code) code = d->event_record(event, p->streams[i]);
        if (!code) code = d->stream_fence(stream, event);
        if (event) (void)d->event_destroy(event); /* the fence stays */
        if (code) (void)d->stream_wait(p->streams[i]);
    }
}

nrl_status cuda_pool_stream_add(cuda_pool *p, void *stream)
{
    if (p->n_streams - p->has_own == CUDA_MAX_STREAMS)
        return nrl_fail(NRL_ERR_DEVICE, "cannot track more than %d streams", CUDA_MAX_STREAMS);
    follow_others(p, stream);
    p->streams[p->n_streams++] = stream;
    return NRL_OK;
}

void cuda_pool_stream_own(cuda_pool *p, void *stream)
{
    if (p->has_own) return;
    follow_others(p, stream);
    p->streams[p->n_streams++] = stream;
    p->has_own = true;
}

void cuda_pool_stream_remove(cuda_pool *p, void *stream)
{
    for (int i = 0; i < p->n_streams; i++)
        if (p->streams[i] == stream) p->streams[i--] = p->streams[--p->n_streams];
}

/* ---- segments ---- */

static cuda_pool_kind kind_of(size_t bytes)
{
    return bytes <= MIB ? CUDA_POOL_SMALL : bytes <= 10 * MIB ? CUDA_POOL_MIDDLE : CUDA_POOL_LARGE;
}

static size_t segment_bytes(cuda_pool_kind kind, size_t bytes)
{
    if (kind == CUDA_POOL_SMALL) return 2 * MIB;
    if (kind == CUDA_POOL_MIDDLE) return 20 * MIB;
    return (bytes + 2 * MIB - 1) / (2 * MIB) * (2 * MIB);
}

static void release_segment(cuda_pool *p, cuda_block *b)
{
    list_remove(p, b);
    (void)p->driver->release(b->memory);
    p->stats.held_bytes -= b->bytes;
    p->stats.n_segments--;
    free(b);
}

void cuda_pool_trim(cuda_pool *p)
{
    collect_waiting(p, true);
    for (int kind = 0; kind < CUDA_POOL_KINDS; kind++)
        for (int c = 0; c < CLASSES; c++)
            for (cuda_block *b = p->idle[kind][c], *next; b; b = next) {
                next = b->next;
                if (!b->before && !b->after) release_segment(p, b);
            }
}

static nrl_status no_memory(const cuda_pool *p, size_t bytes)
{
    const double gib = 1.0 / (1 << 30);
    cuda_pool_stats f;
    size_t free_bytes = 0, total = 0;
    (void)p->driver->memory_info(&free_bytes, &total);
    cuda_pool_measure(p, &f);
    return nrl_fail(NRL_ERR_MEMORY,
                    "out of GPU memory: cannot allocate %.3f GiB, %.3f of %.1f GiB free on the device; nrl "
                    "holds %.3f GiB (limit %.3f, backend.memory_fraction): %.3f in use, %.3f in the largest idle "
                    "block\nhint: use a smaller micro-batch or sequence length",
                    (double)bytes * gib, (double)free_bytes * gib, (double)total * gib, (double)f.held_bytes * gib,
                    (double)p->limit_bytes * gib, (double)f.used_bytes * gib, (double)f.largest_idle_bytes * gib);
}

static bool within_limit(const cuda_pool *p, size_t bytes)
{
    return !p->limit_bytes || p->stats.held_bytes + bytes <= p->limit_bytes;
}

static int ask_device(cuda_pool *p, size_t bytes, void **memory)
{
    return within_limit(p, bytes) ? p->driver->allocate(memory, bytes) : CUDA_NO_MEMORY;
}

static nrl_status new_segment(cuda_pool *p, cuda_pool_kind kind, size_t bytes, cuda_block **out)
{
    size_t size = segment_bytes(kind, bytes);
    void *memory = NULL;
    cuda_block *b = calloc(1, sizeof *b);
    if (!b) return nrl_fail(NRL_ERR_MEMORY, "no host memory for the pool");
    int code = ask_device(p, size, &memory);
    if (code == CUDA_NO_MEMORY) {
        cuda_pool_trim(p);
        code = ask_device(p, size, &memory);
    }
    if (code) {
        free(b);
        if (code == CUDA_NO_MEMORY) return no_memory(p, size);
        return nrl_fail(NRL_ERR_DEVICE, "allocating %zu bytes failed on the GPU: %s (CUDA error %d)", size,
                        p->driver->error_text(code), code);
    }
    *b = (cuda_block){.memory = memory, .bytes = size, .kind = kind};
    p->stats.n_segments++;
    p->stats.n_allocations++;
    p->stats.held_bytes += size;
    if (p->stats.held_bytes > p->stats.held_peak_bytes) p->stats.held_peak_bytes = p->stats.held_bytes;
    *out = b;
    return NRL_OK;
}

/* ---- allocating and freeing ---- */

static void count_used(cuda_pool *p, const cuda_block *b)
{
    p->stats.n_blocks++;
    p->stats.used_bytes += b->bytes;
    if (p->stats.used_bytes > p->stats.used_peak_bytes) p->stats.used_peak_bytes = p->stats.used_bytes;
}

nrl_status cuda_pool_take(cuda_pool *p, size_t bytes, void **out)
{
    if (bytes > LARGEST) return no_memory(p, bytes);
    size_t size = bytes ? (bytes + ALIGN - 1) / ALIGN * ALIGN : ALIGN;
    cuda_pool_kind kind = kind_of(size);
    if (p->waiting) collect_waiting(p, false);
    cuda_block *b = find_idle(p, kind, size);
    if (!b && p->waiting) {
        collect_waiting(p, true); /* cheaper than asking the device */
        b = find_idle(p, kind, size);
    }
    if (b)
        list_remove(p, b);
    else
        NRL_TRY(new_segment(p, kind, size, &b));
    if (!cuda_table_put(&p->used, b)) {
        list_add(p, b);
        return nrl_fail(NRL_ERR_MEMORY, "no host memory for the pool");
    }
    split(p, b, size);
    b->state = CUDA_BLOCK_USED;
    count_used(p, b);
    *out = b->memory;
    return NRL_OK;
}

void cuda_pool_give(cuda_pool *p, void *memory)
{
    if (!memory) return;
    cuda_block *b = cuda_table_take(&p->used, memory);
    NRL_ASSERT(b != NULL, ==, true);
    p->stats.n_blocks--;
    p->stats.used_bytes -= b->bytes;
    if (p->n_streams <= 1) {
        make_idle(p, b);
        return;
    }
    if (!record_events(p, b)) { /* without events: wait for everything queued */
        for (int i = 0; i < p->n_streams; i++)
            (void)p->driver->stream_wait(p->streams[i]);
        drop_events(p, b);
        make_idle(p, b);
        return;
    }
    b->state = CUDA_BLOCK_WAITING;
    b->next = p->waiting;
    p->waiting = b;
    p->stats.waiting_bytes += b->bytes;
}

/* ---- stats and destruction ---- */

void cuda_pool_measure(const cuda_pool *p, cuda_pool_stats *fill)
{
    *fill = p->stats;
    size_t idle = fill->held_bytes - fill->used_bytes - fill->waiting_bytes, largest = 0;
    for (int kind = 0; kind < CUDA_POOL_KINDS; kind++)
        for (int c = 0; c < CLASSES; c++)
            for (const cuda_block *b = p->idle[kind][c]; b; b = b->next)
                if (b->bytes > largest) largest = b->bytes;
    fill->largest_idle_bytes = largest;
    fill->fragmentation = idle ? 1 - (double)largest / (double)idle : 0;
}

/* Blocks still in use are freed with the rest: the device is being closed. */
static void reclaim_used(cuda_pool *p)
{
    for (size_t i = 0; i < p->used.capacity; i++)
        if (p->used.slots[i]) list_add(p, p->used.slots[i]);
    cuda_table_free(&p->used);
}

void cuda_pool_destroy(cuda_pool *p)
{
    if (!p) return;
    collect_waiting(p, true);
    reclaim_used(p);
    for (int kind = 0; kind < CUDA_POOL_KINDS; kind++)
        for (int c = 0; c < CLASSES; c++)
            for (cuda_block *b = p->idle[kind][c]; b; b = b->next)
                if (!b->before) (void)p->driver->release(b->memory);
    for (int kind = 0; kind < CUDA_POOL_KINDS; kind++)
        for (int c = 0; c < CLASSES; c++)
            for (cuda_block *b = p->idle[kind][c], *next; b; b = next) {
                next = b->next;
                free(b);
            }
    free(p);
}
