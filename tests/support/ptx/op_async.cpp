/*
 * op_async.cpp - cp.async, commit_group, wait_group, wait_all: PTX ISA, "Asynchronous copy". Bytes
 * only arrive when they are waited for, and belong to the copy until then.
 */
#include "access.h"
#include "fault.h"
#include "ops.h"

namespace ptx
{
/* [to], [from], small[0] bytes {, bytes that are read}: op 0 to, 1 from, 2 the last. */
static void issue(warp &w, const instruction &in, uint32_t mask)
{
    uint32_t bytes = in.small[0];
    shadow &s = w.b->shared;
    for (; mask; mask &= mask - 1) {
        int l = __builtin_ctz(mask);
        uint64_t to = in.small[1] == 4 ? place<uint32_t>(w, in, 0)[l] : place<uint64_t>(w, in, 0)[l];
        uint64_t from = place<uint64_t>(w, in, 1)[l] + in.target;
        to += (uint64_t)in.offset;
        uint32_t used = in.n_sources > 2 ? place<uint32_t>(w, in, 2)[l] : bytes;
        if (used > bytes) fail(PTX_ASYNC, "thread %u: cp.async reads %u of %u bytes", w.thread(l), used, bytes);
        need_alignment(w, to, bytes, l, "shared");
        need_alignment(w, from, bytes, l, "global");
        s.check_bounds(to, bytes, "asynchronous copy");
        moment m = moment_of(w, l);
        if (used) memory_read(memory_find(from, used, "asynchronous read"), from, used, m);
        s.copy_begins((uint32_t)to, bytes, m);
        thread_copies &c = w.copies[(size_t)l];
        c.under_way.push_back({(uint32_t)to, bytes, used, c.groups, from});
    }
}

static void arrive(warp &w, int l, const pending_copy &c)
{
    uint8_t *to = w.b->shared.data(c.to);
    memset(to, 0, c.bytes);
    memcpy(to, (const void *)(uintptr_t)c.from, c.from_bytes);
    w.b->shared.copy_ends(c.to, c.bytes, moment_of(w, l));
}

static void commit(warp &w, const instruction &in, uint32_t mask)
{
    (void)in;
    each_lane(mask, [&](int l) { w.copies[(size_t)l].groups++; });
}

/* Waits for all groups except the newest `target`; small[0]: for everything, committed or not. */
static void wait(warp &w, const instruction &in, uint32_t mask)
{
    for (; mask; mask &= mask - 1) {
        int l = __builtin_ctz(mask);
        thread_copies &c = w.copies[(size_t)l];
        size_t n = 0;
        while (n < c.under_way.size() && (in.small[0] || c.under_way[n].group + in.target < c.groups))
            arrive(w, l, c.under_way[n++]);
        c.under_way.erase(c.under_way.begin(), c.under_way.begin() + (long)n);
    }
}

static void build_copy(builder &b)
{
    bool whole = b.take("cg");
    b.take("ca");
    b.drop({"shared", "shared::cta", "global", "L2::64B", "L2::128B", "L2::256B"});
    type u32 = {'u', 4};
    b.address(b.at(0));
    b.in.small[1] = b.in.small[6];
    int64_t to_offset = b.in.offset;
    b.address(b.at(1));
    if (b.in.small[6] != 8 || b.in.offset < 0 || b.in.offset > INT32_MAX) b.unknown();
    b.in.target = (uint32_t)b.in.offset;
    b.in.offset = to_offset;
    b.in.small[0] = (uint8_t)b.number(b.at(2));
    if (b.in.small[0] != 16 && (whole || (b.in.small[0] != 4 && b.in.small[0] != 8))) b.unknown();
    if (b.count() > 4) b.unknown();
    if (b.count() == 4) b.source(b.at(3), u32);
    b.in.run = issue;
}

static void build_cp(builder &b)
{
    if (!b.take("async")) b.unknown();
    if (b.take("commit_group")) {
        b.in.run = commit;
    } else if (b.take("wait_group")) {
        b.in.target = (uint32_t)b.number(b.at(0));
        b.in.run = wait;
    } else if (b.take("wait_all")) {
        b.in.small[0] = 1;
        b.in.run = wait;
    } else {
        build_copy(b);
    }
}

const build_row build_async[] = {{"cp", build_cp}, {nullptr, nullptr}};
} // namespace ptx
