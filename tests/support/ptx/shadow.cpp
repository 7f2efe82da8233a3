/*
 * shadow.cpp - see shadow.h.
 */
#include "shadow.h"
#include "fault.h"
#include <string.h>

namespace ptx
{
void shadow::open(uint32_t begin, uint32_t end, uint32_t dynamic, uint32_t dynamic_bytes)
{
    begin_ = begin;
    end_ = end;
    dynamic_ = dynamic;
    dynamic_end_ = dynamic + dynamic_bytes;
    if (bytes_.size() == dynamic_end_) return;
    bytes_.assign(dynamic_end_, 0xff);
    cells_.assign(dynamic_end_, cell());
}

void shadow::begin_block()
{
    memset(bytes_.data(), 0xff, bytes_.size());
}

void shadow::check_bounds(uint64_t at, uint32_t n, const char *what) const
{
    bool is_static = at >= begin_ && at + n <= end_, is_dynamic = at >= dynamic_ && at + n <= dynamic_end_;
    if (is_static || is_dynamic) return;
    fail(PTX_BOUNDS, "%s of %u bytes at shared address %#llx; shared memory is [%#x, %#x) and dynamic [%#x, %#x)", what,
         n, (unsigned long long)at, begin_, end_, dynamic_, dynamic_end_);
}

void shadow::race(uint32_t at, const char *now, const char *before, const moment &m, const stamp &s) const
{
    fail(PTX_RACE, "thread %u %s shared byte %#x, which thread %u%s %s without a barrier between", m.thread, now, at,
         s.number(), s.thread & (stamp::OTHER_LANES | stamp::OTHER_WARPS) ? " and others" : "", before);
}

void shadow::check_arrived(uint32_t at, const cell &c, const moment &m) const
{
    if (c.wrote.epoch >= m.block_began && (c.wrote.thread & stamp::PENDING))
        fail(PTX_ASYNC, "thread %u touches shared byte %#x, where an asynchronous copy of thread %u was not waited for",
             m.thread, at, c.wrote.number());
}

/* Stamps of earlier blocks are ignored: shared memory belongs to the block. */
static bool races(const stamp &s, const moment &m)
{
    return s.epoch >= m.block_began && together(s, m);
}

void shadow::check_unused(uint32_t at, const cell &c, const moment &m) const
{
    if (races(c.wrote, m)) race(at, "writes", "wrote", m, c.wrote);
    if (races(c.read, m)) race(at, "writes", "read", m, c.read);
}

static void need_written(const stamp &wrote, uint32_t at, const moment &m)
{
    if (wrote.epoch < m.block_began)
        fail(PTX_UNINITIALISED, "thread %u reads shared byte %#x, which nobody wrote", m.thread, at);
}

void shadow::read(uint32_t at, uint32_t n, const moment &m)
{
    for (uint32_t i = at; i < at + n; i++) {
        cell &c = cells_[i];
        need_written(c.wrote, i, m);
        check_arrived(i, c, m);
        if (races(c.wrote, m)) race(i, "reads", "wrote", m, c.wrote);
        if (c.read.epoch < m.block_began) c.read = stamp_of(m);
        add_reader(c.read, m);
    }
}

void shadow::write(uint32_t at, uint32_t n, const moment &m)
{
    for (uint32_t i = at; i < at + n; i++) {
        cell &c = cells_[i];
        check_arrived(i, c, m);
        check_unused(i, c, m);
        c.wrote = stamp_of(m);
    }
}

void shadow::atomic(uint32_t at, uint32_t n, const moment &m)
{
    for (uint32_t i = at; i < at + n; i++) {
        need_written(cells_[i].wrote, i, m);
        check_arrived(i, cells_[i], m);
        check_unused(i, cells_[i], m);
    }
}

void shadow::copy_begins(uint32_t at, uint32_t n, const moment &m)
{
    write(at, n, m);
    for (uint32_t i = at; i < at + n; i++)
        cells_[i].wrote.thread |= stamp::PENDING;
}

void shadow::copy_ends(uint32_t at, uint32_t n, const moment &m)
{
    for (uint32_t i = at; i < at + n; i++)
        cells_[i].wrote = stamp_of(m);
}
} // namespace ptx
