/*
 * fake_queue.c - see fake_queue.h.
 */
#include "fake_queue.h"
#include <stdlib.h>
#include <string.h>

typedef struct late_work late_work;
struct late_work {
    late_work *next;
    void *stream;
    size_t number;
    void *to; /* NULL: waits for another stream */
    const void *from;
    size_t bytes;
    void *other;
    size_t until;
    char staged[];
};

static late_work *first; /* of all streams, in the order in which they were queued */
static size_t n_queued;

static late_work *add(void *stream, size_t staged)
{
    late_work **at = &first, *w = calloc(1, sizeof *w + staged);
    if (!w) abort();
    while (*at)
        at = &(*at)->next;
    w->stream = stream;
    w->number = n_queued++;
    return *at = w;
}

void fake_queue_copy(void *stream, void *to, const void *from, size_t bytes, bool staged)
{
    late_work *w = add(stream, staged ? bytes : 0);
    w->to = to;
    w->from = staged ? memcpy(w->staged, from, bytes) : from;
    w->bytes = bytes;
}

void fake_queue_fence(void *stream, void *other, size_t until)
{
    late_work *w = add(stream, 0);
    w->other = other;
    w->until = until;
}

size_t fake_queue_length(void)
{
    return n_queued;
}

static late_work **find(void *stream, size_t until)
{
    late_work **at = &first;
    while (*at && ((*at)->stream != stream || (*at)->number >= until))
        at = &(*at)->next;
    return at;
}

bool fake_queue_is_done(void *stream, size_t until)
{
    return !*find(stream, until);
}

void fake_queue_run(void *stream, size_t until)
{
    for (late_work **at = find(stream, until), *w; (w = *at); at = find(stream, until)) {
        *at = w->next;
        if (w->to)
            memmove(w->to, w->from, w->bytes);
        else
            fake_queue_run(w->other, w->until);
        free(w);
    }
}

void fake_queue_reach(void *stream)
{
    fake_queue_run(stream, SIZE_MAX);
}

void fake_queue_drain(void)
{
    while (first)
        fake_queue_reach(first->stream);
}
