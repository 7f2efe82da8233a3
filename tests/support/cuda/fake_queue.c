/*
 * fake_queue.c - see fake_queue.h.
 */
#include "fake_queue.h"
#include <stdlib.h>
#include <string.h>

typedef struct late_copy late_copy;
struct late_copy {
    late_copy *next;
    void *to;
    const void *from;
    size_t bytes;
    char staged[];
};

static late_copy *first, **last = &first;
static size_t n_queued, n_done;

void fake_queue_copy(void *to, const void *from, size_t bytes, bool staged)
{
    late_copy *c = calloc(1, sizeof *c + (staged ? bytes : 0));
    if (!c) abort();
    c->to = to;
    c->from = from;
    c->bytes = bytes;
    if (staged) c->from = memcpy(c->staged, from, bytes);
    *last = c;
    last = &c->next;
    n_queued++;
}

size_t fake_queue_length(void)
{
    return n_queued;
}

void fake_queue_run(size_t until)
{
    for (; first && n_done < until; n_done++) {
        late_copy *c = first;
        first = c->next;
        if (!first) last = &first;
        memmove(c->to, c->from, c->bytes);
        free(c);
    }
}
