/*
 * attention.h - shared by forward and backward attention: which keys a block of queries sees, and
 * how queries become lanes.
 *
 * A tile pairs a block of queries of one segment, all heads of one kv head together, with a block
 * of its keys. Queries are the lanes of vectors (lane = head of the group * n + query), keys the
 * rows: S^T [keys, lanes] = K Q^T needs no transposed keys, and softmax runs down the rows without
 * shuffling lanes. Keys and values are read where they lie (bf16 and f16 through a buffer).
 *
 * Keys of a segment have positions from 0, the prefix's keys first. Query i of n has the position
 * i + (number of keys) - n, and sees keys up to it. Of a part of the rows (`merge`), each segment has the
 * queries and keys that are there.
 */
#ifndef CPU_OPS_ATTENTION_H
#define CPU_OPS_ATTENTION_H
#include "span.h"
#include "tile.h"

enum { KEYS = 48, LANES_WANTED = 128, MAX_QUERIES = 64 };

/* Keys [begin, end) of k and v that a segment sees as positions [first, first + end - begin). */
typedef struct {
    int64_t begin, end, first;
} key_run;

typedef struct {
    int64_t q_begin, n_queries, first_pos; /* rows of q, and the position of the first */
    key_run run[2];                        /* the prefix's keys, then the segment's own; each may be empty */
} segment;

/* The rows [begin, end) of a segment that are among the n from `first` on, counted from there. */
static inline key_run rows_there(int64_t begin, int64_t end, int64_t pos, int64_t first, int64_t n)
{
    key_run r = {begin > first ? begin - first : 0, end < first + n ? end - first : n, pos};
    if (begin < first) r.first += first - begin;
    if (r.end < r.begin) r.end = r.begin;
    return r;
}

static inline segment segment_of(const nrl_attention_args *a, int64_t s)
{
    int64_t prefix = a->host_prefix ? a->host_prefix[s] : -1, n = 0;
    const int32_t *q = a->host_cu_q + s, *k = a->host_cu_k + s;
    segment g = {.q_begin = q[0], .n_queries = q[1] - q[0]};
    if (prefix >= 0) {
        g.run[0] = (key_run){a->host_cu_k[prefix], a->host_cu_k[prefix + 1], 0};
        n = g.run[0].end - g.run[0].begin;
    }
    g.run[1] = (key_run){k[0], k[1], n};
    g.first_pos = n + k[1] - k[0] - g.n_queries;
    if (!a->merge) return g;
    key_run there = rows_there(q[0], q[1], g.first_pos, a->q_begin, a->q.rows);
    g.q_begin = there.begin;
    g.n_queries = there.end - there.begin;
    g.first_pos = there.first;
    for (int r = 0; r < 2; r++)
        g.run[r] = rows_there(g.run[r].begin, g.run[r].end, g.run[r].first, a->k_begin, a->k.rows);
    return g;
}

/* Queries in a block: independent of the number of threads, because results depend on it. */
static inline int64_t block_queries(const nrl_attention_args *a)
{
    int64_t group = a->n_heads / a->n_kv_heads;
    int64_t n = LANES_WANTED / group / LANES * LANES;
    if (n > MAX_QUERIES) n = MAX_QUERIES;
    return n > 0 ? n : LANES;
}

static inline int64_t round_up(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}

/* A block of queries of one kv head's group. */
typedef struct {
    const nrl_attention_args *a;
    segment seg;
    int64_t kv_head, first, n; /* queries [first, first + n) of the segment */
    int64_t group, lanes;      /* heads of the group; group * n rounded up to LANES */
    int64_t first_pos;         /* of query `first` */
} query_block;

static inline query_block block_of(const nrl_attention_args *a, const segment *seg, int64_t kv_head, int64_t first)
{
    query_block b = {.a = a, .seg = *seg, .kv_head = kv_head, .first = first};
    int64_t most = block_queries(a);
    b.n = seg->n_queries - first < most ? seg->n_queries - first : most;
    b.group = a->n_heads / a->n_kv_heads;
    b.lanes = round_up(b.group * b.n, LANES);
    b.first_pos = seg->first_pos + first;
    return b;
}

/* A block of keys: rows [row, row + n) of k and v, positions from pos on. */
typedef struct {
    int64_t row, pos, n;
} key_block;

