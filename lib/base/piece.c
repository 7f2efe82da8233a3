/*
 * piece.c - counts, divides and intersects shards.
 */
#include "base/piece.h"
#include <string.h>

layout_shard piece_of_whole(int n_dims, const int64_t *dims)
{
    layout_shard p = {.n_dims = n_dims, .flat_end = 1};
    for (int d = 0; d < n_dims; d++) {
        p.dims[d] = p.end[d] = dims[d];
        p.flat_end *= dims[d];
    }
    return p;
}

int64_t piece_numel(const layout_shard *p)
{
    return p->flat_end - p->flat_begin;
}

/* The outermost dimension from which on the box is whole: elements of one index there are one range. */
static int first_whole(const layout_shard *p)
{
    int d = p->n_dims;
    while (d > 0 && p->begin[d - 1] == 0 && p->end[d - 1] == p->dims[d - 1])
        d--;
    return d > 0 ? d - 1 : 0;
}

bool piece_next(const layout_shard *p, int64_t *at, int64_t *global_begin, int64_t *n)
{
    if (*at >= piece_numel(p)) return false;
    int cut = first_whole(p);
    int64_t inner = 1, in_box = p->flat_begin + *at;
    for (int d = cut + 1; d < p->n_dims; d++)
        inner *= p->dims[d];
    int64_t range = inner * (p->end[cut] - p->begin[cut]), row = in_box / range, column = in_box % range;
    int64_t scale = inner * p->dims[cut], global = p->begin[cut] * inner + column;
    for (int d = cut - 1; d >= 0; d--) {
        int64_t extent = p->end[d] - p->begin[d];
        global += (p->begin[d] + row % extent) * scale;
        row /= extent;
        scale *= p->dims[d];
    }
    *global_begin = global;
    *n = range - column;
    if (*n > piece_numel(p) - *at) *n = piece_numel(p) - *at;
    *at += *n;
    return true;
}

bool piece_is_same(const layout_shard *a, const layout_shard *b)
{
    size_t size = (size_t)a->n_dims * sizeof *a->dims;
    return a->n_dims == b->n_dims && !memcmp(a->dims, b->dims, size) && !memcmp(a->begin, b->begin, size) &&
           !memcmp(a->end, b->end, size) && a->flat_begin == b->flat_begin && a->flat_end == b->flat_end;
}

bool piece_is_whole(const layout_shard *p)
{
    layout_shard whole = piece_of_whole(p->n_dims, p->dims);
    return piece_is_same(p, &whole);
}

bool piece_is_sound(const layout_shard *p)
{
    int64_t all = 1, box = 1;
    if (p->n_dims < 1 || p->n_dims > NRL_MAX_DIMS) return false;
    for (int d = 0; d < p->n_dims; d++) {
        if (p->dims[d] < 0 || p->begin[d] < 0 || p->begin[d] > p->end[d] || p->end[d] > p->dims[d]) return false;
        if (__builtin_mul_overflow(all, p->dims[d], &all)) return false;
        box *= p->end[d] - p->begin[d];
    }
    return p->flat_begin >= 0 && p->flat_begin <= p->flat_end && p->flat_end <= box;
}

layout_shard piece_share(const layout_shard *p, int32_t i, int32_t n, int64_t grain)
{
    int64_t numel = piece_numel(p), units = (numel + grain - 1) / grain;
    layout_shard share = *p;
    int64_t begin = units * i / n * grain, end = units * (i + 1) / n * grain;
    share.flat_begin = p->flat_begin + (begin < numel ? begin : numel);
    share.flat_end = p->flat_begin + (end < numel ? end : numel);
    return share;
}

int64_t piece_below(const layout_shard *p, int64_t global)
{
    int64_t count = 0, whole = 1, box = 1;
    if (piece_numel(p) <= 0 || global <= 0) return 0;
    for (int d = 0; d < p->n_dims; d++) {
        whole *= p->dims[d];
        box *= p->end[d] - p->begin[d];
    }
    if (global >= whole) return piece_numel(p);
    for (int d = 0; d < p->n_dims; d++) {
        whole /= p->dims[d];
        box /= p->end[d] - p->begin[d];
        int64_t x = global / whole;
        global %= whole;
        if (x >= p->end[d]) count += (p->end[d] - p->begin[d]) * box;
        if (x < p->begin[d] || x >= p->end[d]) break;
        count += (x - p->begin[d]) * box;
    }
    count -= p->flat_begin;
    return count < 0 ? 0 : count > piece_numel(p) ? piece_numel(p) : count;
}

piece_meeting piece_meet(const layout_shard *a, const layout_shard *b)
{
    return (piece_meeting){.a = a, .b = b};
}

/* Moves to the first range of p that ends after `global`. Returns false if there is none. */
static bool seek(const layout_shard *p, int64_t global, int64_t *next, int64_t *begin, int64_t *n)
{
    *next = piece_below(p, global);
    return piece_next(p, next, begin, n);
}

bool piece_next_run(piece_meeting *m, int64_t *a_at, int64_t *b_at, int64_t *n)
{
    if (!m->a_n && !piece_next(m->a, &m->a_next, &m->a_begin, &m->a_n)) return false;
    if (!m->b_n && !piece_next(m->b, &m->b_next, &m->b_begin, &m->b_n)) return false;
    while (m->a_begin + m->a_n <= m->b_begin || m->b_begin + m->b_n <= m->a_begin) {
        bool behind = m->a_begin < m->b_begin; /* a is behind b: advance a to b, or else b to a */
        if (behind && !seek(m->a, m->b_begin, &m->a_next, &m->a_begin, &m->a_n)) return false;
        if (!behind && !seek(m->b, m->a_begin, &m->b_next, &m->b_begin, &m->b_n)) return false;
    }
    int64_t begin = m->a_begin > m->b_begin ? m->a_begin : m->b_begin;
    int64_t a_end = m->a_begin + m->a_n, b_end = m->b_begin + m->b_n, end = a_end < b_end ? a_end : b_end;
    *a_at = m->a_next - (a_end - begin);
    *b_at = m->b_next - (b_end - begin);
    *n = end - begin;
    m->a_begin = m->b_begin = end;
    m->a_n = a_end - end;
    m->b_n = b_end - end;
    return true;
}
