/*
 * arena.h - memory that is mapped twice: the addresses that callers get are inaccessible, and the
 * same bytes are accessible at a constant distance. A host that touches device memory therefore
 * crashes, without any switching of protection.
 */
#ifndef SUPPORT_APART_ARENA_H
#define SUPPORT_APART_ARENA_H
#include <nrl/status.h>
#include <stdbool.h>
#include <stddef.h>

typedef struct apart_range apart_range;
typedef struct {
    char *forbidden, *real; /* two views of the same bytes */
    size_t size;
    apart_range *ranges; /* the whole arena, in address order */
} apart_arena;

nrl_status apart_arena_open(apart_arena *a, size_t size);
void apart_arena_close(apart_arena *a);
nrl_status apart_arena_take(apart_arena *a, size_t bytes, void **out); /* contents: NaN */
void apart_arena_give(apart_arena *a, void *memory);

static inline bool apart_holds(const apart_arena *a, const void *p)
{
    return (const char *)p >= a->forbidden && (const char *)p < a->forbidden + a->size;
}

static inline void *apart_real(const apart_arena *a, const void *p)
{
    return a->real + ((const char *)p - a->forbidden);
}

#endif
