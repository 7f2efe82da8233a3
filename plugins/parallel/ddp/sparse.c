/*
 * sparse.c - compress: topk and threshold. Of a bucket, plus the residual of earlier steps, only the
 * elements of the largest magnitude (the share topk_ratio), or those that reach threshold_value (Strom
 * 2015), are sent: indices and values, gathered by all ranks and added in rank order. What is not sent
 * is the residual (Aji and Heafield 2017; Lin et al. 2018, without its momentum correction: the
 * optimizer's moments see only sums). A step that is not finite leaves the residuals as they were.
 * Selection and addition go through host memory.
 */
#include "ddp.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    nrl_tensor *index, *value; /* [room] i32 and f32 */
    int64_t room;
} pairs;

typedef struct {
    nrl_tensor *residual;       /* [n]; NULL without error feedback */
    pairs own, all;             /* what this rank sends; what was received, rank after rank */
    nrl_tensor *count, *counts; /* [1], [R] i64: threshold */
    int64_t *many, *offsets;    /* [R] number of elements of each rank, and their starts */
    nrl_tensor *sent[2];        /* views of own while it is in flight */
    bool whole;                 /* this step is sent in f32 */
} sparse;

static void *host(const nrl_tensor *t)
{
    return nrl_tensor_mat(t).data;
}

/* ---- memory ---- */

static void free_pairs(nrl_ctx *ctx, pairs *p)
{
    nrl_tensor_free(ctx, p->index);
    nrl_tensor_free(ctx, p->value);
    *p = (pairs){0};
}

static nrl_status grow(nrl_ctx *ctx, pairs *p, int64_t room)
{
    if (room <= p->room) return NRL_OK;
    free_pairs(ctx, p);
    NRL_TRY(ddp_tensor(ctx, NRL_DTYPE_I32, room, &p->index));
    NRL_TRY(ddp_tensor(ctx, NRL_DTYPE_F32, room, &p->value));
    p->room = room;
    return NRL_OK;
}

static nrl_status sparse_bind(ddp *d, nrl_ctx *ctx, ddp_bucket *b)
{
    if (!nrl_ctx_host_memory(ctx))
        return nrl_fail(NRL_ERR_CONFIG, "compress: topk and threshold need a backend whose memory the host can read");
    if (b->n > INT32_MAX)
        return nrl_fail(NRL_ERR_CONFIG, "compress: %s has %lld elements; topk and threshold can index %d", b->what,
                        (long long)b->n, INT32_MAX);
    sparse *s = b->codec = calloc(1, sizeof *s);
    if (!s) return nrl_fail(NRL_ERR_MEMORY, "out of memory for a bucket");
    s->many = calloc((size_t)d->size, sizeof *s->many);
    s->offsets = calloc((size_t)d->size, sizeof *s->offsets);
    if (!s->many || !s->offsets) return nrl_fail(NRL_ERR_MEMORY, "out of memory for a bucket");
    if (d->o.error_feedback) NRL_TRY(ddp_tensor(ctx, NRL_DTYPE_F32, b->n, &s->residual));
    NRL_TRY(ddp_tensor(ctx, NRL_DTYPE_I64, 1, &s->count));
    return ddp_tensor(ctx, NRL_DTYPE_I64, d->size, &s->counts);
}

static void drop_views(nrl_ctx *ctx, sparse *s)
{
    for (int k = 0; k < 2; k++) {
        nrl_tensor_free(ctx, s->sent[k]);
        s->sent[k] = NULL;
    }
}

static void sparse_unbind(ddp *d, nrl_ctx *ctx, ddp_bucket *b)
{
    sparse *s = b->codec;
    (void)d;
    if (!s) return;
    drop_views(ctx, s);
    free_pairs(ctx, &s->own);
    free_pairs(ctx, &s->all);
    nrl_tensor_free(ctx, s->residual);
    nrl_tensor_free(ctx, s->count);
    nrl_tensor_free(ctx, s->counts);
    free(s->many);
    free(s->offsets);
    free(s);
    b->codec = NULL;
}

/* ---- selection ---- */

/* A float's magnitude as an integer of the same order. NaN is above everything, so a broken gradient is sent. */
static inline uint32_t size_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits & 0x7fffffffu;
}

/* The k-th largest magnitude, by radix select: 11, 10 and 10 bits. *ties: how many elements of exactly
 * that magnitude belong to the k. */
