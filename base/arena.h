/*
 * arena.h - allocations that are freed together. Block sizes double; a reset keeps the largest block.
 * An arena belongs to one thread at a time. When memory runs out, the process prints a message and exits: use
 * arenas for small bookkeeping only. Tensors and data come from allocators that return NRL_ERR_MEMORY.
 */
#ifndef BASE_ARENA_H
#define BASE_ARENA_H
#include <stddef.h>

typedef struct arena_block arena_block;
typedef struct nrl_arena {
    arena_block *head;
    size_t used; /* bytes in the newest block */
} arena;

void *arena_alloc(arena *a, size_t size); /* 16-byte aligned, zeroed */
char *arena_strdup(arena *a, const char *text);
char *arena_strndup(arena *a, const char *text, size_t size);
char *arena_printf(arena *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void arena_reset(arena *a); /* frees all allocations; keeps the largest block */
void arena_free(arena *a);

/* malloc and friends that never return NULL: without memory they print a message and exit with code 6. */
void *mem_alloc(size_t size); /* zeroed */
void *mem_realloc(void *old, size_t size);
char *mem_strdup(const char *text);
char *mem_printf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif
