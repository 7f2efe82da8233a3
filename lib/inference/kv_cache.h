/*
 * kv_cache.h - keys and values of earlier tokens, for generation: rows of memory, of which each sequence has a range.
 * No gradient flows through them.
 */
#ifndef INFERENCE_KV_CACHE_H
#define INFERENCE_KV_CACHE_H
#include "tensor/ctx.h"

typedef struct kv_cache kv_cache;
/* The K and V buffers of a layer, of n_rows tokens, are allocated at first use. */
nrl_status kv_cache_create(nrl_ctx *ctx, int64_t n_rows, kv_cache **out);
void kv_cache_destroy(kv_cache *c); /* NULL is allowed */
int64_t kv_cache_rows(const kv_cache *c);
/* More rows; what is cached stays. After NRL_ERR_MEMORY the cache is as before. */
nrl_status kv_cache_grow(kv_cache *c, int64_t n_rows);
/* Copies n rows of every layer; the ranges do not overlap. */
nrl_status kv_cache_copy(kv_cache *c, int64_t from, int64_t to, int64_t n);

/* Sets the cache (NULL = none). With a cache, attention writes the keys and values of segment s of the batch to the
 * rows first[s] + position, and attends to rows [first[s], first[s] + position]. `first` [n] ascends, is borrowed until
 * the next call, and is as long as the batch has segments. */
void kv_cache_use(nrl_ctx *ctx, kv_cache *c, const int64_t *first, int64_t n);

#endif
