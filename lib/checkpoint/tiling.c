/*
 * tiling.c - see tiling.h. Comparing all boxes with each other would take N^2 steps. Instead, consider the number of
 * boxes over each point as a function on the grid. The mixed difference of this function (one difference along each
 * dimension) is, for one box, 1 or -1 at each of its 2^d corners and 0 elsewhere. A function on a finite grid and its
 * mixed difference determine each other, so the boxes tile the tensor if and only if the signs of all their corners,
 * minus those of the tensor itself, cancel at every point.
 */
#include "checkpoint/tiling.h"
#include "base/arena.h"
#include "base/piece.h"
#include <stdlib.h>
#include <string.h>

typedef struct {
    int64_t at[NRL_MAX_DIMS]; /* 0 beyond the tensor's dimensions */
    int64_t sign;
} corner;

static int by_box_then_range(const void *a, const void *b)
{
    const layout_shard *x = *(const layout_shard *const *)a, *y = *(const layout_shard *const *)b;
    for (int d = 0; d < x->n_dims; d++) {
        if (x->begin[d] != y->begin[d]) return x->begin[d] < y->begin[d] ? -1 : 1;
        if (x->end[d] != y->end[d]) return x->end[d] < y->end[d] ? -1 : 1;
    }
    return x->flat_begin < y->flat_begin ? -1 : x->flat_begin > y->flat_begin;
}

static bool is_same_box(const layout_shard *a, const layout_shard *b)
{
    size_t size = (size_t)a->n_dims * sizeof *a->begin;
    return !memcmp(a->begin, b->begin, size) && !memcmp(a->end, b->end, size);
}

static int64_t box_numel(const layout_shard *p)
{
    int64_t n = 1;
    for (int d = 0; d < p->n_dims; d++)
        n *= p->end[d] - p->begin[d];
    return n;
}

/* Returns how many of the n sorted shards have the box of the first one, or 0 if their ranges do not cover that box. */
static size_t one_box(const layout_shard **shards, size_t n)
{
    int64_t reached = 0;
    size_t i = 0;
    for (; i < n && is_same_box(shards[0], shards[i]); i++) {
        if (shards[i]->flat_begin != reached) return 0;
        reached = shards[i]->flat_end;
    }
    return reached == box_numel(shards[0]) ? i : 0;
}

static size_t add_corners(const layout_shard *p, int64_t sign, corner *out)
{
    size_t n = (size_t)1 << p->n_dims;
    for (size_t k = 0; k < n; k++) {
        out[k] = (corner){.sign = sign};
        for (int d = 0; d < p->n_dims; d++) {
            bool end = k >> d & 1;
            out[k].at[d] = end ? p->end[d] : p->begin[d];
            if (end) out[k].sign = -out[k].sign;
        }
    }
    return n;
}

static int by_point(const void *a, const void *b)
{
    const corner *x = a, *y = b;
    for (int d = 0; d < NRL_MAX_DIMS; d++)
        if (x->at[d] != y->at[d]) return x->at[d] < y->at[d] ? -1 : 1;
    return 0;
}

static bool cancel(corner *corners, size_t n)
{
    int64_t sum = 0;
    qsort(corners, n, sizeof *corners, by_point);
    for (size_t i = 0; i < n; i++) {
        if (sum && by_point(&corners[i - 1], &corners[i])) return false;
        sum += corners[i].sign;
    }
    return sum == 0;
}

/* Whether the boxes cover the tensor; boxes[i] is any shard with that box. */
static nrl_status boxes_tile(const layout_shard *const *boxes, size_t n, bool *exact)
{
    layout_shard whole = piece_of_whole(boxes[0]->n_dims, boxes[0]->dims);
    *exact = n == 1 && is_same_box(boxes[0], &whole);
    if (n == 1) return NRL_OK;
    corner *corners = mem_try((n + 1) * sizeof *corners << boxes[0]->n_dims, "the shards of a tensor");
    if (!corners) return NRL_ERR_MEMORY;
    size_t used = add_corners(&whole, -1, corners);
    for (size_t i = 0; i < n; i++)
        used += add_corners(boxes[i], 1, corners + used);
    *exact = cancel(corners, used);
    free(corners);
    return NRL_OK;
}

nrl_status tiling_check(const layout_shard **shards, size_t n, bool *exact)
{
    size_t n_held = 0, n_boxes = 0;
    for (size_t i = 0; i < n; i++)
        if (piece_numel(shards[i]) > 0) shards[n_held++] = shards[i];
    if (!n_held) { /* correct for a tensor without elements */
        layout_shard whole = n ? piece_of_whole(shards[0]->n_dims, shards[0]->dims) : (layout_shard){.flat_end = 1};
        *exact = piece_numel(&whole) == 0;
        return NRL_OK;
    }
    *exact = false;
    qsort(shards, n_held, sizeof *shards, by_box_then_range);
    for (size_t i = 0; i < n_held;) {
        size_t used = one_box(shards + i, n_held - i);
        if (!used) return NRL_OK;
        shards[n_boxes++] = shards[i];
        i += used;
    }
    return boxes_tile(shards, n_boxes, exact);
}
