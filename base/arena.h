/*
 * arena.h - memory that dies together. Blocks grow by doubling; reset keeps the blocks.
 * An arena belongs to one thread at a time. Out of memory ends the process with a message: small
 * bookkeeping only lives here; tensors and data come from allocators that report.
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
void arena_reset(arena *a); /* everything is free again, the largest block is kept */
void arena_free(arena *a);

/* malloc and friends that never return NULL (message and exit code 6 by abort handler). */
void *mem_alloc(size_t size); /* zeroed */
void *mem_realloc(void *old, size_t size);
char *mem_strdup(const char *text);
char *mem_printf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif
