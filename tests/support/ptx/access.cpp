/*
 * access.cpp - see access.h. Alignment: PTX ISA, "Operands: addresses as operands": an address must
 * be a multiple of the size of the access; a vector is one access.
 */
#include "access.h"
#include "fault.h"
#include <string.h>

namespace ptx
{
static const char *const space_names[] = {"generic", "param", "local", "shared", "global", "const"};

uint64_t address_of_lane(const warp &w, const instruction &in, int operand, int lane)
{
    const uint8_t *base = w.registers + in.op[operand];
    if (in.small[6] == 4) {
        uint32_t at;
        memcpy(&at, base + lane * 4, sizeof at);
        return (uint32_t)(at + (uint64_t)in.offset);
    }
    uint64_t at;
    memcpy(&at, base + lane * 8, sizeof at);
    return at + (uint64_t)in.offset;
}

void need_alignment(const warp &w, uint64_t at, uint32_t bytes, int lane, const char *what)
{
    if (at % bytes == 0) return;
    fail(PTX_ALIGNMENT, "thread %u: %s address %#llx is no multiple of %u", w.thread(lane), what,
         (unsigned long long)at, bytes);
}

moment moment_of(const warp &w, int lane, bool strong)
{
    const block &b = *w.b;
    return {b.epoch, w.sync, w.thread(lane), b.began, b.launch_began, strong};
}

static uint8_t *reach_global(warp &w, uint64_t at, uint32_t bytes, int lane, access how)
{
    bool reads = how == access::read || how == access::strong_read;
    moment m = moment_of(w, lane, how == access::strong_read || how == access::strong_write);
    try {
        region *r = memory_find(at, bytes, reads ? "read" : "write");
        if (reads)
            memory_read(r, at, bytes, m);
        else if (how == access::atomic)
            memory_atomic(r, at, bytes, m);
        else
            memory_write(r, at, bytes, m);
    } catch (fault &f) {
        f.text = "thread " + std::to_string(m.thread) + ": " + f.text;
        throw;
    }
    return (uint8_t *)(uintptr_t)at;
}

static uint8_t *reach_shared(warp &w, uint64_t at, uint32_t bytes, int lane, access how)
{
    shadow &s = w.b->shared;
    bool reads = how == access::read || how == access::strong_read;
    moment m = moment_of(w, lane, how == access::strong_read || how == access::strong_write);
    s.check_bounds(at, bytes, reads ? "read" : "write");
    if (reads)
        s.read((uint32_t)at, bytes, m);
    else if (how == access::atomic)
        s.atomic((uint32_t)at, bytes, m);
    else
        s.write((uint32_t)at, bytes, m);
    return s.data((uint32_t)at);
}

static uint8_t *reach_local(warp &w, uint64_t at, uint32_t bytes, int lane, access how)
{
    uint32_t size = w.p->local_bytes;
    bool reads = how == access::read || how == access::strong_read;
    if (at >= size || at + bytes > size)
        fail(PTX_BOUNDS, "thread %u: %u bytes at local address %#llx of %u", w.thread(lane), bytes,
             (unsigned long long)at, size);
    size_t place = (size_t)lane * size + at;
    for (size_t i = place; i < place + bytes; i++) {
        if (reads && !w.local_written[i])
            fail(PTX_UNINITIALISED, "thread %u reads local byte %llu, which it never wrote", w.thread(lane),
                 (unsigned long long)(i - (size_t)lane * size));
        if (!reads) w.local_written[i] = 1;
    }
    return &w.local[place];
}

static uint8_t *reach_param(warp &w, uint64_t at, uint32_t bytes, int lane, access how)
{
    std::vector<uint8_t> &all = w.b->parameters;
    bool reads = how == access::read || how == access::strong_read;
    if (!reads || at >= all.size() || at + bytes > all.size())
        fail(PTX_BOUNDS, "thread %u: %s of %u bytes at %#llx of the kernel's %zu bytes of parameters", w.thread(lane),
             reads ? "read" : "write", bytes, (unsigned long long)at, all.size());
    return &all[at];
}

uint8_t *reach(warp &w, space where, uint64_t at, uint32_t bytes, int lane, access how)
{
    if (where == space::generic) {
        where = space::global;
        for (space s : {space::shared, space::local, space::param})
            if (at >= window_of(s) && at < window_of(s) + WINDOW_BYTES) {
                where = s;
                at -= window_of(s);
                break;
            }
    }
    need_alignment(w, at, bytes, lane, space_names[(int)where]);
    switch (where) {
    case space::shared:
        return reach_shared(w, at, bytes, lane, how);
    case space::local:
        return reach_local(w, at, bytes, lane, how);
    case space::param:
        return reach_param(w, at, bytes, lane, how);
    default:
        return reach_global(w, at, bytes, lane, how);
    }
}
} // namespace ptx
