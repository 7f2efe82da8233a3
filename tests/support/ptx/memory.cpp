/*
 * memory.cpp - see memory.h.
 */
#include "memory.h"
#include "fault.h"
#include <link.h>
#include <map>
#include <mutex>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

namespace ptx
{
static std::recursive_mutex &lock()
{
    static auto *m = new std::recursive_mutex; /* never destroyed, because memory is also freed at exit */
    return *m;
}

static std::map<uint64_t, region> &regions()
{
    static auto *m = new std::map<uint64_t, region>;
    return *m;
}

static region *last_found;

void memory_lock()
{
    lock().lock();
}

void memory_unlock()
{
    lock().unlock();
}

static region *region_below(uint64_t at)
{
    auto it = regions().upper_bound(at);
    return it == regions().begin() ? nullptr : &std::prev(it)->second;
}

struct range {
    uint64_t begin, end;
};
/* The variables of the program, and the stack of the thread that allowed access to it. */
static std::vector<range> &programs()
{
    static auto *all = new std::vector<range>;
    return *all;
}

/* Called for the program itself first, then for its libraries. */
static int add_segments(struct dl_phdr_info *info, size_t size, void *data)
{
    (void)size, (void)data;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const auto &p = info->dlpi_phdr[i];
        uint64_t begin = info->dlpi_addr + p.p_vaddr;
        if (p.p_type == PT_LOAD) programs().push_back({begin, begin + p.p_memsz});
    }
    return 1;
}

static void add_stack()
{
    pthread_attr_t a;
    void *low = nullptr;
    size_t size = 0;
    if (pthread_getattr_np(pthread_self(), &a)) return;
    pthread_attr_getstack(&a, &low, &size);
    pthread_attr_destroy(&a);
    programs().push_back({(uint64_t)(uintptr_t)low, (uint64_t)(uintptr_t)low + size});
}

static bool is_programs(uint64_t at, uint64_t end)
{
    for (const range &r : programs())
        if (at >= r.begin && end <= r.end) return true;
    return false;
}

static void say_where(uint64_t at, uint32_t bytes, const char *what)
{
    const region *r = region_below(at);
    if (r && at < r->end + (1 << 20))
        fail(PTX_BOUNDS, "%s of %u bytes at global address %#llx, %lld bytes beyond the end of a block of %lld bytes",
             what, bytes, (unsigned long long)at, (long long)(at - r->end), (long long)(r->end - r->begin));
    fail(PTX_BOUNDS, "%s of %u bytes at global address %#llx, which is nobody's", what, bytes, (unsigned long long)at);
}

region *memory_find(uint64_t at, uint32_t bytes, const char *what)
{
    if (last_found && at >= last_found->begin && at + bytes <= last_found->end) return last_found;
    region *r = region_below(at);
    if (r && at + bytes <= r->end) return last_found = r;
    if (!is_programs(at, at + bytes)) say_where(at, bytes, what);
    return nullptr;
}

static void need_written(const region *r, uint64_t at, uint32_t bytes)
{
    for (uint32_t i = 0; !r->written.empty() && i < bytes; i++)
        if (!r->written[at - r->begin + i])
            fail(PTX_UNINITIALISED, "reads global byte %lld of a block of %lld bytes, which nobody wrote",
                 (long long)(at + i - r->begin), (long long)(r->end - r->begin));
}

static region::cell *cells_at(region *r, uint64_t at)
{
    if (r->cells.empty()) r->cells.resize(r->end - r->begin);
    return &r->cells[at - r->begin];
}

static void need_alone(const stamp &s, const moment &m, const region *r, uint64_t at, const char *now,
                       const char *before)
{
    if (!together(s, m)) return;
    bool block = s.epoch < m.block_began || (s.thread & stamp::OTHER_BLOCKS);
    fail(PTX_RACE,
         "%s global byte %lld of a block of %lld bytes, which %s in the same launch %s without a barrier between", now,
         (long long)(at - r->begin), (long long)(r->end - r->begin), block ? "another block" : "another thread",
         before);
}

void memory_read(region *r, uint64_t at, uint32_t bytes, const moment &m)
{
    if (!r) return;
    need_written(r, at, bytes);
    region::cell *c = cells_at(r, at);
    for (uint32_t i = 0; i < bytes; i++) {
        need_alone(c[i].wrote, m, r, at + i, "reads", "wrote");
        add_reader(c[i].read, m);
    }
}

static void need_unused(const region::cell &c, const moment &m, const region *r, uint64_t at)
{
    need_alone(c.wrote, m, r, at, "writes", "wrote");
    need_alone(c.read, m, r, at, "writes", "read");
}

void memory_write(region *r, uint64_t at, uint32_t bytes, const moment &m)
{
    if (!r) return;
    region::cell *c = cells_at(r, at);
    for (uint32_t i = 0; i < bytes; i++) {
        need_unused(c[i], m, r, at + i);
        c[i].wrote = stamp_of(m);
    }
    if (!r->written.empty()) memset(&r->written[at - r->begin], 1, bytes);
}

/* Atomics have no order, so they leave no stamp. */
void memory_atomic(region *r, uint64_t at, uint32_t bytes, const moment &m)
{
    if (!r) return;
    need_written(r, at, bytes);
    for (uint32_t i = 0; i < bytes; i++)
        need_unused(cells_at(r, at)[i], m, r, at + i);
}

static void mark(const void *begin, size_t bytes, uint8_t as)
{
    std::lock_guard<std::recursive_mutex> hold(lock());
    uint64_t at = (uint64_t)(uintptr_t)begin, end = at + bytes;
    region *r = region_below(at);
    if (!r || r->written.empty() || at >= r->end) return;
    if (end > r->end) end = r->end;
    memset(&r->written[at - r->begin], as, end - at);
}
} // namespace ptx

using namespace ptx;

/* Overlapping ranges were freed without a report. */
void ptx_memory_add(const void *begin, size_t bytes, bool undefined)
{
    std::lock_guard<std::recursive_mutex> hold(lock());
    uint64_t at = (uint64_t)(uintptr_t)begin, end = at + bytes;
    last_found = nullptr;
    while (region *r = region_below(end ? end - 1 : 0)) {
        if (r->end <= at) break;
        regions().erase(r->begin);
    }
    region &r = regions()[at];
    r.begin = at;
    r.end = end;
    r.written.assign(undefined ? bytes : 0, 0);
    r.cells.clear();
}

void ptx_memory_remove(const void *begin)
{
    std::lock_guard<std::recursive_mutex> hold(lock());
    last_found = nullptr;
    regions().erase((uint64_t)(uintptr_t)begin);
}

void ptx_memory_wrote(const void *begin, size_t bytes)
{
    mark(begin, bytes, 1);
}

void ptx_memory_forget(const void *begin, size_t bytes)
{
    mark(begin, bytes, 0);
}

void ptx_memory_allow_program(void)
{
    programs().clear();
    add_stack();
    dl_iterate_phdr(add_segments, nullptr);
}
