/*
 * attention_grad.h - attention's backward for one block of queries and one of keys.
 *
 * With P = exp(S - lse), S capped if there is a cap, dP = dy V^T and delta = sum over columns of dy y: dS = P (dP -
 * delta), dV = P^T dy, dK = dS^T Q scale, dQ = dS K scale. Static functions of attention_grad.c, which assigns blocks
 * to threads.
 */
#ifndef CPU_OPS_ATTENTION_GRAD_H
#define CPU_OPS_ATTENTION_GRAD_H
#include "attention.h"

typedef struct {
    const cpu *self;
    const nrl_attention_grad_args *a;
    float *delta;          /* [H, N] */
    float *dk, *dv;        /* f32 sums: element (row, kv head, d) at [row * stride + head * width + d] */
    int64_t stride, width; /* width: head_dim rounded up to LANES */
    /* families: segments of family f are member[family[f] .. family[f + 1]), ascending */
    int64_t n_families;
    int64_t *family, *member, *root_family; /* root_family[s]: family of segment s */
    int64_t *first_task;                    /* [segments + 1] of the current pass */
} grad_task;

/* Work space of one block of queries and one of keys. */
typedef struct {
    float *q_rows, *dy_rows;   /* [lanes, width] */
    float *q_lanes, *dy_lanes; /* [head_dim, lanes] */
    float *dq;                 /* [head_dim, lanes] */
    float *p, *ds;             /* [KEYS, lanes] */
    float *pos, *lse, *delta;  /* [lanes] */
    float *k, *v;              /* [KEYS, head_dim], for bf16 and f16 */
} grad_work;

static int64_t most_lanes(const nrl_attention_args *a)
{
    return round_up(a->n_heads / a->n_kv_heads * block_queries(a), LANES);
}

static size_t work_floats(const nrl_attention_args *a)
{
    int64_t lanes = most_lanes(a), width = round_up(a->head_dim, LANES);
    return (size_t)(5 * width * lanes + 2 * KEYS * lanes + 3 * lanes + 2 * KEYS * a->head_dim);
}

static grad_work work_at(float *p, const nrl_attention_args *a)
{
    int64_t lanes = most_lanes(a), width = round_up(a->head_dim, LANES);
    grad_work w;
    w.q_rows = p;
    w.dy_rows = w.q_rows + width * lanes;
    w.q_lanes = w.dy_rows + width * lanes;
    w.dy_lanes = w.q_lanes + width * lanes;
    w.dq = w.dy_lanes + width * lanes;
    w.p = w.dq + width * lanes;
    w.ds = w.p + KEYS * lanes;
    w.pos = w.ds + KEYS * lanes;
    w.lse = w.pos + lanes;
    w.delta = w.lse + lanes;
    w.k = w.delta + lanes;
    w.v = w.k + KEYS * a->head_dim;
    return w;
}

/* ---- a block of queries ---- */

/* to[lane, d] = alpha m[...], columns beyond head_dim zero. */
static void pack_rows(const nrl_mat *m, const query_block *b, float alpha, float *to, int64_t width)
{
    int64_t dim = b->a->head_dim;
    for (int64_t l = 0; l < b->group * b->n; l++) {
        int64_t row = b->seg.q_begin + b->first + l % b->n;
        int64_t col = (b->kv_head * b->group + l / b->n) * dim;
        float *out = to + l * width, buf[SPAN];
        for (int64_t c = 0; c < dim; c += SPAN) {
            int64_t n = dim - c < SPAN ? dim - c : SPAN;
            const float *x = span_read(m, row, col + c, n, buf);
            SIMD
            for (int64_t d = 0; d < n; d++)
                out[c + d] = alpha * x[d];
        }
        for (int64_t d = dim; d < width; d++)
            out[d] = 0;
    }
}

static void load_block(const grad_task *t, const query_block *b, const grad_work *w)
{
    const nrl_attention_args *f = t->a->forward;
    pack_rows(&f->q, b, (float)f->scale, w->q_rows, t->width);
    pack_rows(&t->a->dy, b, 1, w->dy_rows, t->width);
    pack_lanes(&f->q, b, (float)f->scale, w->q_lanes);
    pack_lanes(&t->a->dy, b, 1, w->dy_lanes);
    lane_positions(b, w->pos);
    int64_t rows = f->q.rows;
    for (int64_t l = 0; l < b->lanes; l++) {
        bool used = l < b->group * b->n;
        int64_t head = b->kv_head * b->group + l / b->n;
        int64_t row = b->seg.q_begin + b->first + l % b->n;
        w->lse[l] = used ? *(const float *)mat_at(&f->lse, head, row, 4) : INFINITY;
        w->delta[l] = used ? t->delta[head * rows + row] : 0;
    }
    memset(w->dq, 0, (size_t)(f->head_dim * b->lanes) * sizeof(float));
}

