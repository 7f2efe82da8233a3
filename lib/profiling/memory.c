/*
 * memory.c - see memory.h. A place's bytes at the peak are not copied at each new peak: a place remembers the peak at
 * which it changed last, and what it had then.
 */
#include "profiling/memory.h"
#include "base/arena.h"
#include <stdlib.h>
#include <string.h>

enum { MOST_PENDING = 64, MOST_SITES = 1 << 14, MOST_BATCHES = 1 << 12 };

typedef struct {
    nrl_memory_site row;
    int64_t live;
    uint64_t peak; /* the number of the peak for which row.peak_bytes holds, if it is the newest */
} site;

typedef struct {
    const pool_block *block; /* NULL = empty */
    int64_t bytes;
    int32_t site; /* -1 = not known yet */
    uint64_t made;
} live_block;

struct memory_log {
    site *sites;
    int32_t n_sites, sites_capacity;
    live_block *table; /* [table_size] by address; a power of two, at most half full */
    size_t n_blocks, table_size;
    const pool_block *pending[MOST_PENDING]; /* blocks whose operation has not begun */
    int n_pending;
    nrl_memory_site here; /* the current place, without operation */
    int64_t live, held;   /* all; what was in use before */
    int64_t peak, peak_held;
    uint64_t n_peaks, n_made, made_at_peak;
    nrl_memory_batch *batches;
    const nrl_batch **batch_of; /* [n_batches] */
    size_t n_batches, first_of_step;
    int64_t batch; /* the current one's index; -1 = none */
};

memory_log *memory_create(int64_t live)
{
    memory_log *m = mem_alloc(sizeof *m);
    m->live = m->held = m->peak = m->peak_held = live;
    m->batch = -1;
    m->here.region = -1;
    m->batches = mem_alloc(MOST_BATCHES * sizeof *m->batches);
    m->batch_of = mem_alloc(MOST_BATCHES * sizeof *m->batch_of);
    return m;
}

void memory_destroy(memory_log *m)
{
    if (!m) return;
    free(m->sites);
    free(m->table);
    free(m->batches);
    free(m->batch_of);
    free(m);
}

/* ---- blocks ---- */

static size_t home_of(const memory_log *m, const pool_block *b)
{
    return (size_t)(((uint64_t)(uintptr_t)b * 0x9e3779b97f4a7c15u) >> 20) & (m->table_size - 1);
}

static live_block *find_block(const memory_log *m, const pool_block *b)
{
    size_t at = home_of(m, b);
    while (m->table[at].block && m->table[at].block != b)
        at = (at + 1) & (m->table_size - 1);
    return &m->table[at];
}

static void grow_blocks(memory_log *m)
{
    live_block *old = m->table;
    size_t n = m->table_size;
    m->table_size = n ? 2 * n : 1024;
    m->table = mem_alloc(m->table_size * sizeof *m->table);
    for (size_t i = 0; i < n; i++)
        if (old[i].block) *find_block(m, old[i].block) = old[i];
    free(old);
}

/* Later entries of the chain move up, so that they are still found. */
static void remove_block(memory_log *m, live_block *x)
{
    const size_t mask = m->table_size - 1;
    size_t hole = (size_t)(x - m->table);
    for (size_t at = (hole + 1) & mask; m->table[at].block; at = (at + 1) & mask)
        if (((at - home_of(m, m->table[at].block)) & mask) >= ((at - hole) & mask)) {
            m->table[hole] = m->table[at];
            hole = at;
        }
    m->table[hole] = (live_block){0};
    m->n_blocks--;
}

/* ---- places ---- */

static bool same_text(const char *a, const char *b)
{
    return a == b || (a && b && !strcmp(a, b));
}

static site *site_here(memory_log *m, const char *operation)
{
    const nrl_memory_site *h = &m->here;
    for (int32_t i = m->n_sites; i-- > 0;) {
        const nrl_memory_site *r = &m->sites[i].row;
        if (r->phase == h->phase && r->region == h->region && same_text(r->unit, h->unit) &&
            same_text(r->operation, operation))
            return &m->sites[i];
    }
    if (m->n_sites == MOST_SITES) return &m->sites[0];
    if (m->n_sites == m->sites_capacity) {
        m->sites_capacity = m->sites_capacity ? 2 * m->sites_capacity : 128;
        m->sites = mem_realloc(m->sites, (size_t)m->sites_capacity * sizeof *m->sites);
    }
    site *s = &m->sites[m->n_sites++];
    *s = (site){.row = *h};
    s->row.operation = operation;
    return s;
}

/* Before a change: the bytes at the newest peak are those of now, if nothing changed since. */
static void touch(const memory_log *m, site *s)
{
    if (s->peak == m->n_peaks) return;
    s->row.peak_bytes = s->live;
    s->peak = m->n_peaks;
}

static void settle(memory_log *m, live_block *x, const char *operation)
{
    site *s = site_here(m, operation);
    touch(m, s);
    x->site = (int32_t)(s - m->sites);
    s->live += x->bytes;
    s->row.calls++;
    s->row.total_bytes += x->bytes;
    if (x->made <= m->made_at_peak) s->row.peak_bytes += x->bytes;
}

static void settle_all(memory_log *m, const char *operation)
{
    for (int i = 0; i < m->n_pending; i++) {
        live_block *x = find_block(m, m->pending[i]);
        if (x->block) settle(m, x, operation);
    }
    m->n_pending = 0;
}

