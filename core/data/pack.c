/*
 * pack.c - the three passes of pack.h.
 */
#include "data/pack.h"
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

/* How data_pack divides its scratch memory. */
typedef struct {
    load *items, *bins;         /* [n], [n + ranks] */
    int64_t *trial, *to, *room; /* [n], [n + ranks], [4 n] */
} pack_memory;

int64_t data_pack_scratch(int64_t n, int64_t ranks)
{
    return 2 * n + 2 * (n + ranks) + n + (n + ranks) + 4 * n;
}

static pack_memory divide(int64_t *scratch, int64_t n, int64_t ranks)
{
    pack_memory m = {.items = (load *)scratch};
    m.bins = m.items + n;
    m.trial = (int64_t *)(m.bins + n + ranks);
    m.to = m.trial + n;
    m.room = m.to + n + ranks;
    return m;
}

/* ---- 1: first fit ---- */

/* A tree over the bins whose nodes hold the largest free space below them, so that the first bin with enough space is
 * found in log n steps. Bins that are not used yet are empty, so at most n bins are used. */
static int64_t first_fit(const load *items, int64_t n, int64_t budget, int64_t *room, int64_t *bin)
{
    int64_t leaves = 1, used = 0;
    while (leaves < n)
        leaves *= 2;
    for (int64_t i = 0; i < 2 * leaves; i++)
        room[i] = budget;
    for (int64_t i = 0; i < n; i++) {
        int64_t node = 1;
        while (node < leaves)
            node = room[2 * node] >= items[i].tokens ? 2 * node : 2 * node + 1;
        room[node] -= items[i].tokens;
        bin[items[i].number] = node - leaves;
        if (node - leaves >= used) used = node - leaves + 1;
        for (node /= 2; node; node /= 2)
            room[node] = room[2 * node] > room[2 * node + 1] ? room[2 * node] : room[2 * node + 1];
    }
    return used;
}

/* ---- 2: even out ---- */

/* Bisects the budget to the smallest one (to a thousandth) for which n_bins suffice, and leaves that packing in bin.
 * First-fit is not quite monotone, so the best packing found is used; `budget` itself is known to suffice. */
static void even_out(const pack_memory *m, int64_t n, int64_t budget, int64_t n_bins, int64_t *bin)
{
    int64_t sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += m->items[i].tokens;
    int64_t least = (sum + n_bins - 1) / n_bins;
    if (least < m->items[0].tokens) least = m->items[0].tokens;
    while (budget - least > least / 1024) {
        int64_t middle = least + (budget - least) / 2;
        if (first_fit(m->items, n, middle, m->room, m->trial) <= n_bins) {
            memcpy(bin, m->trial, (size_t)n * sizeof *bin);
            budget = middle;
        } else {
            least = middle + 1;
        }
    }
}

/* ---- 3: deal to ranks ---- */

static void deal(const pack_memory *m, const int64_t *lengths, int64_t n, int64_t n_bins, int64_t ranks, int64_t *place)
{
    for (int64_t b = 0; b < n_bins; b++)
        m->bins[b] = (load){.number = b};
    for (int64_t i = 0; i < n; i++)
        m->bins[place[i]].tokens += lengths[i];
    qsort(m->bins, (size_t)n_bins, sizeof *m->bins, by_falling_tokens);
    for (int64_t k = 0; k < n_bins; k++) {
        int64_t micro_batch = k / ranks, rank = k % ranks;
        m->to[m->bins[k].number] = micro_batch * ranks + (micro_batch % 2 ? ranks - 1 - rank : rank);
    }
    for (int64_t i = 0; i < n; i++)
        place[i] = m->to[place[i]];
}

int64_t data_pack(const int64_t *lengths, int64_t n, int64_t budget, int64_t ranks, int64_t *scratch, int64_t *place)
{
    const pack_memory m = divide(scratch, n, ranks);
    for (int64_t i = 0; i < n; i++)
        m.items[i] = (load){lengths[i], i};
    qsort(m.items, (size_t)n, sizeof *m.items, by_falling_tokens);
    int64_t n_micro_batches = (first_fit(m.items, n, budget, m.room, place) + ranks - 1) / ranks;
    even_out(&m, n, budget, n_micro_batches * ranks, place);
    deal(&m, lengths, n, n_micro_batches * ranks, ranks, place);
    return n_micro_batches;
}