/* dq of the block's queries, scaled. */
static void store_queries(const grad_task *t, const query_block *b, const grad_work *w)
{
    int64_t dim = b->a->head_dim;
    float scale = (float)b->a->scale, buf[SPAN] = {0};
    for (int64_t l = 0; l < b->group * b->n; l++) {
        int64_t row = b->seg.q_begin + b->first + l % b->n;
        int64_t col = (b->kv_head * b->group + l / b->n) * dim;
        for (int64_t c = 0; c < dim; c += SPAN) {
            int64_t n = dim - c < SPAN ? dim - c : SPAN;
            float *to = span_target(&t->a->dq, row, col + c, buf);
            for (int64_t d = 0; d < n; d++) {
                float dq = w->dq[(c + d) * b->lanes + l] * scale;
                to[d] = b->a->merge ? to[d] + dq : dq;
            }
            span_write(&t->a->dq, row, col + c, n, to);
        }
    }
}

/* ---- one tile ---- */

/* Capped scores c = cap tanh(s / cap): p = exp(c - lse), ds = (dp - delta) dc/ds, where dc/ds = 1 - (c / cap)^2. */
static void capped_softmax(const query_block *b, const key_block *kb, const grad_work *w)
{
    int64_t lanes = b->lanes;
    float cap = (float)b->a->soft_cap;
    for (int64_t j = 0; j < kb->n; j++) {
        float *p = w->p + j * lanes, *ds = w->ds + j * lanes;
        SIMD
        for (int64_t l = 0; l < lanes; l++) {
            float t = v_tanh(p[l] / cap);
            p[l] = v_exp_flush(cap * t - w->lse[l]);
            ds[l] = (ds[l] - w->delta[l]) * (1 - t * t);
        }
    }
}

/* p = exp(s - lse), ds = p (dp - delta); p holds s and ds holds dp on entry. */
static void tile_softmax(const query_block *b, const key_block *kb, const grad_work *w)
{
    int64_t lanes = b->lanes;
    bool capped = b->a->soft_cap > 0;
    if (capped) capped_softmax(b, kb, w);
    for (int64_t j = 0; j < kb->n && !capped; j++) {
        float *p = w->p + j * lanes;
        SIMD
        for (int64_t l = 0; l < lanes; l++)
            p[l] = v_exp_flush(p[l] - w->lse[l]);
    }
    if (!block_sees_all(b, kb)) mask_scores(b, kb, w->pos, w->p, 0);
    for (int64_t j = 0; j < kb->n; j++) {
        const float *p = w->p + j * lanes;
        float *ds = w->ds + j * lanes;
        if (capped) {
            SIMD
            for (int64_t l = 0; l < lanes; l++)
                ds[l] *= p[l];
        } else {
            SIMD
            for (int64_t l = 0; l < lanes; l++)
                ds[l] = p[l] * (ds[l] - w->delta[l]);
        }
    }
}

static void add_to_keys(const grad_task *t, const query_block *b, const key_block *kb, const grad_work *w)
{
    int64_t at = kb->row * t->stride + b->kv_head * t->width;
    tile_args u = {
        .a_row = b->lanes, .a_col = 1, .b_row = t->width, .c_row = t->stride, .k = b->group * b->n, .add = true};
    u.a = w->p;
    u.b = w->dy_rows;
    u.c = t->dv + at;
    ISA(cpu_tile_product)(&u, kb->n, t->width);
    u.a = w->ds;
    u.b = w->q_rows;
    u.c = t->dk + at;
    ISA(cpu_tile_product)(&u, kb->n, t->width);
}

static void grad_tile(const grad_task *t, const query_block *b, const key_block *kb, const grad_work *w, bool to_keys,
                      bool to_queries)
{
    const nrl_attention_args *f = b->a;
    int64_t lanes = b->lanes, k_stride, v_stride;
    const float *k = key_rows(&f->k, b, kb, w->k, &k_stride);
    const float *v = key_rows(&f->v, b, kb, w->v, &v_stride);
    tile_args u = {.a_col = 1, .b_row = lanes, .c_row = lanes, .k = f->head_dim};
    u.a = k;
    u.a_row = k_stride;
    u.b = w->q_lanes;
    u.c = w->p;
    ISA(cpu_tile_product)(&u, kb->n, lanes);
    u.a = v;
    u.a_row = v_stride;
    u.b = w->dy_lanes;
    u.c = w->ds;
    ISA(cpu_tile_product)(&u, kb->n, lanes);
    tile_softmax(b, kb, w);
    if (to_keys) add_to_keys(t, b, kb, w);
    if (!to_queries) return;
    tile_args d = {.a = k,
                   .a_row = 1,
                   .a_col = k_stride,
                   .b = w->ds,
                   .b_row = lanes,
                   .c = w->dq,
                   .c_row = lanes,
                   .k = kb->n,
                   .add = true};
    ISA(cpu_tile_product)(&d, f->head_dim, lanes);
}

/* All key blocks that b sees, in order. */
static void grad_block(const grad_task *t, const query_block *b, const grad_work *w, bool to_keys)
{
    load_block(t, b, w);
    for (int r = 0; r < 2; r++) {
        const key_run *run = &b->seg.run[r];
        for (int64_t row = run->begin; row < run->end; row += KEYS) {
            key_block kb = {row, run->first + row - run->begin, run->end - row < KEYS ? run->end - row : KEYS};
            if (block_sees(b, &kb)) grad_tile(t, b, &kb, w, to_keys, true);
        }
    }
    store_queries(t, b, w);
}

#endif