void memory_at(memory_log *m, nrl_phase phase, const char *unit, int32_t region)
{
    if (m->here.phase == phase && m->here.region == region && same_text(m->here.unit, unit)) return;
    settle_all(m, NULL);
    m->here = (nrl_memory_site){.phase = phase, .unit = unit, .region = region};
}

void memory_batch(memory_log *m, int64_t step, const nrl_batch *batch)
{
    m->batch = -1;
    if (!batch || m->here.phase == NRL_PHASE_NONE) return;
    for (size_t i = m->first_of_step; i < m->n_batches && m->batch < 0; i++)
        if (m->batch_of[i] == batch) m->batch = (int64_t)i;
    if (m->batch >= 0 || m->n_batches == MOST_BATCHES) return;
    int64_t longest = 0;
    for (int64_t s = 0; s < batch->n_segments + batch->n_prompts; s++)
        if (batch->cu_seqlens[s + 1] - batch->cu_seqlens[s] > longest)
            longest = batch->cu_seqlens[s + 1] - batch->cu_seqlens[s];
    m->batch = (int64_t)m->n_batches++;
    m->batch_of[m->batch] = batch;
    m->batches[m->batch] = (nrl_memory_batch){.step = step,
                                              .micro_batch = m->batch - (int64_t)m->first_of_step,
                                              .tokens = batch->n_tokens,
                                              .samples = batch->n_segments,
                                              .longest = longest,
                                              .begin_bytes = m->live,
                                              .peak_bytes = m->live};
}

void memory_end_step(memory_log *m)
{
    m->first_of_step = m->n_batches;
    m->batch = -1;
}

/* ---- events ---- */

static int64_t bytes_of(const pool_block *b)
{
    return (int64_t)b->size;
}

void memory_take(memory_log *m, const pool_block *b)
{
    if (2 * m->n_blocks >= m->table_size) grow_blocks(m);
    live_block *x = find_block(m, b);
    *x = (live_block){.block = b, .bytes = bytes_of(b), .site = -1, .made = ++m->n_made};
    m->n_blocks++;
    m->live += x->bytes;
    if (m->live > m->peak) {
        m->n_peaks++;
        m->peak = m->live;
        m->peak_held = m->held;
        m->made_at_peak = x->made;
    }
    if (m->batch >= 0 && m->live > m->batches[m->batch].peak_bytes) m->batches[m->batch].peak_bytes = m->live;
    if (m->n_pending == MOST_PENDING) settle_all(m, NULL);
    m->pending[m->n_pending++] = b;
}

void memory_release(memory_log *m, const pool_block *b)
{
    live_block *x = m->table ? find_block(m, b) : NULL;
    if (!x || !x->block) { /* from before the profile */
        m->held -= bytes_of(b);
        m->live -= bytes_of(b);
        return;
    }
    if (x->site < 0) {
        settle(m, x, NULL);
        for (int i = 0; i < m->n_pending; i++)
            if (m->pending[i] == b) m->pending[i--] = m->pending[--m->n_pending];
    }
    site *s = &m->sites[x->site];
    touch(m, s);
    s->live -= x->bytes;
    m->live -= x->bytes;
    remove_block(m, x);
}

/* Arguments are structs of numbers and pointers, aligned like pointers. */
static bool has_address(const void *args, const void *address)
{
    uint32_t size;
    memcpy(&size, args, sizeof size);
    for (size_t at = 0; at + sizeof(void *) <= size; at += sizeof(void *)) {
        const void *word;
        memcpy(&word, (const char *)args + at, sizeof word);
        if (word == address) return true;
    }
    return false;
}

void memory_operation(memory_log *m, const char *name, const void *args)
{
    int n = 0;
    for (int i = 0; i < m->n_pending; i++) {
        live_block *x = find_block(m, m->pending[i]);
        if (has_address(args, m->pending[i]->data))
            settle(m, x, name);
        else
            m->pending[n++] = m->pending[i];
    }
    m->n_pending = n;
}

/* ---- results ---- */

int64_t memory_live(const memory_log *m)
{
    return m->live;
}

static int by_peak(const void *a, const void *b)
{
    const nrl_memory_site *x = a, *y = b;
    if (x->peak_bytes != y->peak_bytes) return x->peak_bytes < y->peak_bytes ? 1 : -1;
    return (x->total_bytes < y->total_bytes) - (x->total_bytes > y->total_bytes);
}

void memory_sites(memory_log *m, nrl_memory_site **rows, size_t *n)
{
    settle_all(m, NULL);
    *rows = mem_alloc((size_t)(m->n_sites + 1) * sizeof **rows);
    *n = (size_t)m->n_sites;
    for (int32_t i = 0; i < m->n_sites; i++) {
        touch(m, &m->sites[i]);
        (*rows)[i] = m->sites[i].row;
    }
    if (*n) qsort(*rows, *n, sizeof **rows, by_peak);
}

void memory_batches(const memory_log *m, nrl_memory_batch **rows, size_t *n)
{
    *rows = mem_alloc((m->n_batches + 1) * sizeof **rows);
    *n = m->n_batches;
    memcpy(*rows, m->batches, m->n_batches * sizeof **rows);
}

void memory_peak(const memory_log *m, int64_t *held, int64_t *peak)
{
    *held = m->peak_held;
    *peak = m->peak;
}
