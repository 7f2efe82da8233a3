/*
 * kv_cache.c - cached keys and values of growing sequences.
 *
 * A layer has one K and one V of [n_sequences * max_length, G*K]; sequence s starts at row s * max_length. So there are
 * unused rows between the keys of two segments, but attention takes one contiguous list of bounds: each segment is
 * followed by a segment without queries that covers the unused rows.
 */
#include "inference/kv_cache.h"
#include "tensor/internal.h"
#include <stdlib.h>

typedef struct {
    nrl_tensor *k, *v; /* persistent; NULL before first use */
} cache_layer;

struct kv_cache {
    nrl_ctx *ctx;
    int64_t n_sequences, max_length;
    int64_t *length; /* [n_sequences] tokens cached */
    cache_layer *layers;
    int64_t n_layers;
    int32_t *bounds; /* host: cu_q [2S+1] then cu_k [2S+1] */
};

nrl_status kv_cache_create(nrl_ctx *ctx, int64_t n_sequences, int64_t max_length, kv_cache **out)
{
    if (n_sequences < 1 || max_length < 1 || n_sequences > INT32_MAX / max_length)
        return nrl_fail(NRL_ERR_BUG, "cannot create a key/value cache of %lld sequences of %lld tokens",
                        (long long)n_sequences, (long long)max_length);
    kv_cache *c = mem_alloc(sizeof *c);
    *c = (kv_cache){.ctx = ctx, .n_sequences = n_sequences, .max_length = max_length};
    c->length = mem_try((size_t)n_sequences * sizeof *c->length, "a key/value cache");
    c->bounds = mem_try((size_t)(2 * n_sequences + 1) * 2 * sizeof *c->bounds, "a key/value cache");
    *out = c;
    if (c->length && c->bounds) return NRL_OK;
    kv_cache_destroy(ctx, c);
    *out = NULL;
    return NRL_ERR_MEMORY;
}

void kv_cache_destroy(nrl_ctx *ctx, kv_cache *c)
{
    if (!c) return;
    if (ctx->attention_user == c) ctx_set_attention(ctx, NULL, NULL);
    for (int64_t i = 0; i < c->n_layers; i++) {
        tensor_release(ctx, c->layers[i].k);
        tensor_release(ctx, c->layers[i].v);
    }
    free(c->layers);
    free(c->length);
    free(c->bounds);
    free(c);
}

void kv_cache_truncate(kv_cache *c, int64_t sequence, int64_t length)
{
    NRL_ASSERT(sequence, >=, 0);
    NRL_ASSERT(sequence, <, c->n_sequences);
    if (c->length[sequence] > length) c->length[sequence] = length < 0 ? 0 : length;
}

