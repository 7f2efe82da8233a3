/*
 * kv_cache.h - keys and values of earlier tokens, for generation. No gradient flows through them.
 */
#ifndef INFERENCE_KV_CACHE_H
#define INFERENCE_KV_CACHE_H
#include "tensor/ctx.h"

typedef struct kv_cache kv_cache;
/* A cache for n_sequences of max_length tokens. The K and V buffers of a layer are allocated at first use. */
nrl_status kv_cache_create(nrl_ctx *ctx, int64_t n_sequences, int64_t max_length, kv_cache **out);
void kv_cache_destroy(nrl_ctx *ctx, kv_cache *c);
/* Sets the cache (NULL = none). With a cache, attention appends the keys and values of each segment (segment s of the
 * batch is sequence s, at its positions) and attends to all that are cached. */
void kv_cache_use(nrl_ctx *ctx, kv_cache *c);
void kv_cache_truncate(kv_cache *c, int64_t sequence, int64_t length);

#endif
