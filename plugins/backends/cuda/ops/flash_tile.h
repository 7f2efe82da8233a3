/*
 * flash_tile.h - which keys a tile of queries sees, and which queries see a tile of keys: the index
 * arithmetic of all attention kernels, in integers, the same on host and device.
 *
 * The keys of a segment have positions from 0, the prefix's first. Query i of n sees the keys at
 * positions (last - window, last] with last = i + (number of keys) - n, and all up to last if window is 0.
 * Of these rows a part may be there (flash_part). The queries of a segment that are there are numbered from
 * 0, and so are its keys, the prefix's first. A tile of keys never spans prefix and own keys, so its rows
 * and positions are contiguous. Tested against the definition, key by key: tests/unit/cuda/test_flash_tile.c.
 */
#ifndef CUDA_OPS_FLASH_TILE_H
#define CUDA_OPS_FLASH_TILE_H
#include <stdbool.h>
#include <stdint.h>

#ifdef __CUDACC__
#define HOST_DEVICE static __host__ __device__ __forceinline__
#else
#define HOST_DEVICE static inline
#endif

typedef struct {
    int32_t begin, end; /* rows, numbers or queries [begin, end) */
} flash_range;

/* The queries that are there, of those that cu_q counts, and the keys of cu_k; the first of each is row 0. */
typedef struct {
    flash_range queries, keys;
} flash_part;

/* One segment: its rows of q, and of k and v with those of its prefix, as far as they are there. */
typedef struct {
    int32_t q_begin, n_queries, q_skipped, q_position; /* skipped: before the first row that is there */
    int32_t prefix_begin, n_prefix, prefix_position;   /* n_prefix 0 = none; positions are those of the first row */
    int32_t own_begin, n_own, own_skipped, own_position;
} flash_segment;

