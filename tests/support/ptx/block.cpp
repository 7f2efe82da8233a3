/*
 * block.cpp - a block before it runs: registers with known values, parameters, special registers
 * (PTX ISA, "Special registers").
 */
#include "fault.h"
#include "warp.h"
#include <stdlib.h>
#include <string.h>

namespace ptx
{
static void fill_constant(warp &w, const constant &c)
{
    for (int l = 0; l < LANES; l++)
        memcpy(w.registers + c.place + (uint32_t)l * c.bytes, &c.bits, c.bytes);
}

static void open_warp(warp &w, block &b, uint32_t index)
{
    const program *p = b.p;
    w.p = p;
    w.b = &b;
    w.index = index;
    w.register_memory.assign(p->register_bytes + 64, 0xff);
    w.registers = w.register_memory.data();
    w.registers += (64 - (uintptr_t)w.registers % 64) % 64;
    w.written_memory.assign(p->register_bytes / 64 + 1, 0);
    w.written = w.written_memory.data();
    w.local.assign(p->local_bytes * LANES, 0xff);
    w.local_written.assign(p->local_bytes * LANES, 0);
    w.copies.resize(LANES);
    for (const constant &c : p->constants)
        fill_constant(w, c);
    uint32_t first = index * LANES, n = b.n_threads - first;
    w.existing = n >= LANES ? (uint32_t)ALL_LANES : (1u << n) - 1;
}

void open_block(block &b, const program *p, const ptx_launch *launch)
{
    uint32_t n_threads = launch->threads.x * launch->threads.y * launch->threads.z;
    b.launch = launch;
    b.shared.open(p->shared_begin, p->shared_end, p->shared_dynamic, (uint32_t)launch->shared_bytes);
    b.parameters.assign(p->parameter_bytes, 0);
    for (size_t i = 0; i < p->parameters.size(); i++)
        memcpy(&b.parameters[p->parameters[i].at], launch->args[i], p->parameters[i].bytes);
    if (b.p == p && b.n_threads == n_threads) return;
    b.p = p;
    b.n_threads = n_threads;
    b.warps.clear();
    b.warps.resize((n_threads + LANES - 1) / LANES);
    for (uint32_t i = 0; i < b.warps.size(); i++)
        open_warp(b.warps[i], b, i);
}

static uint32_t component(const ptx_dims &d, char which)
{
    return which == 'x' ? d.x : which == 'y' ? d.y : d.z;
}

static uint32_t special_value(const warp &w, const std::string &name, int lane)
{
    const block &b = *w.b;
    const ptx_dims &n = b.launch->threads;
    uint32_t thread = w.thread(lane);
    ptx_dims at = {thread % n.x, thread / n.x % n.y, thread / n.x / n.y};
    char last = name.back();
    std::string family = name.substr(0, name.size() - 2);
    if (family == "%tid") return component(at, last);
    if (family == "%ntid") return component(n, last);
    if (family == "%ctaid") return component(b.index, last);
    if (family == "%nctaid") return component(b.launch->blocks, last);
    if (name == "%laneid") return (uint32_t)lane;
    if (name == "%warpid") return w.index;
    if (name == "WARP_SZ" || name == "%nwarpid") return name[0] == 'W' ? (uint32_t)LANES : (uint32_t)b.warps.size();
    if (name == "%lanemask_eq") return 1u << lane;
    if (name == "%lanemask_lt") return (1u << lane) - 1;
    if (name == "%lanemask_le") return (2u << lane) - 1;
    if (name == "%lanemask_gt") return ~((2u << lane) - 1);
    if (name == "%lanemask_ge") return ~((1u << lane) - 1);
    fail(PTX_OPCODE, "special register %s is not modelled", name.c_str());
}

void fill_special(warp &w, const special &s)
{
    for (int l = 0; l < LANES; l++)
        w.lanes<uint32_t>(s.place)[l] = special_value(w, s.name, l);
}

static void begin_warp(warp &w)
{
    const program *p = w.p;
    memset(w.written, 0, p->register_bytes / 64 * sizeof *w.written);
    for (const constant &c : p->constants)
        for (uint32_t i = c.place; i < c.place + c.bytes * 32u; i += 64)
            w.written[i / 64] = ALL_LANES;
    for (const special &s : p->specials) {
        w.written[s.place / 64] = ALL_LANES;
        fill_special(w, s);
    }
    w.steps = 0;
    w.live = w.existing;
    w.at_barrier = w.at_meeting = w.sync = 0;
    memset(w.pc, 0, sizeof w.pc);
    memset(w.depth, 0, sizeof w.depth);
    std::fill(w.local_written.begin(), w.local_written.end(), 0);
    for (thread_copies &c : w.copies) {
        c.under_way.clear();
        c.groups = 0;
    }
}

uint32_t next_epoch()
{
    static uint32_t epoch;
    return ++epoch;
}

void begin_block(block &b, ptx_dims index)
{
    b.index = index;
    b.epoch = b.began = next_epoch();
    b.shared.begin_block();
    for (warp &w : b.warps)
        begin_warp(w);
}
} // namespace ptx
