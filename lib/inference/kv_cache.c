/*
 * kv_cache.c - cached keys and values of growing sequences.
 *
 * A layer has one K and one V of [n_rows, G*K], in which each sequence has a contiguous range of rows. There are other
 * rows between the keys of two segments, but attention takes one contiguous list of bounds: each segment is preceded by
 * a segment without queries that covers the rows between.
 */
#include "inference/kv_cache.h"
#include "tensor/internal.h"
#include <stdlib.h>

typedef struct {
    nrl_tensor *kv[2]; /* persistent; NULL before first use */
} cache_layer;

struct kv_cache {
    nrl_ctx *ctx;
    int64_t n_rows;
    const int64_t *first; /* [n] of the current batch's segments */
    int64_t n;
    cache_layer *layers;
    int64_t n_layers;
    int32_t *bounds; /* host: cu_q [2S+1] then cu_k [2S+1], with room for `room` segments */
    int64_t room;
};

nrl_status kv_cache_create(nrl_ctx *ctx, int64_t n_rows, kv_cache **out)
{
    kv_cache *c = mem_alloc(sizeof *c);
    NRL_ASSERT(n_rows, >, 0);
    *c = (kv_cache){.ctx = ctx, .n_rows = n_rows};
    *out = c;
    return NRL_OK;
}

void kv_cache_destroy(kv_cache *c)
{
    if (!c) return;
    if (ctx_settings_of(c->ctx)->attention.user == c) ctx_settings_of(c->ctx)->attention = (ctx_attention){0};
    for (int64_t i = 0; i < 2 * c->n_layers; i++)
        tensor_release(c->ctx, c->layers[i / 2].kv[i % 2]);
    free(c->layers);
    free(c->bounds);
    free(c);
}

int64_t kv_cache_rows(const kv_cache *c)
{
    return c->n_rows;
}

static cache_layer *layer_at(kv_cache *c, int64_t layer)
{
    NRL_ASSERT(layer, >=, 0);
    if (layer >= c->n_layers) {
        c->layers = mem_realloc(c->layers, (size_t)(layer + 1) * sizeof *c->layers);
        while (c->n_layers <= layer)
            c->layers[c->n_layers++] = (cache_layer){0};
    }
    return &c->layers[layer];
}

/* Copies rows [from, from + n) of x to rows [to, to + n) of y. */
static nrl_status copy_rows(nrl_ctx *ctx, const nrl_tensor *x, int64_t from, int64_t n, const nrl_tensor *y, int64_t to)
{
    nrl_copy_args a = {.size = sizeof a, .x = tensor_mat(x), .y = tensor_mat(y), .alpha = 1};
    size_t element = nrl_dtype_size(x->dtype);
    a.x.data = (char *)a.x.data + (size_t)(from * x->stride) * element;
    a.y.data = (char *)a.y.data + (size_t)(to * y->stride) * element;
    a.x.rows = a.y.rows = n;
    return backend_copy(ctx, &a);
}

nrl_status kv_cache_grow(kv_cache *c, int64_t n_rows)
{
    const int64_t n = 2 * c->n_layers;
    nrl_status st = NRL_OK;
    nrl_tensor **grown = mem_alloc((size_t)(n + 1) * sizeof *grown);
    NRL_ASSERT(n_rows, >=, c->n_rows);
    for (int64_t i = 0; i < n && st == NRL_OK; i++) {
        const nrl_tensor *old = c->layers[i / 2].kv[i % 2];
        if (!old) continue;
        st = tensor_persistent(c->ctx, old->dtype, 2, (int64_t[]){n_rows, old->cols}, false, &grown[i]);
        if (st == NRL_OK) st = copy_rows(c->ctx, old, 0, c->n_rows, grown[i], 0);
    }
    for (int64_t i = 0; i < n; i++) {
        nrl_tensor **kv = &c->layers[i / 2].kv[i % 2];
        tensor_release(c->ctx, st == NRL_OK ? *kv : grown[i]);
        if (st == NRL_OK) *kv = grown[i];
    }
    if (st == NRL_OK) c->n_rows = n_rows;
    free(grown);
    return st;
}

nrl_status kv_cache_copy(kv_cache *c, int64_t from, int64_t to, int64_t n)
{
    for (int64_t i = 0; i < 2 * c->n_layers && n > 0; i++) {
        const nrl_tensor *t = c->layers[i / 2].kv[i % 2];
        if (t) NRL_TRY(copy_rows(c->ctx, t, from, n, t, to));
    }
    return NRL_OK;
}