static uint32_t kth_size(const float *x, int64_t n, int64_t k, int64_t *ties)
{
    static const int shifts[] = {20, 10, 0}, widths[] = {11, 10, 10};
    uint32_t prefix = 0, mask = 0;
    for (int pass = 0; pass < 3; pass++) {
        int64_t seen[2048] = {0};
        uint32_t digits = 1u << widths[pass], digit = digits - 1;
        for (int64_t i = 0; i < n; i++) {
            uint32_t bits = size_bits(x[i]);
            if ((bits & mask) == prefix) seen[bits >> shifts[pass] & (digits - 1)]++;
        }
        while (seen[digit] < k)
            k -= seen[digit--];
        prefix |= digit << shifts[pass];
        mask |= (digits - 1) << shifts[pass];
    }
    *ties = k;
    return prefix;
}

/* Takes everything above `least` and the first `ties` elements of that magnitude. Returns the number taken. */
static int64_t take(const float *x, int64_t n, uint32_t least, int64_t ties, int32_t *index, float *value)
{
    int64_t at = 0;
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits = size_bits(x[i]);
        if (bits < least || (bits == least && ties-- <= 0)) continue;
        index[at] = (int32_t)i;
        value[at++] = x[i];
    }
    return at;
}

static nrl_status choose_topk(ddp *d, nrl_ctx *ctx, const ddp_bucket *b, sparse *s)
{
    int64_t k = (int64_t)ceil(d->o.topk_ratio * (double)b->n), ties;
    if (k > b->n) k = b->n;
    NRL_TRY(grow(ctx, &s->own, k));
    uint32_t least = kth_size(host(b->grads), b->n, k, &ties);
    take(host(b->grads), b->n, least, ties, host(s->own.index), host(s->own.value));
    for (int32_t r = 0; r < d->size; r++)
        s->many[r] = k;
    return NRL_OK;
}

/* Selects at least one element, so that no rank sends an empty message. */
static nrl_status choose_threshold(ddp *d, nrl_ctx *ctx, const ddp_bucket *b, sparse *s)
{
    const float *x = host(b->grads);
    uint32_t least = size_bits((float)d->o.threshold_value);
    int64_t n = 0;
    for (int64_t i = 0; i < b->n; i++)
        n += size_bits(x[i]) >= least;
    NRL_TRY(grow(ctx, &s->own, n ? n : 1));
    if (n) {
        take(x, b->n, least, b->n, host(s->own.index), host(s->own.value));
    } else {
        *(int32_t *)host(s->own.index) = 0;
        *(float *)host(s->own.value) = x[0];
    }
    s->many[d->rank] = n ? n : 1;
    return NRL_OK;
}

/* ---- the stages ---- */

static nrl_status send_count(ddp *d, nrl_ctx *ctx, ddp_bucket *b, sparse *s)
{
    *(int64_t *)host(s->count) = s->many[d->rank];
    nrl_comm_call call = {.size = sizeof call, .send = s->count, .receive = s->counts, .what = b->what};
    return nrl_comm_all_gather(d->comm, ctx, &call, &b->work[0]);
}

static nrl_status take_counts(ddp *d, const ddp_bucket *b, sparse *s)
{
    const int64_t *counts = host(s->counts);
    for (int32_t r = 0; r < d->size; r++) {
        if (counts[r] < 1 || counts[r] > b->n)
            return nrl_fail(NRL_ERR_PEER, "%s: rank %d sent %lld elements, expected at most %lld", b->what, r,
                            (long long)counts[r], (long long)b->n);
        s->many[r] = counts[r];
    }
    return NRL_OK;
}

static nrl_status gather_half(ddp *d, nrl_ctx *ctx, ddp_bucket *b, sparse *s, int w)
{
    nrl_tensor *own = w ? s->own.value : s->own.index, *all = w ? s->all.value : s->all.index, *into;
    int64_t last = d->size - 1, total = s->offsets[last] + s->many[last];
    NRL_TRY(nrl_tensor_slice(ctx, own, 0, s->many[d->rank], &s->sent[w]));
    NRL_TRY(nrl_tensor_slice(ctx, all, 0, total, &into));
    nrl_comm_call call = {.size = sizeof call,
                          .send = s->sent[w],
                          .receive = into,
                          .counts = s->many,
                          .offsets = s->offsets,
                          .what = b->what};
    nrl_status st = nrl_comm_all_gather(d->comm, ctx, &call, &b->work[w]);
    nrl_tensor_free(ctx, into); /* a view of all's memory */
    return st;
}

