/*
 * pack.c - the three passes of pack.h.
 */
#include "data/pack.h"
#include "base/arena.h"
#include <nrl/status.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    int64_t tokens, number;
} load;

/* More tokens first, then the lower number. */
static int by_falling_tokens(const void *x, const void *y)
{
    const load *a = x, *b = y;
    if (a->tokens != b->tokens) return a->tokens < b->tokens ? 1 : -1;
    return (a->number > b->number) - (a->number < b->number);
}

static load *sorted_lengths(const int64_t *lengths, int64_t n)
{
    load *items = mem_alloc((size_t)n * sizeof *items);
    for (int64_t i = 0; i < n; i++) items[i] = (load){lengths[i], i};
    qsort(items, (size_t)n, sizeof *items, by_falling_tokens);
    return items;
}

/* ---- 1: first fit ---- */

/* A tree over bins whose nodes hold the most room below: the first bin with room is log n away.
 * Bins not opened yet are empty, so at most n are ever used. */
static int64_t first_fit(const load *items, int64_t n, int64_t budget, int64_t *bin)
{
    int64_t leaves = 1, used = 0;
    while (leaves < n) leaves *= 2;
    int64_t *room = mem_alloc((size_t)leaves * 2 * sizeof *room);
    for (int64_t i = 0; i < 2 * leaves; i++) room[i] = budget;
    for (int64_t i = 0; i < n; i++) {
        int64_t node = 1;
        while (node < leaves) node = room[2 * node] >= items[i].tokens ? 2 * node : 2 * node + 1;
        room[node] -= items[i].tokens;
        bin[items[i].number] = node - leaves;
        if (node - leaves >= used) used = node - leaves + 1;
        for (node /= 2; node; node /= 2)
            room[node] = room[2 * node] > room[2 * node + 1] ? room[2 * node] : room[2 * node + 1];
    }
    free(room);
    return used;
}

/* ---- 2: even out ---- */

static bool lighter(const load *a, const load *b)
{
    return a->tokens != b->tokens ? a->tokens < b->tokens : a->number < b->number;
}

/* Restores the heap (lightest on top) after its top has grown. */
static void sink(load *heap, int64_t n)
{
    for (int64_t i = 0, child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && lighter(&heap[child + 1], &heap[child])) child++;
        if (!lighter(&heap[child], &heap[i])) return;
        load held = heap[i];
        heap[i] = heap[child];
        heap[child] = held;
    }
}

static bool even_out(const load *items, int64_t n, int64_t budget, int64_t n_bins, int64_t *bin)
{
    bool fits = true;
    load *heap = mem_alloc((size_t)n_bins * sizeof *heap);
    for (int64_t b = 0; b < n_bins; b++) heap[b] = (load){0, b};
    for (int64_t i = 0; i < n && fits; i++) {
        heap[0].tokens += items[i].tokens;
        bin[items[i].number] = heap[0].number;
        fits = heap[0].tokens <= budget;
        sink(heap, n_bins);
    }
    free(heap);
    return fits;
}

/* ---- 3: deal to ranks ---- */

static void deal(const int64_t *lengths, int64_t n, int64_t n_bins, int64_t ranks, int64_t *place)
{
    load *bins = mem_alloc((size_t)n_bins * sizeof *bins);
    int64_t *to = mem_alloc((size_t)n_bins * sizeof *to);
    for (int64_t b = 0; b < n_bins; b++) bins[b].number = b;
    for (int64_t i = 0; i < n; i++) bins[place[i]].tokens += lengths[i];
    qsort(bins, (size_t)n_bins, sizeof *bins, by_falling_tokens);
    for (int64_t k = 0; k < n_bins; k++) {
        int64_t micro = k / ranks, rank = k % ranks;
        to[bins[k].number] = micro * ranks + (micro % 2 ? ranks - 1 - rank : rank);
    }
    for (int64_t i = 0; i < n; i++) place[i] = to[place[i]];
    free(bins);
    free(to);
}

int64_t data_pack(const int64_t *lengths, int64_t n, int64_t budget, int64_t ranks, int64_t *place)
{
    load *items = sorted_lengths(lengths, n);
    int64_t *even = mem_alloc((size_t)n * sizeof *even);
    int64_t n_micro = (first_fit(items, n, budget, place) + ranks - 1) / ranks;
    if (even_out(items, n, budget, n_micro * ranks, even))
        memcpy(place, even, (size_t)n * sizeof *even);
    deal(lengths, n, n_micro * ranks, ranks, place);
    free(items);
    free(even);
    return n_micro;
}
