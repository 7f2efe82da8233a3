/*
 * arena.h - allocations that are freed together. Block sizes double up to 1 MiB; a reset keeps the newest block.
 * An arena belongs to one thread at a time. When memory runs out, the process prints a message and exits: use
 * arenas for small bookkeeping only. What grows with the model or the data uses mem_try.
 */
#ifndef BASE_ARENA_H
#define BASE_ARENA_H
#include <nrl/status.h>
#include <stddef.h>
#include <stdint.h>

typedef struct arena_block arena_block;
typedef struct nrl_arena {
    arena_block *head;
    size_t used; /* bytes in the newest block */
} arena;

void *arena_alloc(arena *a, size_t size); /* 16-byte aligned, zeroed */
char *arena_strdup(arena *a, const char *text);
char *arena_strndup(arena *a, const char *text, size_t size);
char *arena_printf(arena *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void arena_reset(arena *a); /* frees all allocations; keeps the newest block */
void arena_free(arena *a);

/* For what grows with the model or the data: arena_alloc, or NULL with the error set to NRL_ERR_MEMORY. */
void *arena_try(arena *a, size_t size, const char *what);
/* After it the next allocations do not fail as long as their sizes, each rounded up to 16, add up to at most `size`. */
nrl_status arena_reserve(arena *a, size_t size, const char *what);

/* malloc and friends that never return NULL: without memory they print a message and exit with code 6. */
void *mem_alloc(size_t size); /* zeroed */
void *mem_realloc(void *old, size_t size);
char *mem_strdup(const char *text);
char *mem_printf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* For memory that grows with the model or the data: zeroed memory, or NULL with the error set to NRL_ERR_MEMORY
 * "out of memory: cannot allocate N bytes for WHAT". `mem_try_grow` resizes as realloc does: on failure `old` stays
 * valid, and what it adds is not zeroed. Free with free(). */
void *mem_try(size_t size, const char *what);
void *mem_try_grow(void *old, size_t size, const char *what);
nrl_status mem_fail(size_t size, const char *what); /* sets that error and returns NRL_ERR_MEMORY */

/* For tests: of the calls of mem_try and mem_try_grow that follow, by any thread, the first `n` succeed and all later
 * ones fail. A negative `n`, the initial state, lets all succeed. */
void mem_try_fail_after(int64_t n);

#endif
