/*
 * scratch.c - memory: the backend's alloc and free, and the work space of operations. Large blocks are
 * aligned to huge pages and request them, which reduces page faults and TLB misses.
 */
#include "base/units.h"
#include "cpu.h"
#include <stdlib.h>
#include <sys/mman.h>

enum { LINE = 64, HUGE_PAGE = 2 << 20, HUGE_FROM = 4 << 20, CHECK_FROM = 64 << 20 };

static nrl_status too_much(size_t bytes)
{
    char asked[SIZE_TEXT], free_now[SIZE_TEXT];
    int64_t total, left;
    nrl_host_memory(&total, &left);
    return nrl_fail(NRL_ERR_MEMORY, "cannot allocate %s of host memory (%s free)", size_text((double)bytes, asked),
                    left < 0 ? "an unknown amount" : size_text((double)left, free_now));
}

nrl_status cpu_alloc(size_t bytes, void **out)
{
    *out = NULL;
    size_t align = bytes >= HUGE_FROM ? HUGE_PAGE : LINE;
    if (bytes > SIZE_MAX / 2 - HUGE_PAGE) return too_much(bytes);
    if (bytes >= CHECK_FROM) {
        /* Linux overcommits and kills processes later, so check the available memory first */
        int64_t total, left;
        nrl_host_memory(&total, &left);
        if (left >= 0 && bytes > (uint64_t)left) return too_much(bytes);
    }
    size_t rounded = bytes == 0 ? align : (bytes + align - 1) / align * align;
    void *memory = NULL;
    if (posix_memalign(&memory, align, rounded) != 0) return too_much(bytes);
#ifdef MADV_HUGEPAGE
    if (align == HUGE_PAGE) (void)madvise(memory, rounded, MADV_HUGEPAGE);
#endif
    *out = memory;
    return NRL_OK;
}

void cpu_free(void *memory)
{
    free(memory);
}

nrl_status cpu_scratch(cpu *self, size_t bytes)
{
    if (bytes <= self->scratch_each) return NRL_OK;
    size_t each = (bytes + 4095) / 4096 * 4096;
    void *memory;
    NRL_TRY(cpu_alloc(each * (size_t)self->n_threads, &memory));
    cpu_free(self->scratch);
    self->scratch = memory;
    self->scratch_each = each;
    return NRL_OK;
}

nrl_status cpu_work(cpu *self, size_t bytes, void **out)
{
    *out = self->work;
    if (bytes <= self->work_bytes && self->work) return NRL_OK;
    NRL_TRY(cpu_alloc(bytes, out));
    cpu_free(self->work);
    self->work = *out;
    self->work_bytes = bytes;
    return NRL_OK;
}