static nrl_status gather_pairs(ddp *d, nrl_ctx *ctx, ddp_bucket *b, sparse *s)
{
    int64_t total = 0;
    for (int32_t r = 0; r < d->size; r++) {
        s->offsets[r] = total;
        total += s->many[r];
    }
    NRL_TRY(grow(ctx, &s->all, total));
    drop_views(ctx, s);
    NRL_TRY(gather_half(d, ctx, b, s, 0));
    return gather_half(d, ctx, b, s, 1);
}

static nrl_status sparse_stage(ddp *d, nrl_ctx *ctx, ddp_bucket *b, bool *more)
{
    sparse *s = b->codec;
    *more = false;
    if (b->stage == 1) {
        NRL_TRY(take_counts(d, b, s));
        return gather_pairs(d, ctx, b, s);
    }
    s->whole = d->steps < d->o.start_step;
    if (s->whole) return ddp_plain.stage(d, ctx, b, more);
    if (s->residual) NRL_TRY(nrl_tensor_add(ctx, s->residual, b->grads));
    if (d->o.compress == DDP_TOPK) {
        NRL_TRY(choose_topk(d, ctx, b, s));
        return gather_pairs(d, ctx, b, s);
    }
    *more = true;
    NRL_TRY(choose_threshold(d, ctx, b, s));
    return send_count(d, ctx, b, s);
}

static int64_t n_all(const ddp *d, const sparse *s)
{
    return s->offsets[d->size - 1] + s->many[d->size - 1];
}

static nrl_status sparse_is_finite(ddp *d, nrl_ctx *ctx, ddp_bucket *b, bool *finite)
{
    const sparse *s = b->codec;
    *finite = true;
    if (s->whole) return ddp_sum_is_finite(ctx, b->grads, finite);
    const float *value = host(s->all.value);
    for (int64_t i = 0, n = n_all(d, s); i < n && *finite; i++)
        *finite = isfinite(value[i]);
    return NRL_OK;
}

static nrl_status keep_rest(ddp *d, nrl_ctx *ctx, ddp_bucket *b, sparse *s)
{
    const int32_t *index = host(s->own.index);
    float *residual = host(s->residual);
    NRL_TRY(nrl_tensor_copy(ctx, b->grads, s->residual));
    for (int64_t i = 0; i < s->many[d->rank]; i++)
        residual[index[i]] = 0;
    return NRL_OK;
}

static nrl_status sparse_settle(ddp *d, nrl_ctx *ctx, ddp_bucket *b, bool keep)
{
    sparse *s = b->codec;
    if (s->whole) return NRL_OK;
    const int32_t *index = host(s->all.index);
    const float *value = host(s->all.value);
    float *sum = host(b->grads);
    if (keep && s->residual) NRL_TRY(keep_rest(d, ctx, b, s));
    NRL_TRY(nrl_tensor_fill(ctx, b->grads, 0));
    for (int64_t i = 0, n = n_all(d, s); i < n; i++) {
        if (index[i] < 0 || index[i] >= b->n)
            return nrl_fail(NRL_ERR_PEER, "%s: received element index %d; expected 0 to %lld", b->what, index[i],
                            (long long)b->n - 1);
        sum[index[i]] += value[i];
    }
    return NRL_OK;
}

static nrl_status sparse_state(ddp *d, nrl_ctx *ctx, ddp_bucket *b, nrl_state_io *v)
{
    const sparse *s = b->codec;
    char name[512];
    bool found;
    for (int32_t i = b->first; s->residual && i < b->first + b->n_slots; i++) {
        const nrl_param *p = d->slots[i].param;
        nrl_tensor *part;
        snprintf(name, sizeof name, "residual.%s", nrl_param_name(p));
        NRL_TRY(nrl_tensor_slice(ctx, s->residual, d->slots[i].begin, nrl_param_numel(p), &part));
        nrl_status st = nrl_state_io_tensor(v, ctx, name, part, &found);
        nrl_tensor_free(ctx, part);
        NRL_TRY(st);
    }
    return NRL_OK;
}

const ddp_codec ddp_sparse = {
    .bind = sparse_bind,
    .unbind = sparse_unbind,
    .stage = sparse_stage,
    .is_finite = sparse_is_finite,
    .settle = sparse_settle,
    .state = sparse_state,
};
