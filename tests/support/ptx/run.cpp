/*
 * run.cpp - schedules warps and lanes.
 *
 * Of a warp, the lanes that are furthest behind in the text run, all that are at the same
 * instruction, so that lanes reconverge where branches join. Lanes that synchronize (shfl.sync,
 * vote.sync, bar.warp.sync, mma, ldmatrix) wait until all lanes of the mask are at the same
 * instruction; lanes at a barrier of the block wait until all its threads are at it. If no lane can
 * continue, the waiting lanes are a fault: PTX ISA, "bar", "bar.warp.sync", "shfl.sync". This is
 * stricter than a GPU: a thread that has ended does not count as having arrived.
 */
#include "fault.h"
#include "warp.h"
#include <string.h>

namespace ptx
{
/* A kernel of nrl that takes more steps in one warp does not terminate. */
static const uint64_t MOST_STEPS = (uint64_t)1 << 31;

static uint32_t lanes_at(const warp &w, uint32_t lanes, uint32_t pc)
{
    uint32_t mask = 0;
    for (; lanes; lanes &= lanes - 1) {
        int l = __builtin_ctz(lanes);
        if (w.pc[l] == pc) mask |= 1u << l;
    }
    return mask;
}

static uint32_t lowest(const warp &w, uint32_t lanes)
{
    uint32_t pc = NO_PLACE;
    for (; lanes; lanes &= lanes - 1) {
        int l = __builtin_ctz(lanes);
        if (w.pc[l] < pc) pc = w.pc[l];
    }
    return pc;
}

static void move_to(warp &w, uint32_t lanes, uint32_t pc)
{
    for (; lanes; lanes &= lanes - 1)
        w.pc[__builtin_ctz(lanes)] = pc;
}

static void check_sources(const warp &w, const instruction &in, uint32_t mask)
{
    for (int i = in.n_results; i < in.n_results + in.n_sources; i++) {
        uint32_t missing = mask & ~w.written[in.op[i] / 64];
        if (missing)
            fail(PTX_UNINITIALISED, "thread %u reads a register that it never set (operand %d)",
                 w.thread(__builtin_ctz(missing)), i + 1);
    }
}

static void execute(warp &w, const instruction &in, uint32_t mask)
{
    w.now_mask = mask;
    if (in.carries) { /* a move of a possibly undefined value, as compilers generate */
        in.run(w, in, mask);
        uint32_t known = w.written[in.op[1] / 64];
        uint32_t &to = w.written[in.op[0] / 64];
        to = (to & ~mask) | (known & mask);
        return;
    }
    check_sources(w, in, mask);
    in.run(w, in, mask);
    for (int i = 0; i < in.n_results; i++)
        w.written[in.op[i] / 64] |= mask;
}

static uint32_t mask_wanted(warp &w, const instruction &in, uint32_t mask)
{
    if (in.mask_operand == NO_OPERAND) {
        if (w.live != ALL_LANES)
            fail(PTX_SYNC, "an instruction of the whole warp, of which lanes %08x have ended", ~w.live);
        return ALL_LANES;
    }
    const uint32_t *masks = w.lanes<uint32_t>(in.op[in.mask_operand]);
    uint32_t wanted = masks[__builtin_ctz(mask)];
    for (uint32_t m = mask; m; m &= m - 1) {
        int l = __builtin_ctz(m);
        if (masks[l] != wanted || !(wanted >> l & 1))
            fail(PTX_SYNC, "thread %u has the mask %08x, others %08x: it must be in it, and all have the same",
                 w.thread(l), masks[l], wanted);
    }
    return wanted & w.live;
}

/* Lanes arrive; returns those that may continue (0: they wait). */
static uint32_t meet(warp &w, const instruction &in, uint32_t mask, uint32_t pc)
{
    uint32_t wanted = mask_wanted(w, in, mask);
    uint32_t there = (lanes_at(w, w.at_meeting, pc) & wanted) | mask;
    if (there != wanted) {
        w.at_meeting |= mask;
        move_to(w, mask, pc);
        return 0;
    }
    w.at_meeting &= ~there;
    execute(w, in, there);
    move_to(w, there, pc + 1);
    return there;
}

static void call(warp &w, const instruction &in, uint32_t mask, uint32_t pc)
{
    for (uint32_t m = mask; m; m &= m - 1) {
        int l = __builtin_ctz(m);
        if (w.depth[l] == MOST_CALLS) fail(PTX_OPCODE, "calls deeper than %d", MOST_CALLS);
        w.returns[l][w.depth[l]++] = pc + 1;
    }
    move_to(w, mask, in.target);
}

/* ret: returns to the caller, or ends the thread. */
static void leave(warp &w, uint32_t mask)
{
    for (uint32_t m = mask; m; m &= m - 1) {
        int l = __builtin_ctz(m);
        if (w.depth[l])
            w.pc[l] = w.returns[l][--w.depth[l]];
        else
            w.live &= ~(1u << l);
    }
}

/* Runs lanes `mask` from pc until they diverge, wait, or reach the position of others. */
static void run_together(warp &w, uint32_t pc, uint32_t mask, uint32_t others_at)
{
    const instruction *code = w.p->code.data();
    for (;;) {
        const instruction &in = code[pc];
        uint32_t m = mask;
        w.now = &in;
        w.now_mask = mask;
        if (++w.steps > MOST_STEPS) fail(PTX_TRAP, "no end after %llu instructions", (unsigned long long)MOST_STEPS);
        if (in.guard != NO_PLACE) {
            uint32_t undefined = mask & ~w.written[in.guard / 64];
            if (undefined)
                fail(PTX_UNINITIALISED, "thread %u reads a predicate that it never set",
                     w.thread(__builtin_ctz(undefined)));
            uint32_t p = *w.lanes<uint32_t>(in.guard);
            m &= in.guard_inverted ? ~p : p;
        }
        if (in.how == flow::plain) {
            if (m) execute(w, in, m);
            pc++;
        } else if (in.how == flow::branch && (m == mask || !m)) {
            pc = m ? in.target : pc + 1;
        } else {
            move_to(w, mask & ~m, pc + 1);
            if (!m) {
                pc++;
            } else if (in.how == flow::branch) {
                move_to(w, m, in.target);
                return;
            } else if (in.how == flow::meet) {
                m = meet(w, in, m, pc);
                if (m != mask) return;
                pc++;
            } else if (in.how == flow::barrier) {
                check_sources(w, in, m);
                in.run(w, in, m);
                move_to(w, m, pc + 1);
                w.at_barrier |= m;
                return;
            } else {
                if (in.how == flow::call)
                    call(w, in, m, pc);
                else
                    leave(w, m);
                return;
            }
        }
        if (pc >= others_at) {
            move_to(w, mask, pc);
            return;
        }
    }
}

/* No lane of the warp can run: checks whether the waiting ones may wait. */
static void check_waiting(const warp &w)
{
    if (!w.at_meeting) return;
    uint32_t first = 1u << __builtin_ctz(w.at_meeting);
    const instruction &in = w.p->code[w.pc[__builtin_ctz(first)]];
    fail(PTX_SYNC,
         "line %d, %s: lanes %08x wait for others of warp %u; ended are %08x, at a barrier %08x, elsewhere %08x",
         in.line, w.p->opcodes[(size_t)(&in - w.p->code.data())].c_str(), lanes_at(w, w.at_meeting, lowest(w, first)),
         w.index, w.existing & ~w.live, w.at_barrier, w.at_meeting & ~lanes_at(w, w.at_meeting, lowest(w, first)));
}

static void run_warp(warp &w)
{
    w.b->at_work = &w;
    for (;;) {
        uint32_t ready = w.live & ~w.at_barrier & ~w.at_meeting;
        if (!ready) break;
        uint32_t pc = lowest(w, ready), mask = lanes_at(w, ready, pc);
        run_together(w, pc, mask, lowest(w, ready & ~mask));
    }
    w.now = nullptr;
    check_waiting(w);
    w.b->at_work = nullptr;
}

/* bar.sync is .aligned: the lanes of a warp arrive together at the same instruction. */
static void check_barrier(const block &b)
{
    const warp *first = nullptr;
    uint32_t id = 0, waiting = 0;
    for (const warp &w : b.warps) {
        if (!w.at_barrier) continue;
        uint32_t pc = w.pc[__builtin_ctz(w.at_barrier)];
        uint32_t lane_id = w.barrier[__builtin_ctz(w.at_barrier)];
        waiting += (uint32_t)__builtin_popcount(w.at_barrier);
        if (w.at_barrier != w.existing || lanes_at(w, w.at_barrier, pc) != w.at_barrier)
            fail(PTX_SYNC,
                 "line %d: of warp %u lanes %08x are at the barrier, %08x have ended, others are at another one",
                 w.p->code[pc - 1].line, w.index, lanes_at(w, w.at_barrier, pc), w.existing & ~w.live);
        if (first && lane_id != id)
            fail(PTX_SYNC, "line %d: warp %u is at barrier %u, warp %u at %u", w.p->code[pc - 1].line, w.index, lane_id,
                 first->index, id);
        first = &w;
        id = lane_id;
    }
    if (waiting != b.n_threads)
        fail(PTX_SYNC, "line %d: %u of %u threads are at the barrier, the others have ended",
             first->p->code[first->pc[0] - 1].line, waiting, b.n_threads);
}

void run_block(block &b)
{
    for (;;) {
        bool waiting = false;
        for (size_t i = 0; i < b.warps.size(); i++)
            run_warp(b.warps[b.launch->backwards ? b.warps.size() - 1 - i : i]);
        for (const warp &w : b.warps)
            waiting = waiting || w.at_barrier;
        if (!waiting) return;
        check_barrier(b);
        b.epoch = next_epoch();
        for (warp &w : b.warps)
            w.at_barrier = 0;
    }
}
} // namespace ptx