static nrl_status check(const kv_cache *c, const nrl_batch *b)
{
    if (b->prefix) return nrl_fail(NRL_ERR_BUG, "a batch with shared prefixes cannot use a key/value cache");
    if (b->n_segments != c->n)
        return nrl_fail(NRL_ERR_BUG, "the batch has %lld segments, but the cache was set for %lld",
                        (long long)b->n_segments, (long long)c->n);
    for (int64_t s = 0; s < c->n; s++) {
        const int64_t end =
            c->first[s] +
            (b->cu_seqlens[s + 1] > b->cu_seqlens[s] ? (int64_t)b->positions[b->cu_seqlens[s + 1] - 1] + 1 : 0);
        const int64_t most = s + 1 < c->n ? c->first[s + 1] : c->n_rows;
        if (end > most)
            return nrl_fail(NRL_ERR_BUG, "sequence %lld has rows %lld to %lld of the key/value cache, not %lld",
                            (long long)s, (long long)c->first[s], (long long)most, (long long)end);
    }
    return NRL_OK;
}

/* Fills the bounds of segments and of the rows before each. Causal attention aligns the last query with the last key,
 * so a segment's keys end at its own last token even if more tokens are cached. */
static void fill_bounds(const kv_cache *c, const nrl_batch *b, int32_t *cu_q, int32_t *cu_k)
{
    cu_q[0] = cu_k[0] = 0;
    for (int64_t s = 0; s < b->n_segments; s++) {
        const int32_t begin = b->cu_seqlens[s], end = b->cu_seqlens[s + 1];
        cu_q[2 * s + 1] = begin;
        cu_q[2 * s + 2] = end;
        cu_k[2 * s + 1] = (int32_t)c->first[s];
        cu_k[2 * s + 2] = (int32_t)c->first[s] + (end > begin ? b->positions[end - 1] + 1 : 0);
    }
}

/* ctx_attention: writes k and v of the batch's segments to the cache of spec->layer and attends to all cached keys. */
static nrl_status kv_cache_attention(void *user, nrl_ctx *ctx, nrl_tensor *q, nrl_tensor *k, nrl_tensor *v,
                                     const nrl_attention_spec *spec, double soft_cap, const nrl_tensor *sinks,
                                     nrl_tensor *y)
{
    kv_cache *c = user;
    const nrl_batch *b = ctx->batch;
    nrl_tensor *bounds;
    NRL_TRY(check(c, b));
    cache_layer *l = layer_at(c, spec->layer);
    for (int i = 0; i < 2; i++) {
        const nrl_tensor *x = i ? v : k;
        if (!l->kv[i]) NRL_TRY(tensor_persistent(ctx, x->dtype, 2, (int64_t[]){c->n_rows, x->cols}, false, &l->kv[i]));
        for (int64_t s = 0; s < b->n_segments; s++) {
            const int64_t begin = b->cu_seqlens[s], n = b->cu_seqlens[s + 1] - begin;
            if (n) NRL_TRY(copy_rows(ctx, x, begin, n, l->kv[i], c->first[s] + b->positions[begin]));
        }
    }
    const int64_t n = 2 * b->n_segments + 1;
    if (b->n_segments > c->room) {
        c->room = 2 * b->n_segments;
        c->bounds = mem_realloc(c->bounds, (size_t)(2 * c->room + 1) * 2 * sizeof *c->bounds);
    }
    fill_bounds(c, b, c->bounds, c->bounds + n);
    NRL_TRY(tensor_of_host(ctx, NRL_DTYPE_I32, 2 * n, c->bounds, true, &bounds));
    nrl_attention_args a = {.size = sizeof a,
                            .n_segments = (uint32_t)(n - 1),
                            .q = tensor_mat(q),
                            .k = tensor_mat(l->kv[0]),
                            .v = tensor_mat(l->kv[1]),
                            .y = tensor_mat(y),
                            .cu_q = tensor_index(bounds),
                            .cu_k = tensor_index(bounds) + n,
                            .host_cu_q = c->bounds,
                            .host_cu_k = c->bounds + n,
                            .n_heads = spec->n_heads,
                            .n_kv_heads = spec->n_kv_heads,
                            .head_dim = spec->head_dim,
                            .window = spec->window,
                            .scale = spec->scale,
                            .soft_cap = soft_cap,
                            .sinks = sinks ? tensor_mat(sinks).data : NULL};
    a.k.rows = a.v.rows = c->bounds[2 * n - 1];
    return backend_attention(ctx, &a);
}

void kv_cache_use(nrl_ctx *ctx, kv_cache *c, const int64_t *first, int64_t n)
{
    if (c) {
        c->first = first;
        c->n = n;
    }
    ctx_settings_of(ctx)->attention = (ctx_attention){c ? kv_cache_attention : NULL, c};
}
