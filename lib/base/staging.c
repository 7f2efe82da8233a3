/*
 * staging.c - allocates from the front of mapped blocks; copies in parallel.
 */
#include "base/staging.h"
#include "base/arena.h"
#include "base/memory.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

enum { ALIGN = 64, STRIDE = 4 << 20, PAGE = 4096 };

static size_t round_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

static nrl_status add_block(staging *s, size_t size)
{
    int64_t available = memory_available("");
    size = round_up(size ? size : 1, PAGE);
    if ((int64_t)size > available)
        return nrl_fail(NRL_ERR_MEMORY, "cannot allocate %zu bytes of staging memory: %lld bytes are available", size,
                        (long long)available);
    void *base = NULL;
    if (s->source.alloc && s->source.alloc(s->source.user, size, &base) != NRL_OK) {
        nrl_warn("%s\nhint: saves use unpinned memory and take longer", nrl_error_text());
        s->source.alloc = NULL;
        base = NULL;
    }
    const bool maps = !base;
    if (maps) base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) return nrl_fail(NRL_ERR_MEMORY, "cannot allocate %zu bytes of staging memory", size);
    if (maps) madvise(base, size, MADV_HUGEPAGE);
    s->blocks = mem_realloc(s->blocks, (s->n + 1) * sizeof *s->blocks);
    s->blocks[s->n++] = (staging_block){.base = base, .size = size, .is_mapped = maps};
    return NRL_OK;
}

static nrl_status touch(void *user, int who, int64_t i)
{
    staging_block *b = user;
    size_t begin = (size_t)i * STRIDE, end = begin + STRIDE < b->size ? begin + STRIDE : b->size;
    (void)who;
    memset(b->base + begin, 0, end - begin);
    return NRL_OK;
}

nrl_status staging_reserve(staging *s, size_t size, workers *pool)
{
    for (size_t i = 0; i < s->n; i++)
        if (s->blocks[i].size >= size) return NRL_OK;
    staging_free(s);
    NRL_TRY(add_block(s, size));
    if (!s->blocks[0].is_mapped) return NRL_OK; /* pinned pages are there */
    return workers_run(pool, (int64_t)((s->blocks[0].size + STRIDE - 1) / STRIDE), touch, &s->blocks[0]);
}

nrl_status staging_take(staging *s, size_t size, void **room)
{
    size_t need = round_up(size, ALIGN);
    for (size_t i = 0; i < s->n; i++) {
        staging_block *b = &s->blocks[i];
        if (b->size - b->used < need) continue;
        *room = b->base + b->used;
        b->used += need;
        return NRL_OK;
    }
    NRL_TRY(add_block(s, need));
    *room = s->blocks[s->n - 1].base;
    s->blocks[s->n - 1].used = need;
    return NRL_OK;
}

void staging_reset(staging *s)
{
    for (size_t i = 0; i < s->n; i++)
        s->blocks[i].used = 0;
}

void staging_free(staging *s)
{
    for (size_t i = 0; i < s->n; i++)
        if (s->blocks[i].is_mapped)
            munmap(s->blocks[i].base, s->blocks[i].size);
        else
            s->source.free(s->source.user, s->blocks[i].base);
    free(s->blocks);
    *s = (staging){.source = s->source};
}

#ifdef __SSE2__
static void stream_line(char *to, const char *from)
{
    enum { WORD = 16 };
    for (size_t k = 0; k < ALIGN; k += WORD)
        _mm_stream_si128((__m128i *)(to + k), _mm_loadu_si128((const __m128i *)(from + k)));
}
#endif

/* Copies with non-temporal stores, so that lines which are completely overwritten are not read into the cache first.
 * Alternates between four pages, which is faster for the memory controller. memcpy does the same only for copies of
 * tens of MiB, and most tensors are smaller. `to` is aligned to ALIGN. */
static void stream(char *to, const char *from, size_t size)
{
    size_t done = 0;
#ifdef __SSE2__
    for (; done + 4 * PAGE <= size; done += 4 * PAGE)
        for (size_t line = done; line < done + PAGE; line += ALIGN)
            for (size_t page = 0; page < 4 * PAGE; page += PAGE)
                stream_line(to + line + page, from + line + page);
    _mm_sfence();
#endif
    memcpy(to + done, from + done, size - done);
}

static nrl_status copy(void *user, int who, int64_t i)
{
    const staging_copy *c = (const staging_copy *)user + i;
    (void)who;
    stream(c->to, c->from, c->size);
    return NRL_OK;
}

/* Splits long copies, so that all workers finish at about the same time. */
nrl_status staging_copy_all(workers *pool, const staging_copy *copies, size_t n)
{
    size_t n_cut = 0, k = 0;
    for (size_t i = 0; i < n; i++)
        n_cut += (copies[i].size + STRIDE - 1) / STRIDE;
    staging_copy *cut = mem_try((n_cut + 1) * sizeof *cut, "the snapshot of a checkpoint");
    if (!cut) return NRL_ERR_MEMORY;
    for (size_t i = 0; i < n; i++)
        for (size_t at = 0; at < copies[i].size; at += STRIDE) {
            size_t left = copies[i].size - at;
            cut[k++] = (staging_copy){(char *)copies[i].to + at, (const char *)copies[i].from + at,
                                      left < STRIDE ? left : STRIDE};
        }
    nrl_status st = workers_run(pool, (int64_t)n_cut, copy, cut);
    free(cut);
    return st;
}
