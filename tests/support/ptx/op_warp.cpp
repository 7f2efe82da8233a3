/*
 * op_warp.cpp - instructions that the lanes of a warp execute together: PTX ISA, "shfl.sync",
 * "vote.sync", "match.sync", "redux.sync", "activemask", "bar.warp.sync". The scheduler
 * synchronizes the lanes.
 */
#include "fault.h"
#include "ops.h"

namespace ptx
{
enum { SHUFFLE_UP = 0, SHUFFLE_DOWN, SHUFFLE_BUTTERFLY, SHUFFLE_INDEX };

/* From the manual: c contains the clamp value in bits 4:0 and the segment mask in 12:8. */
static int source_lane(int mode, int lane, uint32_t b, uint32_t c, bool *valid)
{
    int offset = b & 31, clamp = c & 31, segment = c >> 8 & 31;
    int most = (lane & segment) | (clamp & ~segment & 31), least = lane & segment;
    int j = mode == SHUFFLE_UP          ? lane - offset
            : mode == SHUFFLE_DOWN      ? lane + offset
            : mode == SHUFFLE_BUTTERFLY ? lane ^ offset
                                        : least | (offset & ~segment & 31);
    *valid = mode == SHUFFLE_UP ? j >= most : j <= most;
    return *valid ? j : lane;
}

/* op: d, p, a, b, c, members */
static void shuffle(warp &w, const instruction &in, uint32_t mask)
{
    uint32_t a[LANES], *d = place<uint32_t>(w, in, 0), *p = place<uint32_t>(w, in, 1);
    const uint32_t *b = place<uint32_t>(w, in, 3), *c = place<uint32_t>(w, in, 4);
    memcpy(a, place<uint32_t>(w, in, 2), sizeof a);
    for (uint32_t m = mask; m; m &= m - 1) {
        int l = __builtin_ctz(m);
        bool valid;
        int j = source_lane(in.small[0], l, b[l], c[l], &valid);
        if (!(mask >> j & 1))
            fail(PTX_SYNC, "thread %u reads lane %d, which takes no part in the shuffle", w.thread(l), j);
        d[l] = a[j];
        *p = (*p & ~(1u << l)) | (uint32_t)valid << l;
    }
}

static void set_members(builder &b, size_t k)
{
    type u32 = {'u', 4};
    b.in.mask_operand = (uint8_t)(b.in.n_results + b.in.n_sources);
    b.source(b.at(k), u32);
    b.in.how = flow::meet;
}

static void build_shuffle(builder &b)
{
    int mode = b.take_one_of({"up", "down", "bfly", "idx"});
    if (!b.take("sync") || mode < 0) b.unknown();
    type t = b.take_type();
    operand p;
    if (b.at(0).second >= 0) {
        p.is = operand::REGISTER;
        p.index = b.at(0).second;
    }
    b.result(b.at(0), t.bytes);
    b.predicate_result(p);
    for (size_t k = 1; k < 4; k++)
        b.source(b.at(k), t);
    set_members(b, 4);
    b.in.small[0] = (uint8_t)mode;
    b.in.run = shuffle;
}

/* vote: small[0] all, any, uni, ballot; [1] source inverted */
static void vote(warp &w, const instruction &in, uint32_t mask)
{
    uint32_t a = *place<uint32_t>(w, in, 1);
    uint32_t yes = (in.small[1] ? ~a : a) & mask;
    bool result = in.small[0] == 0 ? yes == mask : in.small[0] == 1 ? yes != 0 : yes == 0 || yes == mask;
    uint32_t *d = place<uint32_t>(w, in, 0);
    if (in.small[0] == 3)
        each_lane(mask, [=](int l) { d[l] = yes; });
    else
        *d = (*d & ~mask) | (result ? mask : 0);
}

static void build_vote(builder &b)
{
    int mode = b.take_one_of({"all", "any", "uni", "ballot"});
    if (!b.take("sync") || mode < 0) b.unknown();
    b.take_type();
    if (mode == 3)
        b.result(b.at(0), 4);
    else
        b.predicate_result(b.at(0));
    b.predicate_source(b.at(1));
    set_members(b, 2);
    b.in.small[0] = (uint8_t)mode;
    b.in.small[1] = b.at(1).inverted;
    b.in.run = vote;
}

static void active(warp &w, const instruction &in, uint32_t mask)
{
    uint32_t *d = place<uint32_t>(w, in, 0);
    each_lane(mask, [=](int l) { d[l] = mask; });
}

static void build_active(builder &b)
{
    b.result(b.at(0), b.take_type().bytes);
    b.in.run = active;
}

/* match.any: lanes with the same value */
template <class T> static void match(warp &w, const instruction &in, uint32_t mask)
{
    uint32_t *d = place<uint32_t>(w, in, 0);
    T a[LANES];
    memcpy(a, place<T>(w, in, 1), sizeof a);
    each_lane(mask, [&](int l) {
        uint32_t same = 0;
        for (uint32_t m = mask; m; m &= m - 1)
            if (a[__builtin_ctz(m)] == a[l]) same |= m & (0 - m);
        d[l] = same;
    });
}

static void build_match(builder &b)
{
    if (!b.take("any") || !b.take("sync")) b.unknown();
    type t = b.take_type();
    b.result(b.at(0), 4);
    b.source(b.at(1), t);
    set_members(b, 2);
    b.in.run = t.bytes == 4 ? match<uint32_t> : match<uint64_t>;
}

template <class T> static void reduce(warp &w, const instruction &in, uint32_t mask)
{
    T *d = place<T>(w, in, 0);
    const T *a = place<T>(w, in, 1);
    T out = a[__builtin_ctz(mask)];
    for (uint32_t m = mask & (mask - 1); m; m &= m - 1) {
        T x = a[__builtin_ctz(m)];
        switch (in.small[0]) {
        case 0:
            out = (T)((uint32_t)out + (uint32_t)x);
            break;
        case 1:
            out = x < out ? x : out;
            break;
        case 2:
            out = x > out ? x : out;
            break;
        case 3:
            out = out & x;
            break;
        case 4:
            out = out | x;
            break;
        default:
            out = out ^ x;
        }
    }
    each_lane(mask, [=](int l) { d[l] = out; });
}

static void build_redux(builder &b)
{
    int op = b.take_one_of({"add", "min", "max", "and", "or", "xor"});
    if (!b.take("sync") || op < 0) b.unknown();
    type t = b.take_type();
    if (t.bytes != 4 || t.kind == 'f') b.unknown();
    b.result(b.at(0), 4);
    b.source(b.at(1), t);
    set_members(b, 2);
    b.in.small[0] = (uint8_t)op;
    b.in.run = t.kind == 's' ? reduce<int32_t> : reduce<uint32_t>;
}

/* Orders memory among the lanes of its mask. */
static void warp_barrier(warp &w, const instruction &in, uint32_t mask)
{
    (void)in;
    if (mask != w.live) fail(PTX_OPCODE, "bar.warp.sync of a part of the warp is not modelled");
    w.sync++;
}

/* small[0]: number of the barrier */
static void block_barrier(warp &w, const instruction &in, uint32_t mask)
{
    const uint32_t *id = place<uint32_t>(w, in, 0);
    each_lane(mask, [&](int l) { w.barrier[l] = id[l]; });
}

static void build_barrier(builder &b)
{
    b.drop({"cta", "aligned"});
    bool warp = b.take("warp");
    type u32 = {'u', 4};
    if (!b.take("sync") || b.count() != 1) b.unknown(); /* with a number of threads: not modelled */
    if (warp) {
        set_members(b, 0);
        b.in.run = warp_barrier;
        return;
    }
    b.source(b.at(0), u32);
    b.in.how = flow::barrier;
    b.in.run = block_barrier;
}

const build_row build_warp[] = {
    {"shfl", build_shuffle}, {"vote", build_vote},       {"activemask", build_active}, {"match", build_match},
    {"redux", build_redux},  {"barrier", build_barrier}, {"bar", build_barrier},       {nullptr, nullptr},
};
} // namespace ptx
