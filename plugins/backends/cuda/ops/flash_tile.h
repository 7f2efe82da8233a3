/*
 * flash_tile.h - which keys a tile of queries sees, and which queries see a tile of keys: the index
 * arithmetic of all attention kernels, in integers, the same on host and device.
 *
 * Queries of a segment are numbered from 0; so are its keys, the prefix's first. Query i of n sees the
 * keys at positions (last - window, last] with last = i + (number of keys) - n, and all up to last if
 * window is 0. A tile of keys never spans prefix and own keys, so its rows are contiguous. Tested
 * against the definition, key by key: tests/unit/cuda/test_flash_tile.c.
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
    int32_t begin, end; /* rows, positions or queries [begin, end) */
} flash_range;

/* One segment: its rows of q, and of k and v with those of its prefix. */
typedef struct {
    int32_t q_begin, n_queries;
    int32_t prefix_begin, n_prefix; /* rows of k and v; n_prefix 0 = none */
    int32_t own_begin, n_own;
} flash_segment;

HOST_DEVICE int32_t flash_min(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

HOST_DEVICE int32_t flash_max(int32_t a, int32_t b)
{
    return a > b ? a : b;
}

HOST_DEVICE flash_segment flash_segment_of(const int32_t *cu_q, const int32_t *cu_k, const int32_t *prefix, int32_t s)
{
    flash_segment g = {cu_q[s], cu_q[s + 1] - cu_q[s], 0, 0, cu_k[s], cu_k[s + 1] - cu_k[s]};
    int32_t p = prefix ? prefix[s] : -1;
    if (p >= 0) {
        g.prefix_begin = cu_k[p];
        g.n_prefix = cu_k[p + 1] - cu_k[p];
    }
    return g;
}

HOST_DEVICE int32_t flash_n_keys(const flash_segment *g)
{
    return g->n_prefix + g->n_own;
}

/* Last key position that query i sees; negative = none. */
HOST_DEVICE int32_t flash_last(const flash_segment *g, int32_t i)
{
    return i + flash_n_keys(g) - g->n_queries;
}

HOST_DEVICE bool flash_sees(const flash_segment *g, int32_t window, int32_t i, int32_t position)
{
    int32_t last = flash_last(g, i);
    return position <= last && (window <= 0 || position > last - window);
}

/* ---- tiles without a table: from tile t of the grid to (segment, first row) ---- Segment s owns the
 * tiles from floor(cu[s] / size) + s on, so the number of tiles is known in advance: never fewer than
 * needed, and at most one more per segment. */

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

/* ---- a tile of queries [first, first + n) and its keys ---- */

/* Positions that at least one of the queries sees. */
HOST_DEVICE flash_range flash_keys_of(const flash_segment *g, int32_t window, int32_t first, int32_t n)
{
    flash_range r = {0, flash_min(flash_last(g, first + n - 1) + 1, flash_n_keys(g))};
    if (window > 0) r.begin = flash_max(0, flash_last(g, first) - window + 1);
    return r;
}

/* The tile of keys that begins at `position`: contiguous rows, at most `size`, ending at `end` at the latest. */
typedef struct {
    int32_t row, position, n;
} flash_keys;

HOST_DEVICE flash_keys flash_keys_at(const flash_segment *g, int32_t position, int32_t end, int32_t size)
{
    bool own = position >= g->n_prefix;
    int32_t stop = own ? end : flash_min(end, g->n_prefix);
    flash_keys k = {own ? g->own_begin + position - g->n_prefix : g->prefix_begin + position, position,
                    flash_min(size, stop - position)};
    return k;
}

/* Whether every query of the tile sees every key of the tile. */
HOST_DEVICE bool flash_sees_all(const flash_segment *g, int32_t window, int32_t first, int32_t n, const flash_keys *k)
{
    if (k->position + k->n - 1 > flash_last(g, first)) return false;
    return window <= 0 || k->position > flash_last(g, first + n - 1) - window;
}

/* ---- a tile of keys, and the queries of a segment that see at least one of them ---- */

HOST_DEVICE flash_range flash_queries_of(const flash_segment *g, int32_t window, int32_t position, int32_t n)
{
    int32_t ahead = flash_n_keys(g) - g->n_queries;
    flash_range r = {flash_max(0, position - ahead), g->n_queries};
    if (window > 0) r.end = flash_min(r.end, position + n - 1 - ahead + window);
    return r;
}

/* Whether segment s sees the keys of segment `owner`; if so, `shift` is their first position. */
HOST_DEVICE bool flash_looks_at(const flash_segment *g, const int32_t *prefix, int32_t s, int32_t owner, int32_t *shift)
{
    *shift = s == owner ? g->n_prefix : 0;
    return s == owner || (prefix && prefix[s] == owner);
}

#endif
