/*
 * stamp.h - the last access to a byte, and whether another access may happen at the same time.
 *
 * Two accesses of a byte by different threads, one of them a write, are a race unless a barrier of
 * the block or, within a warp, bar.warp.sync lies between them. Stamps have the numbers of the
 * barriers of the block and of the warp so far. Epoch numbers increase from block to block and
 * launch to launch, so an epoch also identifies the block: accesses of another block of the same
 * launch may always happen at the same time.
 */
#ifndef SUPPORT_PTX_STAMP_H
#define SUPPORT_PTX_STAMP_H
#include <stdint.h>

namespace ptx
{
struct stamp {
    uint32_t epoch;
    uint16_t sync, thread; /* thread: its number in the block, and flags */
    enum : uint16_t {
        NUMBER = 0x3ff,
        PENDING = 0x400,
        OTHER_LANES = 0x800,
        OTHER_WARPS = 0x1000,
        STRONG = 0x2000,
        OTHER_BLOCKS = 0x4000
    };
    uint32_t number() const
    {
        return thread & NUMBER;
    }
};

/* The time of an access. */
struct moment {
    uint32_t epoch, sync, thread;
    uint32_t block_began, launch_began; /* epochs */
    bool strong;                        /* volatile and similar: two such accesses never race (PTX ISA, "Data races") */
};

inline bool together(const stamp &s, const moment &m)
{
    if (s.epoch < m.launch_began) return false;
    if (m.strong && (s.thread & stamp::STRONG)) return false;
    if (s.epoch < m.block_began || (s.thread & stamp::OTHER_BLOCKS)) return true;
    if (s.epoch != m.epoch) return false;
    if (s.thread & stamp::OTHER_WARPS) return true;
    uint32_t who = s.number();
    if (who / 32 != m.thread / 32) return true;
    return (who != m.thread || (s.thread & stamp::OTHER_LANES)) && s.sync == (uint16_t)m.sync;
}

inline stamp stamp_of(const moment &m)
{
    return {m.epoch, (uint16_t)m.sync, (uint16_t)(m.thread | (m.strong ? stamp::STRONG : 0))};
}

/* Adds another reader; a byte has one stamp for all readers. */
inline void add_reader(stamp &r, const moment &m)
{
    uint32_t who = r.number();
    bool same_launch = r.epoch >= m.launch_began, other_block = same_launch && r.epoch < m.block_began;
    uint16_t kept = same_launch ? r.thread & stamp::OTHER_BLOCKS : 0;
    if (other_block) kept = stamp::OTHER_BLOCKS;
    if (r.epoch == m.epoch) {
        if (who / 32 != m.thread / 32) {
            r.thread |= stamp::OTHER_WARPS;
            return;
        }
        kept |= r.thread & stamp::OTHER_WARPS;
        if (r.sync == (uint16_t)m.sync) {
            if (who != m.thread) r.thread |= stamp::OTHER_LANES;
            return;
        }
    }
    r = stamp_of(m);
    r.thread |= kept;
}
} // namespace ptx

#endif
