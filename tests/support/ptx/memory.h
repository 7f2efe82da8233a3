/*
 * memory.h - what of the process is the GPU's global memory.
 */
#ifndef SUPPORT_PTX_MEMORY_H
#define SUPPORT_PTX_MEMORY_H
#include "ptx.h"
#include <vector>

namespace ptx
{
struct region {
    uint64_t begin, end;
    std::vector<uint8_t> written; /* a byte each, 0 or 1; empty: all counts as written */
};

/* Held while a kernel runs: other threads may allocate meanwhile. */
void memory_lock();
void memory_unlock();
/* The region that holds [at, at + bytes), or NULL where only the whole program's memory is known to
 * hold it; else fails. */
region *memory_find(uint64_t at, uint32_t bytes, const char *what);
/* Fails when a byte was never written. */
void memory_read(const region *r, uint64_t at, uint32_t bytes);
void memory_wrote(region *r, uint64_t at, uint32_t bytes);
} // namespace ptx

#endif