HOST_DEVICE int32_t flash_min(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

HOST_DEVICE int32_t flash_max(int32_t a, int32_t b)
{
    return a > b ? a : b;
}

/* Rows [begin, end) that are there, as numbers of cu; empty ranges may lie anywhere. */
HOST_DEVICE flash_range flash_there(int32_t begin, int32_t end, const flash_range *there)
{
    flash_range r = {flash_max(begin, there->begin), 0};
    r.end = flash_max(r.begin, flash_min(end, there->end));
    return r;
}

HOST_DEVICE flash_segment flash_segment_of(const int32_t *cu_q, const int32_t *cu_k, const int32_t *prefix,
                                           const flash_part *part, int32_t s)
{
    int32_t p = prefix ? prefix[s] : -1, before = p >= 0 ? cu_k[p + 1] - cu_k[p] : 0;
    flash_range q = flash_there(cu_q[s], cu_q[s + 1], &part->queries);
    flash_range own = flash_there(cu_k[s], cu_k[s + 1], &part->keys);
    flash_segment g = {q.begin - part->queries.begin, q.end - q.begin,     q.begin - cu_q[s],   0, 0, 0, 0,
                       own.begin - part->keys.begin,  own.end - own.begin, own.begin - cu_k[s], 0};
    g.q_position = g.q_skipped + before + cu_k[s + 1] - cu_k[s] - (cu_q[s + 1] - cu_q[s]);
    g.own_position = before + g.own_skipped;
    if (p >= 0) {
        flash_range first = flash_there(cu_k[p], cu_k[p + 1], &part->keys);
        g.prefix_begin = first.begin - part->keys.begin;
        g.n_prefix = first.end - first.begin;
        g.prefix_position = first.begin - cu_k[p];
    }
    return g;
}

/* Last key position that query i sees; negative = none. */
HOST_DEVICE int32_t flash_last(const flash_segment *g, int32_t i)
{
    return g->q_position + i;
}

/* The number of keys that are there before a position. */
HOST_DEVICE int32_t flash_keys_before(const flash_segment *g, int32_t position)
{
    return flash_max(0, flash_min(position - g->prefix_position, g->n_prefix)) +
           flash_max(0, flash_min(position - g->own_position, g->n_own));
}

HOST_DEVICE bool flash_sees(const flash_segment *g, int32_t window, int32_t i, int32_t position)
{
    int32_t last = flash_last(g, i);
    return position <= last && (window <= 0 || position > last - window);
}

HOST_DEVICE int32_t flash_position(const flash_segment *g, int32_t key)
{
    return key < g->n_prefix ? g->prefix_position + key : g->own_position + key - g->n_prefix;
}

/* ---- tiles without a table: from tile t of the grid to (segment, first row) ----
 * Segment s owns the tiles from floor(cu[s] / size) + s on, so the number of tiles is known in advance: never fewer
 * than needed, and at most one more per segment. */

typedef struct {
    int32_t segment, first; /* first row of the tile inside the segment */
} flash_place;

HOST_DEVICE int32_t flash_tile_count(int64_t rows, int32_t n_segments, int32_t size)
{
    return (int32_t)(rows / size) + n_segments;
}

HOST_DEVICE flash_place flash_place_of(const int32_t *cu, int32_t n_segments, int32_t size, int32_t tile)
{
    int32_t low = 0, high = n_segments;
    while (high - low > 1) {
        int32_t middle = (low + high) / 2;
        if (cu[middle] / size + middle <= tile)
            low = middle;
        else
            high = middle;
    }
    flash_place p = {low, (tile - cu[low] / size - low) * size};
    return p;
}

/* Of a tile of `size` rows from row `first` of its segment on, those that are there, as numbers among the n that are
 * there after `skipped` others. */
HOST_DEVICE flash_range flash_rows_there(int32_t first, int32_t size, int32_t skipped, int32_t n)
{
    flash_range r = {flash_max(0, first - skipped), flash_min(n, first + size - skipped)};
    return r;
}

/* ---- a tile of queries [first, first + n) and its keys ---- */

/* Numbers of keys that at least one of the queries sees. */
HOST_DEVICE flash_range flash_keys_of(const flash_segment *g, int32_t window, int32_t first, int32_t n)
{
    flash_range r = {0, flash_keys_before(g, flash_last(g, first + n - 1) + 1)};
    if (window > 0) r.begin = flash_keys_before(g, flash_last(g, first) - window + 1);
    return r;
}

/* The tile of keys that begins at key `at`: contiguous rows, at most `size`, ending before key `end` at the latest. */
typedef struct {
    int32_t row, position, n;
} flash_keys;

HOST_DEVICE flash_keys flash_keys_at(const flash_segment *g, int32_t at, int32_t end, int32_t size)
{
    bool own = at >= g->n_prefix;
    int32_t stop = own ? end : flash_min(end, g->n_prefix), i = own ? at - g->n_prefix : at;
    flash_keys k = {(own ? g->own_begin : g->prefix_begin) + i, flash_position(g, at), flash_min(size, stop - at)};
    return k;
}

/* Whether every query of the tile sees every key of the tile. */
HOST_DEVICE bool flash_sees_all(const flash_segment *g, int32_t window, int32_t first, int32_t n, const flash_keys *k)
{
    if (k->position + k->n - 1 > flash_last(g, first)) return false;
    return window <= 0 || k->position > flash_last(g, first + n - 1) - window;
}

/* Of the keys of a tile, as columns from 0, those that query i sees. */
HOST_DEVICE flash_range flash_columns_of(const flash_segment *g, int32_t window, int32_t i, const flash_keys *k)
{
    int32_t last = flash_last(g, i) - k->position;
    flash_range r = {window > 0 ? flash_max(0, last - window + 1) : 0, flash_min(last + 1, k->n)};
    r.end = flash_max(r.begin, r.end);
    return r;
}

/* ---- a tile of keys, and the queries of a segment that see at least one of them ---- */

HOST_DEVICE flash_range flash_queries_of(const flash_segment *g, int32_t window, int32_t position, int32_t n)
{
    flash_range r = {flash_max(0, position - g->q_position), g->n_queries};
    if (window > 0) r.end = flash_min(r.end, position + n - 1 - g->q_position + window);
    return r;
}

/* A tile of n queries, seen from a tile of keys: its key r is seen by the queries, as columns from 0, that are at least
 * r + ahead, and by no later ones than a window of them. */
HOST_DEVICE flash_range flash_rows_of(int32_t ahead, int32_t window, int32_t r, int32_t n)
{
    flash_range q = {r + ahead, window > 0 ? flash_min(n, r + ahead + window) : n};
    q.begin = flash_max(0, q.begin);
    q.end = flash_max(q.begin, q.end);
    return q;
}

/* Whether segment s sees the keys of segment `owner`; if so, `shift` is the position of the first that is there. */
HOST_DEVICE bool flash_looks_at(const flash_segment *g, const int32_t *prefix, int32_t s, int32_t owner, int32_t *shift)
{
    *shift = s == owner ? g->own_position : g->prefix_position;
    return s == owner || (prefix && prefix[s] == owner);
}

#endif
