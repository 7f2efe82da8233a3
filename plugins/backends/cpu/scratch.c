/*
 * scratch.c - memory: the backend's alloc and free with the limit of `memory_limit`, and the work space of operations.
 * Large blocks are aligned to huge pages and request them, which reduces page faults and TLB misses.
 */
#include "base/units.h"
#include "cpu.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

enum { LINE = 64, HUGE_PAGE = 2 << 20, HUGE_FROM = 4 << 20 };
enum {
    CHECK_EVERY = 8 << 20, /* bytes allocated */
    KEPT = 16 << 20        /* for what a process needs besides tensors: its heap, code of libraries, page tables */
};

/* ---- the limit ---- */

/* Bytes of a number with or without a unit, or -1. A number up to 1 without a unit is a share of `total`. */
static double limit_bytes(const char *text, double total)
{
    static const struct {
        const char *name;
        double bytes;
    } units[] = {{"", 1},     {"KiB", 1024}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 0x1p40},
                 {"KB", 1e3}, {"MB", 1e6},   {"GB", 1e9},      {"TB", 1e12}};
    char *end;
    double n = strtod(text, &end);
    if (end == text || !(n > 0)) return -1;
    while (isspace((unsigned char)*end))
        end++;
    if (!*end && n <= 1) return n * total;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (!strcasecmp(end, units[i].name)) return n * units[i].bytes;
    return -1;
}

nrl_status cpu_memory_check(const char *text)
{
    if (!*text || !strcmp(text, "cgroup") || limit_bytes(text, 1) > 0) return NRL_OK;
    return nrl_fail(
        NRL_ERR_CONFIG,
        "memory_limit: cannot read '%s': expected a number of bytes (8GiB), a share of this machine's memory "
        "(0.5), or cgroup",
        text);
}

cpu_memory *cpu_memory_open(const char *text)
{
    int64_t total, left;
    cpu_memory *m = calloc(1, sizeof *m);
    if (!m) return NULL;
    pthread_mutex_init(&m->lock, NULL);
    if (!text || !*text) return m;
    nrl_host_memory(&total, &left);
    double bytes = strcmp(text, "cgroup") ? limit_bytes(text, (double)total) : (double)(left < 0 ? total : left);
    m->limit = bytes < 0x1p62 ? (size_t)bytes : (size_t)1 << 62;
    return m;
}

void cpu_memory_close(cpu_memory *m)
{
    pthread_mutex_destroy(&m->lock);
    free(m->blocks);
    free(m);
}

/* Whether the limit allows a block of this size; counts it, without an address until block_is_at. */
static bool reserve(cpu_memory *m, size_t bytes)
{
    pthread_mutex_lock(&m->lock);
    bool fits = !m->limit || (bytes <= m->limit && m->used <= m->limit - bytes);
    if (fits) m->used += bytes;
    pthread_mutex_unlock(&m->lock);
    return fits;
}

static bool block_is_at(cpu_memory *m, void *memory, size_t bytes)
{
    pthread_mutex_lock(&m->lock);
    if (memory && m->n == m->room) {
        size_t room = m->room ? 2 * m->room : 64;
        cpu_block *more = realloc(m->blocks, room * sizeof *more);
        if (more) m->blocks = more, m->room = room;
    }
    bool kept = memory && m->n < m->room;
    if (kept)
        m->blocks[m->n++] = (cpu_block){memory, bytes};
    else
        m->used -= bytes;
    pthread_mutex_unlock(&m->lock);
    return kept;
}

/* Blocks are freed soon after they were allocated, or all at the end, newest first. */
static size_t block_remove(cpu_memory *m, const void *memory)
{
    size_t bytes = 0;
    pthread_mutex_lock(&m->lock);
    for (size_t i = m->n; i-- > 0 && !bytes;)
        if (m->blocks[i].at == memory) {
            bytes = m->blocks[i].bytes;
            m->blocks[i] = m->blocks[--m->n];
        }
    m->used -= bytes;
    pthread_mutex_unlock(&m->lock);
    return bytes;
}

/* ---- errors ---- */

/* Bytes of address space that this process has reserved, and of pages of its own; 0 if unknown. */
static void process_bytes(double *space, double *own)
{
    long all = 0, resident = 0, shared = 0;
    const double page = (double)sysconf(_SC_PAGESIZE);
    FILE *f = fopen("/proc/self/statm", "re");
    if (f && fscanf(f, "%ld %ld %ld", &all, &resident, &shared) != 3) all = resident = shared = 0;
    if (f) fclose(f);
    *space = (double)all * page;
    *own = (double)(resident - shared) * page;
}

/* What more blocks can take; negative: unknown. The system counts memory as free until its pages are touched. */
static double room_for_blocks(cpu_memory *m)
{
    int64_t total, left;
    double space, own;
    nrl_host_memory(&total, &left);
    if (left < 0) return -1;
    process_bytes(&space, &own);
    pthread_mutex_lock(&m->lock);
    const double used = (double)m->used, promised = used > own ? used - own : 0, room = (double)left - promised - KEPT;
    pthread_mutex_unlock(&m->lock);
    return room > 0 ? room : 0;
}