static nrl_status layer_at(nrl_ctx *ctx, kv_cache *c, int64_t layer, const nrl_tensor *k, cache_layer **out)
{
    NRL_ASSERT(layer, >=, 0);
    if (layer >= c->n_layers) {
        c->layers = mem_realloc(c->layers, (size_t)(layer + 1) * sizeof *c->layers);
        while (c->n_layers <= layer)
            c->layers[c->n_layers++] = (cache_layer){0};
    }
    cache_layer *l = *out = &c->layers[layer];
    int64_t dims[] = {c->n_sequences * c->max_length, k->cols};
    if (!l->k) NRL_TRY(tensor_persistent(ctx, k->dtype, 2, dims, false, &l->k));
    if (!l->v) NRL_TRY(tensor_persistent(ctx, k->dtype, 2, dims, false, &l->v));
    return NRL_OK;
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

/* Appends segment s at its positions. */
static nrl_status append(nrl_ctx *ctx, kv_cache *c, cache_layer *l, int64_t s, const nrl_tensor *k, const nrl_tensor *v)
{
    const nrl_batch *b = ctx->batch;
    int64_t begin = b->cu_seqlens[s], n = b->cu_seqlens[s + 1] - begin;
    if (!n) return NRL_OK;
    int64_t at = b->positions[begin], end = at + n;
    if (at > c->length[s] || end > c->max_length)
        return nrl_fail(NRL_ERR_BUG,
                        "sequence %lld: cannot append tokens %lld to %lld: %lld tokens are cached, at most %lld fit",
                        (long long)s, (long long)at, (long long)end, (long long)c->length[s], (long long)c->max_length);
    NRL_TRY(copy_rows(ctx, k, begin, n, l->k, s * c->max_length + at));
    NRL_TRY(copy_rows(ctx, v, begin, n, l->v, s * c->max_length + at));
    if (end > c->length[s]) c->length[s] = end;
    return NRL_OK;
}

/* Fills the bounds of segments and, between them, of unused rows. Causal attention aligns the last query with the last
 * key, so a segment's keys end at its own last token even if more tokens are cached. */
static void fill_bounds(const kv_cache *c, const nrl_batch *b, int32_t *cu_q, int32_t *cu_k)
{
    cu_q[0] = cu_k[0] = 0;
    for (int64_t s = 0; s < b->n_segments; s++) {
        int32_t end = b->cu_seqlens[s + 1];
        int32_t keys = end > b->cu_seqlens[s] ? b->positions[end - 1] + 1 : 0;
        cu_q[2 * s + 1] = cu_q[2 * s + 2] = end;
        cu_k[2 * s + 1] = (int32_t)(s * c->max_length) + keys;
        cu_k[2 * s + 2] = (int32_t)((s + 1) * c->max_length);
    }
}

static nrl_status check(const nrl_ctx *ctx, const kv_cache *c)
{
    const nrl_batch *b = ctx->batch;
    if (b->prefix) return nrl_fail(NRL_ERR_BUG, "a batch with shared prefixes cannot use a key/value cache");
    if (b->n_segments <= c->n_sequences) return NRL_OK;
    return nrl_fail(NRL_ERR_BUG, "the batch has %lld segments, but the cache has %lld sequences",
                    (long long)b->n_segments, (long long)c->n_sequences);
}

/* ctx_attention: appends k and v of the batch's segments to the cache of spec->layer and attends to all cached keys. */
static nrl_status kv_cache_attention(void *user, nrl_ctx *ctx, nrl_tensor *q, nrl_tensor *k, nrl_tensor *v,
                                     const nrl_attention_spec *spec, nrl_tensor *y)
{
    kv_cache *c = user;
    const nrl_batch *b = ctx->batch;
    cache_layer *l;
    nrl_tensor *bounds;
    NRL_TRY(check(ctx, c));
    NRL_TRY(layer_at(ctx, c, spec->layer, k, &l));
    for (int64_t s = 0; s < b->n_segments; s++)
        NRL_TRY(append(ctx, c, l, s, k, v));
    int64_t n = 2 * b->n_segments + 1;
    fill_bounds(c, b, c->bounds, c->bounds + n);
    NRL_TRY(tensor_of_host(ctx, NRL_DTYPE_I32, 2 * n, c->bounds, true, &bounds));
    nrl_attention_args a = {.size = sizeof a,
                            .n_segments = (uint32_t)(n - 1),
                            .q = tensor_mat(q),
                            .k = tensor_mat(l->k),
                            .v = tensor_mat(l->v),
                            .y = tensor_mat(y),
                            .cu_q = tensor_index(bounds),
                            .cu_k = tensor_index(bounds) + n,
                            .host_cu_q = c->bounds,
                            .host_cu_k = c->bounds + n,
                            .n_heads = spec->n_heads,
                            .n_kv_heads = spec->n_kv_heads,
                            .head_dim = spec->head_dim,
                            .window = spec->window,
                            .scale = spec->scale};
    a.k.rows = a.v.rows = b->n_segments * c->max_length;
    return backend_attention(ctx, &a);
}

void kv_cache_use(nrl_ctx *ctx, kv_cache *c)
{
    ctx_set_attention(ctx, c ? kv_cache_attention : NULL, c);
}
