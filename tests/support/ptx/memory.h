/*
 * memory.h - what of the process is the GPU's global memory.
 */
#ifndef SUPPORT_PTX_MEMORY_H
#define SUPPORT_PTX_MEMORY_H
#include "ptx.h"
#include "stamp.h"
#include <vector>

namespace ptx
{
struct region {
    uint64_t begin, end;
    std::vector<uint8_t> written; /* a byte each, 0 or 1; empty: all counts as written */
    struct cell {
        stamp wrote, read;
    };
    std::vector<cell> cells; /* a byte each, made when a kernel first touches the region */
};

/* Held while a kernel runs: other threads may allocate meanwhile. */
void memory_lock();
void memory_unlock();
/* The region that holds [at, at + bytes), or NULL where only the whole program's memory is known to
 * hold it; else fails. */
region *memory_find(uint64_t at, uint32_t bytes, const char *what);
/* Each fails when a byte was never written, or another thread of the launch may touch it too. */
void memory_read(region *r, uint64_t at, uint32_t bytes, const moment &m);
void memory_write(region *r, uint64_t at, uint32_t bytes, const moment &m);
void memory_atomic(region *r, uint64_t at, uint32_t bytes, const moment &m);
} // namespace ptx

#endif
