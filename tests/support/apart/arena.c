/*
 * arena.c - first fit over a list of ranges; an inaccessible page follows each range.
 */
#include "arena.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096 };

struct apart_range {
    apart_range *next;
    size_t begin, bytes;
    bool used;
};

nrl_status apart_arena_open(apart_arena *a, size_t size)
{
    *a = (apart_arena){.size = size};
    int file = memfd_create("apart", MFD_CLOEXEC);
    apart_range *all = calloc(1, sizeof *all);
    if (file < 0 || !all || ftruncate(file, (off_t)size)) {
        if (file >= 0) close(file);
        free(all);
        return nrl_fail(NRL_ERR_MEMORY, "no memory file of %zu bytes", size);
    }
    void *forbidden = mmap(NULL, size, PROT_NONE, MAP_SHARED | MAP_NORESERVE, file, 0);
    void *real = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
    close(file);
    if (forbidden != MAP_FAILED) madvise(forbidden, size, MADV_DONTDUMP);
    if (real != MAP_FAILED) madvise(real, size, MADV_DONTDUMP);
    *all = (apart_range){.bytes = size};
    a->ranges = all;
    if (forbidden != MAP_FAILED) a->forbidden = forbidden;
    if (real != MAP_FAILED) a->real = real;
    if (a->forbidden && a->real) return NRL_OK;
    apart_arena_close(a);
    return nrl_fail(NRL_ERR_MEMORY, "cannot map %zu bytes twice", size);
}

void apart_arena_close(apart_arena *a)
{
    if (a->forbidden) munmap(a->forbidden, a->size);
    if (a->real) munmap(a->real, a->size);
    while (a->ranges) {
        apart_range *r = a->ranges;
        a->ranges = r->next;
        free(r);
    }
    *a = (apart_arena){0};
}

nrl_status apart_arena_take(apart_arena *a, size_t bytes, void **out)
{
    if (bytes > a->size)
        return nrl_fail(NRL_ERR_MEMORY, "cannot allocate %zu bytes on a device of %zu", bytes, a->size);
    size_t size = (bytes / PAGE + 2) * PAGE;
    apart_range *r = a->ranges;
    while (r && (r->used || r->bytes < size))
        r = r->next;
    apart_range *rest = r && r->bytes > size ? calloc(1, sizeof *rest) : NULL;
    if (!r) return nrl_fail(NRL_ERR_MEMORY, "cannot allocate %zu bytes: no free range is large enough", bytes);
    if (rest) {
        *rest = (apart_range){.next = r->next, .begin = r->begin + size, .bytes = r->bytes - size};
        r->next = rest;
        r->bytes = size;
    }
    r->used = true;
    memset(a->real + r->begin, 0xFF, bytes);
    *out = a->forbidden + r->begin;
    return NRL_OK;
}

static void join_free(apart_arena *a)
{
    for (apart_range *r = a->ranges; r && r->next;) {
        apart_range *next = r->next;
        if (r->used || next->used) {
            r = next;
            continue;
        }
        r->bytes += next->bytes;
        r->next = next->next;
        free(next);
    }
}

/* Releases the pages, so freed memory cannot be read with its old contents. */
void apart_arena_give(apart_arena *a, void *memory)
{
    size_t begin = memory ? (size_t)((char *)memory - a->forbidden) : a->size;
    for (apart_range *r = a->ranges; r; r = r->next)
        if (r->used && r->begin == begin) {
            r->used = false;
            madvise(a->real + begin, r->bytes, MADV_REMOVE);
        }
    join_free(a);
}
