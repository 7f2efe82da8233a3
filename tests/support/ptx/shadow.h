/*
 * shadow.h - the shared memory of a block, with a record of the accesses to each byte.
 *
 * Bytes that were written before the block began count as uninitialized. Shuffles order nothing
 * (PTX ISA, "shfl.sync": no memory ordering); a write by the asynchronous copy engine belongs to
 * its thread from its issue to the wait. See stamp.h.
 */
#ifndef SUPPORT_PTX_SHADOW_H
#define SUPPORT_PTX_SHADOW_H
#include "program.h"
#include "stamp.h"

namespace ptx
{
class shadow
{
  public:
    /* Bytes [begin, end) exist in addition to [dynamic, dynamic + dynamic_bytes). */
    void open(uint32_t begin, uint32_t end, uint32_t dynamic, uint32_t dynamic_bytes);
    void begin_block();
    uint8_t *data(uint32_t at)
    {
        return bytes_.data() + at;
    }
    void check_bounds(uint64_t at, uint32_t n, const char *what) const;
    void read(uint32_t at, uint32_t n, const moment &m);
    void write(uint32_t at, uint32_t n, const moment &m);
    /* Atomics do not race with each other: they have no order, so they leave no stamp. */
    void atomic(uint32_t at, uint32_t n, const moment &m);
    void copy_begins(uint32_t at, uint32_t n, const moment &m);
    void copy_ends(uint32_t at, uint32_t n, const moment &m);

  private:
    struct cell {
        stamp wrote, read;
    };
    std::vector<uint8_t> bytes_;
    std::vector<cell> cells_;
    uint32_t begin_ = 0, end_ = 0, dynamic_ = 0, dynamic_end_ = 0;

    void check_arrived(uint32_t at, const cell &c, const moment &m) const;
    void check_unused(uint32_t at, const cell &c, const moment &m) const;
    [[noreturn]] void race(uint32_t at, const char *now, const char *before, const moment &m, const stamp &s) const;
};
} // namespace ptx

#endif
