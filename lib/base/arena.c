/*
 * arena.c - bump allocation in doubling blocks.
 */
#include "base/arena.h"
#include "base/memory.h"
#include <nrl/status.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_BLOCK = 4096, LAST_DOUBLED = 1 << 20, ALIGN = 16, EXIT_MEMORY = 6 };

struct arena_block {
    arena_block *older;
    size_t size;
    _Alignas(ALIGN) unsigned char data[];
};

/* Bookkeeping is small: when even a small allocation fails, the process cannot do anything useful. */
static void *or_die(void *p, size_t size)
{
    if (p) return p;
    char hint[MEMORY_HINT];
    fprintf(stderr, "error: out of memory: cannot allocate %zu bytes%s\n", size, memory_limit_hint(hint));
    _Exit(EXIT_MEMORY);
}

void *mem_alloc(size_t size)
{
    return or_die(calloc(1, size ? size : 1), size);
}

void *mem_realloc(void *old, size_t size)
{
    return or_die(realloc(old, size ? size : 1), size);
}

char *mem_strdup(const char *text)
{
    return or_die(strdup(text), strlen(text) + 1);
}

/* Calls of mem_try that may still succeed; negative: all. Only tests set it. */
static _Atomic int64_t allowed = -1;

void mem_try_fail_after(int64_t n)
{
    atomic_store(&allowed, n);
}

static bool is_allowed(void)
{
    int64_t left = atomic_load(&allowed);
    while (left > 0 && !atomic_compare_exchange_weak(&allowed, &left, left - 1)) {
    }
    return left != 0;
}

nrl_status mem_fail(size_t size, const char *what)
{
    char hint[MEMORY_HINT];
    return nrl_fail(NRL_ERR_MEMORY, "out of memory: cannot allocate %zu bytes for %s%s", size, what,
                    memory_limit_hint(hint));
}

static void *or_error(void *p, size_t size, const char *what)
{
    if (!p) mem_fail(size, what);
    return p;
}

void *mem_try(size_t size, const char *what)
{
    return or_error(is_allowed() ? calloc(1, size ? size : 1) : NULL, size, what);
}

void *mem_try_grow(void *old, size_t size, const char *what)
{
    return or_error(is_allowed() ? realloc(old, size ? size : 1) : NULL, size, what);
}

static char *mem_vprintf(void *(*alloc)(void *, size_t), void *self, const char *fmt, va_list a)
{
    va_list again;
    va_copy(again, a);
    int n = vsnprintf(NULL, 0, fmt, again);
    va_end(again);
    char *out = alloc(self, (size_t)(n < 0 ? 0 : n) + 1);
    if (n >= 0) vsnprintf(out, (size_t)n + 1, fmt, a);
    return out;
}

static void *from_heap(void *self, size_t size)
{
    (void)self;
    return mem_alloc(size);
}

static void *from_arena(void *self, size_t size)
{
    return arena_alloc(self, size);
}

char *mem_printf(const char *fmt, ...)
{
    va_list a;
    va_start(a, fmt);
    char *out = mem_vprintf(from_heap, NULL, fmt, a);
    va_end(a);
    return out;
}

char *arena_printf(arena *self, const char *fmt, ...)
{
    va_list a;
    va_start(a, fmt);
    char *out = mem_vprintf(from_arena, self, fmt, a);
    va_end(a);
    return out;
}

/* Makes the newest block hold `size` more bytes, a multiple of ALIGN. `what` NULL: exits without memory. */
static bool has_room(arena *a, size_t size, const char *what)
{
    if (a->head && a->head->size - a->used >= size) return true;
    size_t room = !a->head ? FIRST_BLOCK : a->head->size < LAST_DOUBLED / 2 ? a->head->size * 2 : LAST_DOUBLED;
    if (room < size) room = size;
    arena_block *b = what ? mem_try_grow(NULL, sizeof *b + room, what) : mem_realloc(NULL, sizeof *b + room);
    if (!b) return false;
    b->older = a->head;
    b->size = room;
    a->head = b;
    a->used = 0;
    return true;
}

static size_t aligned(size_t size)
{
    return (size + ALIGN - 1) & ~(size_t)(ALIGN - 1);
}

nrl_status arena_reserve(arena *a, size_t size, const char *what)
{
    return has_room(a, aligned(size), what) ? NRL_OK : NRL_ERR_MEMORY;
}

void *arena_try(arena *a, size_t size, const char *what)
{
    return has_room(a, aligned(size), what) ? arena_alloc(a, size) : NULL;
}

void *arena_alloc(arena *a, size_t size)
{
    size = aligned(size);
    has_room(a, size, NULL);
    void *p = a->head->data + a->used;
    a->used += size;
    return memset(p, 0, size);
}

char *arena_strndup(arena *a, const char *text, size_t size)
{
    char *out = arena_alloc(a, size + 1);
    memcpy(out, text, size);
    return out;
}

char *arena_strdup(arena *a, const char *text)
{
    return arena_strndup(a, text, strlen(text));
}

static void free_chain(arena_block *b)
{
    while (b) {
        arena_block *older = b->older;
        free(b);
        b = older;
    }
}

void arena_reset(arena *a)
{
    if (a->head) {
        free_chain(a->head->older);
        a->head->older = NULL;
    }
    a->used = 0;
}

void arena_free(arena *a)
{
    free_chain(a->head);
    *a = (arena){0};
}
