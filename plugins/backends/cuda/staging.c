/*
 * staging.c - the cache of pinned memory, and copies in pieces.
 */
#include "staging.h"
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum {
    SMALLEST = 4 << 10,
    COARSE = 16 << 20, /* from here on sizes are multiples of this: a snapshot may take most of the host's memory */
    PIECE = 4 << 20,   /* bytes per buffer */
    BUFFERS = 4,       /* a buffer holds the small inputs of some hundred micro-batches until the device reads them */
    ALIGN = 256
};
#define IDLE_MOST ((size_t)1 << 30) /* beyond this, freed memory is no longer pinned */

typedef struct piece piece;
struct piece {
    piece *next;
    char *memory;
    size_t bytes; /* a power of two, or a multiple of COARSE */
};

struct cuda_staging {
    const cuda_driver *driver;
    pthread_mutex_t lock;
    piece *used, *idle;
    size_t idle_bytes;
    struct {
        char *memory;
        void *event, *stream; /* recorded after the last copy, on the only stream used */
        size_t filled;
        bool busy; /* event is recorded */
    } buffer[BUFFERS];
    int at;          /* the buffer that is being filled */
    bool no_buffers; /* buffers could not be allocated: copy directly */
};

nrl_status cuda_staging_create(const cuda_driver *driver, cuda_staging **out)
{
    cuda_staging *s = calloc(1, sizeof *s);
    if (!s) return nrl_fail(NRL_ERR_MEMORY, "no memory for staging");
    s->driver = driver;
    pthread_mutex_init(&s->lock, NULL);
    *out = s;
    return NRL_OK;
}

static void free_list(cuda_staging *s, piece **list)
{
    while (*list) {
        piece *p = *list;
        *list = p->next;
        (void)s->driver->release_host(p->memory);
        free(p);
    }
}

