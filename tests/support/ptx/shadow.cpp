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
    first_epoch_ = ++epoch_;
    memset(bytes_.data(), 0xff, bytes_.size());
}

void shadow::check_bounds(uint64_t at, uint32_t n, const char *what) const
{
    bool is_static = at >= begin_ && at + n <= end_, is_dynamic = at >= dynamic_ && at + n <= dynamic_end_;
    if (is_static || is_dynamic) return;
    fail(PTX_BOUNDS, "%s of %u bytes at shared address %#llx; shared memory is [%#x, %#x) and dynamic [%#x, %#x)",
         what, n, (unsigned long long)at, begin_, end_, dynamic_, dynamic_end_);
}

/* May the stamp's access and one by this thread happen at the same time? */
bool shadow::together(const stamp &s, uint32_t thread, uint32_t sync) const
{
    if (s.epoch != epoch_) return false;
    if (s.thread & OTHER_WARPS) return true;
    uint32_t who = s.thread & THREAD;
    if (who / 32 != thread / 32) return true;
    return (who != thread || (s.thread & OTHER_LANES)) && s.sync == (uint16_t)sync;
}

void shadow::race(uint32_t at, const char *now, const char *before, uint32_t thread, const stamp &s) const
{
    fail(PTX_RACE, "thread %u %s shared byte %#x, which thread %u%s %s without a barrier between", thread, now, at,
         s.thread & THREAD, s.thread & (OTHER_LANES | OTHER_WARPS) ? " and others" : "", before);
}

void shadow::check_arrived(uint32_t at, const cell &c, uint32_t thread) const
{
    if (c.wrote.epoch >= first_epoch_ && (c.wrote.thread & PENDING))
        fail(PTX_ASYNC, "thread %u touches shared byte %#x, where an asynchronous copy of thread %u was not waited for",
             thread, at, c.wrote.thread & THREAD);
}

void shadow::check_unread(uint32_t at, const cell &c, uint32_t thread, uint32_t sync) const
{
    if (together(c.wrote, thread, sync)) race(at, "writes", "wrote", thread, c.wrote);
    if (together(c.read, thread, sync)) race(at, "writes", "read", thread, c.read);
}

void shadow::read(uint32_t at, uint32_t n, uint32_t thread, uint32_t sync)
{
    for (uint32_t i = at; i < at + n; i++) {
        cell &c = cells_[i];
        if (c.wrote.epoch < first_epoch_)
            fail(PTX_UNINITIALISED, "thread %u reads shared byte %#x, which nobody wrote", thread, i);
        check_arrived(i, c, thread);
        if (together(c.wrote, thread, sync)) race(i, "reads", "wrote", thread, c.wrote);
        stamp &r = c.read;
        uint32_t who = r.thread & THREAD;
        if (r.epoch != epoch_)
            r = {epoch_, (uint16_t)sync, (uint16_t)thread};
        else if (who / 32 != thread / 32)
            r.thread |= OTHER_WARPS;
        else if (r.sync != (uint16_t)sync)
            r = {epoch_, (uint16_t)sync, (uint16_t)(thread | (r.thread & OTHER_WARPS))};
        else if (who != thread)
            r.thread |= OTHER_LANES;
    }
}

void shadow::write(uint32_t at, uint32_t n, uint32_t thread, uint32_t sync)
{
    for (uint32_t i = at; i < at + n; i++) {
        cell &c = cells_[i];
        check_arrived(i, c, thread);
        check_unread(i, c, thread, sync);
        c.wrote = {epoch_, (uint16_t)sync, (uint16_t)thread};
    }
}

void shadow::atomic(uint32_t at, uint32_t n, uint32_t thread, uint32_t sync)
{
    for (uint32_t i = at; i < at + n; i++) {
        const cell &c = cells_[i];
        if (c.wrote.epoch < first_epoch_)
            fail(PTX_UNINITIALISED, "thread %u adds to shared byte %#x, which nobody wrote", thread, i);
        check_arrived(i, c, thread);
        check_unread(i, c, thread, sync);
    }
}

void shadow::copy_begins(uint32_t at, uint32_t n, uint32_t thread, uint32_t sync)
{
    write(at, n, thread, sync);
    for (uint32_t i = at; i < at + n; i++)
        cells_[i].wrote.thread |= PENDING;
}

void shadow::copy_ends(uint32_t at, uint32_t n, uint32_t thread, uint32_t sync)
{
    for (uint32_t i = at; i < at + n; i++)
        cells_[i].wrote = {epoch_, (uint16_t)sync, (uint16_t)thread};
}
} // namespace ptx
