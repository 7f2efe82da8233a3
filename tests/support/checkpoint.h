/*
 * checkpoint.h - for tests of checkpoints: tensors whose elements follow from their index, so that
 * any part can be created and checked; ranks that are threads and share a store in memory.
 */
#ifndef SUPPORT_CHECKPOINT_H
#define SUPPORT_CHECKPOINT_H
#include "base/arena.h"
#include "checkpoint/checkpoint.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Bytes of element i: like trained weights, with noise in the lower bytes and few signs and
 * exponents in the upper ones. */
static inline void known_element(int64_t i, int64_t salt, size_t width, unsigned char *to)
{
    uint64_t x = (uint64_t)(i + 1) * 0x9E3779B97F4A7C15u ^ (uint64_t)salt * 0xC2B2AE3D27D4EB4Fu;
    x ^= x >> 29;
    x *= 0xBF58476D1CE4E5B9u;
    x ^= x >> 32;
    for (size_t b = 0; b < width; b++)
        to[b] = (unsigned char)(x >> 8 * b);
    to[width - 1] = (unsigned char)(0x38 | (x & 0x83 & x >> 9));
}

/* The elements of a shard in its own order; malloc'd. */
static inline unsigned char *known_piece(const layout_shard *p, int64_t salt, size_t width)
{
    int64_t n = piece_numel(p), at = 0, begin, run;
    unsigned char *bytes = malloc((size_t)n * width + 1);
    for (int64_t done = 0; piece_next(p, &at, &begin, &run); done = at)
        for (int64_t i = 0; i < run; i++)
            known_element(begin + i, salt, width, bytes + (size_t)(done + i) * width);
    return bytes;
}

/* ---- a store in memory ---- */

typedef struct {
    char *key;
    void *value;
    size_t size;
} known_word;

typedef struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    known_word words[4096];
    int n;
    atomic_bool gone; /* every get fails at once */
} memory_store;

static inline void memory_store_open(memory_store *s)
{
    *s = (memory_store){.n = 0};
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
}

static inline void memory_store_close(memory_store *s)
{
    for (int i = 0; i < s->n; i++) {
        free(s->words[i].key);
        free(s->words[i].value);
    }
    s->n = 0;
}

static inline nrl_status memory_store_set(void *user, const char *key, const void *value, size_t size)
{
    memory_store *s = user;
    pthread_mutex_lock(&s->lock);
    NRL_ASSERT(s->n, <, 4096);
    known_word *w = &s->words[s->n++];
    *w = (known_word){mem_strdup(key), malloc(size + 1), size};
    memcpy(w->value, value, size);
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    return NRL_OK;
}

static inline const known_word *memory_store_find(const memory_store *s, const char *key)
{
    for (int i = 0; i < s->n; i++)
        if (!strcmp(s->words[i].key, key)) return &s->words[i];
    return NULL;
}

static inline nrl_status memory_store_get(void *user, const char *key, double timeout_s, void **value, size_t *size)
{
    memory_store *s = user;
    struct timespec until;
    const known_word *w;
    int error = 0;
    clock_gettime(CLOCK_REALTIME, &until);
    int64_t ns = until.tv_nsec + (int64_t)(timeout_s * 1e9);
    until.tv_sec += ns / 1000000000;
    until.tv_nsec = ns % 1000000000;
    pthread_mutex_lock(&s->lock);
    while (!(w = memory_store_find(s, key)) && !error && !atomic_load(&s->gone))
        error = pthread_cond_timedwait(&s->changed, &s->lock, &until);
    if (w) {
        *value = malloc(w->size + 1);
        memcpy(*value, w->value, w->size);
        *size = w->size;
    }
    pthread_mutex_unlock(&s->lock);
    return w ? NRL_OK : nrl_fail(NRL_ERR_PEER, "the store has no '%s'", key);
}

static inline nrl_status memory_store_remove(void *user, const char *key)
{
    memory_store *s = user;
    pthread_mutex_lock(&s->lock);
    const known_word *w = memory_store_find(s, key);
    if (w) {
        known_word *hole = &s->words[w - s->words];
        free(hole->key);
        free(hole->value);
        *hole = s->words[--s->n];
    }
    pthread_mutex_unlock(&s->lock);
    return NRL_OK;
}

static inline checkpoint_ranks memory_ranks(memory_store *s, int32_t rank, int32_t world, double timeout_s)
{
    return (checkpoint_ranks){rank, world, timeout_s, s, memory_store_set, memory_store_get, memory_store_remove};
}

#endif