/* Whether any query of b sees any key of kb. */
static inline bool block_sees(const query_block *b, const key_block *kb)
{
    int64_t window = b->a->window;
    if (kb->pos > b->first_pos + b->n - 1) return false;
    return window <= 0 || kb->pos + kb->n - 1 > b->first_pos - window;
}

/* Whether every query of b sees every key of kb. */
static inline bool block_sees_all(const query_block *b, const key_block *kb)
{
    int64_t window = b->a->window;
    if (kb->pos + kb->n - 1 > b->first_pos) return false;
    return window <= 0 || kb->pos > b->first_pos + b->n - 1 - window;
}

/* Rows of a key block as [n, head_dim] f32, and their stride. */
static inline const float *key_rows(const nrl_mat *m, const query_block *b, const key_block *kb, float *buf,
                                    int64_t *stride)
{
    int64_t width = b->a->head_dim, col = b->kv_head * width;
    if (m->dtype == NRL_DTYPE_F32) {
        *stride = m->stride;
        return mat_at(m, kb->row, col, 4);
    }
    for (int64_t i = 0; i < kb->n; i++)
        half_to_f32(m->dtype, mat_at(m, kb->row + i, col, 2), buf + i * width, width);
    *stride = width;
    return buf;
}

/* to[d, lane] = alpha m[query of lane, head of lane, d]: the block's rows as lanes. */
static inline void pack_lanes(const nrl_mat *m, const query_block *b, float alpha, float *to)
{
    int64_t width = b->a->head_dim, lanes = b->lanes, used = b->group * b->n;
    for (int64_t h = 0; h < b->group; h++) {
        int64_t col = (b->kv_head * b->group + h) * width;
        for (int64_t i = 0; i < b->n; i++) {
            float buf[SPAN];
            int64_t row = b->seg.q_begin + b->first + i;
            float *lane = to + h * b->n + i;
            for (int64_t c = 0; c < width; c += SPAN) {
                int64_t n = width - c < SPAN ? width - c : SPAN;
                const float *x = span_read(m, row, col + c, n, buf);
                for (int64_t d = 0; d < n; d++)
                    lane[(c + d) * lanes] = alpha * x[d];
            }
        }
    }
    for (int64_t d = 0; d < width && used < lanes; d++)
        memset(to + d * lanes + used, 0, (size_t)(lanes - used) * sizeof *to);
}

/* The position of each lane's query, as f32 (exact below 2^24). */
static inline void lane_positions(const query_block *b, float *pos)
{
    for (int64_t h = 0; h < b->group; h++)
        for (int64_t i = 0; i < b->n; i++)
            pos[h * b->n + i] = (float)(b->first_pos + i);
    for (int64_t l = b->group * b->n; l < b->lanes; l++)
        pos[l] = (float)b->first_pos;
}

/* Scores of keys that a lane does not see become `value`. */
static inline void mask_scores(const query_block *b, const key_block *kb, const float *pos, float *scores, float value)
{
    float window = b->a->window > 0 ? (float)b->a->window : INFINITY;
    for (int64_t j = 0; j < kb->n; j++) {
        float key = (float)(kb->pos + j), *s = scores + j * b->lanes;
        SIMD
        for (int64_t l = 0; l < b->lanes; l++) {
            bool seen = key <= pos[l] && key > pos[l] - window;
            s[l] = seen ? s[l] : value;
        }
    }
}

static inline nrl_status attention_check(const nrl_attention_args *a)
{
    bool right = a->n_kv_heads > 0 && a->n_heads % a->n_kv_heads == 0 && a->head_dim > 0 &&
                 a->q.cols == a->n_heads * a->head_dim && a->k.cols == a->n_kv_heads * a->head_dim &&
                 a->v.cols == a->k.cols && a->y.cols == a->q.cols;
    if (!right)
        return nrl_fail(NRL_ERR_BUG,
                        "attention of %lld heads, %lld kv heads, width %lld: q has %lld "
                        "columns, k %lld",
                        (long long)a->n_heads, (long long)a->n_kv_heads, (long long)a->head_dim, (long long)a->q.cols,
                        (long long)a->k.cols);
    if (!a->host_cu_q || !a->host_cu_k) return nrl_fail(NRL_ERR_BUG, "attention without segments on the host");
    return NRL_OK;
}

#endif
