/*
 * pool_table.c - a hash table of blocks.
 */
#include "pool_table.h"
#include "pool_block.h"
#include <stdlib.h>

static size_t place_of(const cuda_table *t, const void *memory)
{
    uint64_t h = ((uint64_t)(uintptr_t)memory >> 9) * 0x9E3779B97F4A7C15u;
    return (size_t)(h >> 32) & (t->capacity - 1);
}

static void insert(cuda_table *t, cuda_block *b)
{
    size_t i = place_of(t, b->memory);
    while (t->slots[i])
        i = (i + 1) & (t->capacity - 1);
    t->slots[i] = b;
    t->n++;
}

static bool grow(cuda_table *t)
{
    cuda_table larger = {.capacity = t->capacity ? 2 * t->capacity : 256};
    larger.slots = calloc(larger.capacity, sizeof(cuda_block *));
    if (!larger.slots) return false;
    for (size_t i = 0; i < t->capacity; i++)
        if (t->slots[i]) insert(&larger, t->slots[i]);
    free(t->slots);
    *t = larger;
    return true;
}

bool cuda_table_put(cuda_table *t, cuda_block *b)
{
    if (2 * (t->n + 1) > t->capacity && !grow(t)) return false;
    insert(t, b);
    return true;
}

/* Closes the gap: moves up entries that collisions had pushed past it. */
static void close_gap(cuda_table *t, size_t gap)
{
    size_t mask = t->capacity - 1;
    for (size_t i = (gap + 1) & mask; t->slots[i]; i = (i + 1) & mask) {
        size_t home = place_of(t, t->slots[i]->memory);
        if (((i - home) & mask) < ((i - gap) & mask)) continue;
        t->slots[gap] = t->slots[i];
        t->slots[i] = NULL;
        gap = i;
    }
}

cuda_block *cuda_table_take(cuda_table *t, const void *memory)
{
    if (!t->capacity) return NULL;
    size_t i = place_of(t, memory);
    while (t->slots[i] && t->slots[i]->memory != memory)
        i = (i + 1) & (t->capacity - 1);
    cuda_block *b = t->slots[i];
    if (!b) return NULL;
    t->slots[i] = NULL;
    t->n--;
    close_gap(t, i);
    return b;
}

void cuda_table_free(cuda_table *t)
{
    free(t->slots);
    *t = (cuda_table){0};
}
