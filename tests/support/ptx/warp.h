/*
 * warp.h - 32 lanes that execute a program, and their block.
 */
#ifndef SUPPORT_PTX_WARP_H
#define SUPPORT_PTX_WARP_H
#include "ptx.h"
#include "shadow.h"

namespace ptx
{
enum { LANES = 32, MOST_CALLS = 16 };

struct block;

/* Of cp.async; group: number in the issuing thread, counted from 0. */
struct pending_copy {
    uint32_t to, bytes, from_bytes, group;
    uint64_t from;
};

struct thread_copies {
    std::vector<pending_copy> under_way; /* oldest first */
    uint32_t groups = 0;                 /* committed so far */
};

struct warp {
    const program *p = nullptr;
    block *b = nullptr;
    uint8_t *registers = nullptr; /* 64-byte aligned */
    uint32_t *written = nullptr;  /* lanes, of each 64 bytes of registers */
    uint32_t index = 0;           /* in the block */
    uint32_t existing = 0, live = 0, at_barrier = 0, at_meeting = 0;
    uint32_t pc[LANES] = {};
    uint32_t barrier[LANES] = {}; /* the barrier that a lane waits at */
    uint32_t sync = 0;            /* number of bar.warp.sync so far */
    uint32_t depth[LANES] = {}, returns[LANES][MOST_CALLS] = {};
    std::vector<uint8_t> local, local_written; /* [lane][local_bytes] */
    std::vector<thread_copies> copies;
    uint64_t steps = 0;
    std::vector<uint8_t> register_memory;
    std::vector<uint32_t> written_memory;
    /* the current position, for messages */
    const instruction *now = nullptr;
    uint32_t now_mask = 0;

    template <class T> T *lanes(uint32_t place)
    {
        return reinterpret_cast<T *>(registers + place);
    }
    uint32_t thread(int lane) const
    {
        return index * LANES + (uint32_t)lane;
    }
};

struct block {
    const program *p = nullptr;
    const ptx_launch *launch = nullptr;
    uint32_t n_threads = 0;
    ptx_dims index = {};
    uint32_t epoch = 0, began = 0, launch_began = 0; /* barriers, see stamp.h */
    std::vector<warp> warps;
    shadow shared;
    const warp *at_work = nullptr; /* the current warp */
    std::vector<uint8_t> parameters;
};

/* b may have run another launch of the same program: memory that fits is reused. */
void open_block(block &b, const program *p, const ptx_launch *launch);
void begin_block(block &b, ptx_dims index);
void run_block(block &b);  /* until all threads have ended */
uint32_t next_epoch(void); /* for all programs, because memory outlives launches */
void fill_special(warp &w, const special &s);
} // namespace ptx

#endif