static nrl_status beyond_limit(cpu_memory *m, size_t bytes)
{
    char asked[SIZE_TEXT], of[SIZE_TEXT], used[SIZE_TEXT];
    pthread_mutex_lock(&m->lock);
    size_t now = m->used;
    pthread_mutex_unlock(&m->lock);
    return nrl_fail(NRL_ERR_MEMORY,
                    "cannot allocate %s of host memory: tensors use %s of the %s of backend.memory_limit",
                    size_text((double)bytes, asked), size_text((double)now, used), size_text((double)m->limit, of));
}

/* Names the limit that was hit, with what counts towards it. */
static nrl_status too_much(cpu_memory *m, size_t bytes)
{
    char asked[SIZE_TEXT], of[SIZE_TEXT], used[SIZE_TEXT];
    double reserved, own;
    struct rlimit space;
    size_text((double)bytes, asked);
    process_bytes(&reserved, &own);
    if (!getrlimit(RLIMIT_AS, &space) && space.rlim_cur != RLIM_INFINITY &&
        reserved + (double)bytes > (double)space.rlim_cur)
        return nrl_fail(NRL_ERR_MEMORY,
                        "cannot allocate %s of host memory: the process uses %s of the %s of address space that "
                        "ulimit -v allows",
                        asked, size_text(reserved, used), size_text((double)space.rlim_cur, of));
    const double room = room_for_blocks(m);
    return nrl_fail(NRL_ERR_MEMORY, "cannot allocate %s of host memory (%s free)", asked,
                    room < 0 ? "an unknown amount" : size_text(room, of));
}

/* ---- blocks ---- */

/* Linux overcommits and kills processes later, so check the available memory first. */
static bool has_room(cpu_memory *m, size_t bytes)
{
    pthread_mutex_lock(&m->lock);
    m->unchecked += bytes;
    const bool is_due = m->unchecked >= CHECK_EVERY;
    pthread_mutex_unlock(&m->lock);
    if (!is_due) return true;
    const double room = room_for_blocks(m);
    if (room >= 0 && (double)bytes > room) return false;
    pthread_mutex_lock(&m->lock);
    m->unchecked = 0;
    pthread_mutex_unlock(&m->lock);
    return true;
}

nrl_status cpu_alloc(cpu_memory *m, size_t bytes, void **out)
{
    *out = NULL;
    size_t align = bytes >= HUGE_FROM ? HUGE_PAGE : LINE;
    if (bytes > SIZE_MAX / 2 - HUGE_PAGE) return too_much(m, bytes);
    if (!has_room(m, bytes)) return too_much(m, bytes);
    size_t rounded = bytes == 0 ? align : (bytes + align - 1) / align * align;
    void *memory = NULL;
    if (!reserve(m, rounded)) return beyond_limit(m, bytes);
    if (posix_memalign(&memory, align, rounded)) memory = NULL;
    if (!block_is_at(m, memory, rounded)) {
        free(memory);
        return too_much(m, bytes);
    }
#ifdef MADV_HUGEPAGE
    if (align == HUGE_PAGE) (void)madvise(memory, rounded, MADV_HUGEPAGE);
#endif
    *out = memory;
    return NRL_OK;
}

/* The C library may keep what is freed; the pages of large blocks go back to the system at once. */
void cpu_free(cpu_memory *m, void *memory)
{
    size_t bytes = memory ? block_remove(m, memory) : 0;
    if (bytes >= HUGE_FROM) (void)madvise(memory, bytes, MADV_DONTNEED);
    free(memory);
}

nrl_status cpu_scratch(cpu *self, size_t bytes)
{
    if (bytes <= self->scratch_each) return NRL_OK;
    size_t each = (bytes + 4095) / 4096 * 4096;
    void *memory;
    NRL_TRY(cpu_alloc(self->memory, each * (size_t)self->n_threads, &memory));
    cpu_free(self->memory, self->scratch);
    self->scratch = memory;
    self->scratch_each = each;
    return NRL_OK;
}

static nrl_status grow(cpu *self, cpu_block *block, size_t bytes, void **out)
{
    *out = block->at;
    if (bytes <= block->bytes && block->at) return NRL_OK;
    NRL_TRY(cpu_alloc(self->memory, bytes, out));
    cpu_free(self->memory, block->at);
    *block = (cpu_block){*out, bytes};
    return NRL_OK;
}

nrl_status cpu_work(cpu *self, size_t bytes, void **out)
{
    return grow(self, &self->work, bytes, out);
}

nrl_status cpu_rounded(cpu *self, size_t bytes, void **out)
{
    return grow(self, &self->rounded, bytes, out);
}
