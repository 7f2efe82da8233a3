/*
 * shadow.h - a block's shared memory, with a record of who touched each byte.
 *
 * Two accesses of a byte by different threads, one a write, are a race unless a barrier of the block
 * lies between, or, within a warp, bar.warp.sync. So each byte keeps its last write and its last
 * readers, stamped with the numbers of the block's and the warp's barriers so far. The numbers go on
 * from block to block: what was written before the present block began was never written. Shuffles
 * order nothing (PTX ISA, "shfl.sync": no memory ordering), a write by the asynchronous copy engine
 * belongs to its thread from its issue to the wait.
 */
#ifndef SUPPORT_PTX_SHADOW_H
#define SUPPORT_PTX_SHADOW_H
#include "program.h"

namespace ptx
{
class shadow
{
  public:
    /* Bytes [begin, end) exist in addition to [dynamic, dynamic + dynamic_bytes). */
    void open(uint32_t begin, uint32_t end, uint32_t dynamic, uint32_t dynamic_bytes);
    void begin_block();
    void barrier() /* of all threads */
    {
        epoch_++;
    }
    uint8_t *data(uint32_t at)
    {
        return bytes_.data() + at;
    }
    void check_bounds(uint64_t at, uint32_t n, const char *what) const;
    /* thread: of the block; sync: barriers of its warp so far. */
    void read(uint32_t at, uint32_t n, uint32_t thread, uint32_t sync);
    void write(uint32_t at, uint32_t n, uint32_t thread, uint32_t sync);
    /* Atomics do not race with each other: their order is free, so they leave no stamp. */
    void atomic(uint32_t at, uint32_t n, uint32_t thread, uint32_t sync);
    void copy_begins(uint32_t at, uint32_t n, uint32_t thread, uint32_t sync);
    void copy_ends(uint32_t at, uint32_t n, uint32_t thread, uint32_t sync);

  private:
    struct stamp {
        uint32_t epoch;
        uint16_t sync, thread; /* thread: its number, and the flags below */
    };
    enum : uint16_t { THREAD = 0x3ff, PENDING = 0x400, OTHER_LANES = 0x800, OTHER_WARPS = 0x1000 };
    struct cell {
        stamp wrote, read;
    };
    std::vector<uint8_t> bytes_;
    std::vector<cell> cells_;
    uint32_t begin_ = 0, end_ = 0, dynamic_ = 0, dynamic_end_ = 0, epoch_ = 1, first_epoch_ = 1;

    bool together(const stamp &s, uint32_t thread, uint32_t sync) const;
    void check_arrived(uint32_t at, const cell &c, uint32_t thread) const;
    void check_unread(uint32_t at, const cell &c, uint32_t thread, uint32_t sync) const;
    [[noreturn]] void race(uint32_t at, const char *now, const char *before, uint32_t thread, const stamp &s) const;
};
} // namespace ptx

#endif