void cuda_staging_destroy(cuda_staging *s)
{
    if (!s) return;
    for (int i = 0; i < BUFFERS; i++) {
        if (s->buffer[i].event) (void)s->driver->event_destroy(s->buffer[i].event);
        if (s->buffer[i].memory) (void)s->driver->release_host(s->buffer[i].memory);
    }
    free_list(s, &s->used);
    free_list(s, &s->idle);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

/* ---- pinned memory ---- */

static size_t rounded(size_t bytes)
{
    size_t size = SMALLEST;
    if (bytes > COARSE) return (bytes + COARSE - 1) / COARSE * COARSE;
    while (size < bytes)
        size *= 2;
    return size;
}

static piece *take_idle(cuda_staging *s, size_t bytes)
{
    for (piece **at = &s->idle; *at; at = &(*at)->next) {
        piece *p = *at;
        if (p->bytes != bytes) continue;
        *at = p->next;
        s->idle_bytes -= bytes;
        return p;
    }
    return NULL;
}

static nrl_status new_piece(cuda_staging *s, size_t bytes, piece **out)
{
    piece *p = calloc(1, sizeof *p);
    void *memory = NULL;
    int code = p ? s->driver->allocate_host(&memory, bytes) : CUDA_NO_MEMORY;
    if (code == CUDA_NO_MEMORY && s->idle) {
        free_list(s, &s->idle);
        s->idle_bytes = 0;
        code = p ? s->driver->allocate_host(&memory, bytes) : CUDA_NO_MEMORY;
    }
    if (code) {
        free(p);
        return nrl_fail(code == CUDA_NO_MEMORY ? NRL_ERR_MEMORY : NRL_ERR_DEVICE,
                        "cannot allocate %zu bytes of pinned host memory: %s", bytes, s->driver->error_text(code));
    }
    *p = (piece){.memory = memory, .bytes = bytes};
    *out = p;
    return NRL_OK;
}

nrl_status cuda_staging_take(cuda_staging *s, size_t bytes, void **out)
{
    nrl_status st = NRL_OK;
    if (bytes > (size_t)1 << 46)
        return nrl_fail(NRL_ERR_MEMORY, "cannot allocate %zu bytes of pinned host memory", bytes);
    size_t size = rounded(bytes);
    pthread_mutex_lock(&s->lock);
    piece *p = take_idle(s, size);
    if (!p) st = new_piece(s, size, &p);
    if (!st) {
        p->next = s->used;
        s->used = p;
        *out = p->memory;
    }
    pthread_mutex_unlock(&s->lock);
    return st;
}

void cuda_staging_give(cuda_staging *s, void *memory)
{
    if (!memory) return;
    pthread_mutex_lock(&s->lock);
    for (piece **at = &s->used; *at; at = &(*at)->next) {
        piece *p = *at;
        if (p->memory != memory) continue;
        *at = p->next;
        if (s->idle_bytes + p->bytes <= IDLE_MOST) {
            p->next = s->idle;
            s->idle = p;
            s->idle_bytes += p->bytes;
        } else {
            (void)s->driver->release_host(p->memory);
            free(p);
        }
        break;
    }
    pthread_mutex_unlock(&s->lock);
}

/* ---- copies ---- */

static bool is_pinned(const cuda_staging *s, const void *host, size_t bytes)
{
    const char *begin = host;
    for (const piece *p = s->used; p; p = p->next)
        if (begin >= p->memory && begin + bytes <= p->memory + p->bytes) return true;
    return false;
}

static bool have_buffers(cuda_staging *s)
{
    const cuda_driver *d = s->driver;
    for (int i = 0; i < BUFFERS && !s->no_buffers; i++) {
        void *memory = s->buffer[i].memory;
        if (!memory && d->allocate_host(&memory, PIECE) != CUDA_DONE)
            s->no_buffers = true;
        else if (!s->buffer[i].event && d->event_create(&s->buffer[i].event) != CUDA_DONE)
            s->no_buffers = true;
        s->buffer[i].memory = memory;
    }
    return !s->no_buffers;
}

static int wait_buffer(cuda_staging *s, int i)
{
    s->buffer[i].filled = 0;
    if (!s->buffer[i].busy) return CUDA_DONE;
    s->buffer[i].busy = false;
    return s->driver->event_wait(s->buffer[i].event);
}

/* Reserves n <= PIECE bytes: after the last copy's if they fit and the stream is the same, else in the
 * next buffer, after the device has finished with it. */
static int take_room(cuda_staging *s, size_t n, void *stream, int *buffer, size_t *place)
{
    int code = CUDA_DONE;
    bool fits = s->buffer[s->at].filled + n <= PIECE;
    if (!fits || (s->buffer[s->at].busy && s->buffer[s->at].stream != stream)) {
        s->at = (s->at + 1) % BUFFERS;
        code = wait_buffer(s, s->at);
    }
    *buffer = s->at;
    *place = s->buffer[s->at].filled;
    s->buffer[s->at].filled += (n + ALIGN - 1) / ALIGN * ALIGN;
    s->buffer[s->at].stream = stream;
    return code;
}

static int start_piece(cuda_staging *s, int i, void *to, const void *from, size_t n, cuda_copy_way way, void *stream)
{
    int code = s->driver->copy(to, from, n, way, stream);
    if (!code) code = s->driver->event_record(s->buffer[i].event, stream);
    s->buffer[i].busy = !code;
    return code;
}

static size_t piece_at(size_t bytes, size_t at)
{
    return bytes - at < PIECE ? bytes - at : PIECE;
}

/* The host waits only for copies that are BUFFERS pieces back. */
static int copy_in(cuda_staging *s, void *stream, char *to, const char *from, size_t bytes)
{
    int code = CUDA_DONE, i;
    size_t place;
    for (size_t at = 0; at < bytes && !code; at += PIECE) {
        size_t n = piece_at(bytes, at);
        code = take_room(s, n, stream, &i, &place);
        if (code) break;
        memcpy(s->buffer[i].memory + place, from + at, n);
        code = start_piece(s, i, to + at, s->buffer[i].memory + place, n, CUDA_TO_DEVICE, stream);
    }
    return code;
}

/* Piece k is transferred while piece k-1 is emptied. */
static int copy_out(cuda_staging *s, void *stream, char *to, const char *from, size_t bytes)
{
    size_t pieces = (bytes + PIECE - 1) / PIECE, place = 0, last_place = 0;
    int code = CUDA_DONE, i = 0, last = 0;
    for (size_t k = 0; k <= pieces && !code; k++) {
        size_t at = k * PIECE, n = k < pieces ? piece_at(bytes, at) : 0;
        if (k < pieces) code = take_room(s, n, stream, &i, &place);
        if (k < pieces && !code)
            code = start_piece(s, i, s->buffer[i].memory + place, from + at, n, CUDA_TO_HOST, stream);
        if (k > 0 && !code) {
            code = s->driver->event_wait(s->buffer[last].event);
            s->buffer[last].busy = false;
            if (!code) memcpy(to + at - PIECE, s->buffer[last].memory + last_place, piece_at(bytes, at - PIECE));
        }
        last = i;
        last_place = place;
    }
    return code;
}

/* The runtime may return before pageable memory is written: its documentation no longer promises otherwise. */
static int copy_straight(cuda_staging *s, void *stream, void *to, const void *from, size_t bytes, cuda_copy_way way,
                         bool pinned)
{
    int code = s->driver->copy(to, from, bytes, way, stream);
    return code || pinned || way != CUDA_TO_HOST ? code : s->driver->stream_wait(stream);
}

nrl_status cuda_staging_copy(cuda_staging *s, void *stream, void *to, const void *from, size_t bytes, cuda_copy_way way)
{
    const cuda_driver *d = s->driver;
    int code;
    pthread_mutex_lock(&s->lock);
    bool pinned = way != CUDA_ON_DEVICE && is_pinned(s, way == CUDA_TO_DEVICE ? from : to, bytes);
    if (way == CUDA_ON_DEVICE || pinned || !have_buffers(s))
        code = copy_straight(s, stream, to, from, bytes, way, pinned);
    else if (way == CUDA_TO_DEVICE)
        code = copy_in(s, stream, to, from, bytes);
    else
        code = copy_out(s, stream, to, from, bytes);
    pthread_mutex_unlock(&s->lock);
    if (!code) return NRL_OK;
    return nrl_fail(NRL_ERR_DEVICE, "copying %zu bytes failed on the GPU: %s (CUDA error %d)", bytes,
                    d->error_text(code), code);
}
