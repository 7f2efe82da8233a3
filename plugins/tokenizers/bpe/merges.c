/*
 * merges.c - the table of merges: which pairs of tokens become one token, and in which order.
 */
#include "base/arena.h"
#include "vocab.h"
#include <stdlib.h>
#include <string.h>

static size_t pair_slot(const merge_table *t, uint64_t pair)
{
    uint64_t h = pair * 0x9e3779b97f4a7c15u; /* Fibonacci hashing: the high bits are well distributed */
    return (size_t)((h ^ h >> 32) & (t->n_slots - 1));
}

static merge *slot_of(const merge_table *t, uint64_t pair)
{
    size_t i = pair_slot(t, pair);
    while (t->slots[i].rank != VOCAB_NO_RANK && t->slots[i].pair != pair)
        i = (i + 1) & (t->n_slots - 1);
    return &t->slots[i];
}

static void resize(merge_table *t, size_t n_slots)
{
    merge_table old = *t;
    t->n_slots = n_slots;
    t->slots = mem_realloc(NULL, n_slots * sizeof *t->slots);
    for (size_t i = 0; i < n_slots; i++)
        t->slots[i].rank = VOCAB_NO_RANK;
    for (size_t i = 0; i < old.n_slots; i++)
        if (old.slots[i].rank != VOCAB_NO_RANK) *slot_of(t, old.slots[i].pair) = old.slots[i];
    free(old.slots);
}

void merge_table_reserve(merge_table *t, size_t n)
{
    size_t n_slots = t->n_slots ? t->n_slots : 1024;
    while (n_slots < n * 2)
        n_slots *= 2;
    if (n_slots > t->n_slots) resize(t, n_slots);
}

void merge_add(merge_table *t, int32_t left, int32_t right, uint32_t rank, int32_t id)
{
    merge_table_reserve(t, t->n + 1);
    uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    merge *m = slot_of(t, pair);
    if (m->rank == VOCAB_NO_RANK) t->n++;
    *m = (merge){.pair = pair, .rank = rank, .id = id};
}

const merge *merge_find(const merge_table *t, int32_t left, int32_t right)
{
    if (!t->n_slots) return NULL;
    const merge *m = slot_of(t, (uint64_t)(uint32_t)left << 32 | (uint32_t)right);
    return m->rank == VOCAB_NO_RANK ? NULL : m;
}

void merge_table_free(merge_table *t)
{
    free(t->slots);
    *t = (merge_table){0};
}

void merges_from_ranks(merge_table *t, const vocab *v, const uint32_t *rank)
{
    for (int32_t id = 0; id < v->n; id++) {
        size_t size;
        const char *text = vocab_text(v, id, &size);
        if (!text || rank[id] == VOCAB_NO_RANK) continue;
        for (size_t cut = 1; cut < size; cut++) {
            int32_t left = vocab_find(v, text, cut);
            if (left == VOCAB_ABSENT) continue;
            int32_t right = vocab_find(v, text + cut, size - cut);
            if (right != VOCAB_ABSENT) merge_add(t, left, right, rank[id], id);
        }
    }
}
