/*
 * memory.h - which memory of the process is the global memory of the GPU.
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
    std::vector<uint8_t> written; /* one byte per byte, 0 or 1; empty: all bytes are initialized */
    struct cell {
        stamp wrote, read;
    };
    std::vector<cell> cells; /* one per byte, created when a kernel first touches the region */
};

/* Held while a kernel runs, because other threads may allocate at the same time. */
void memory_lock();
void memory_unlock();
/* The region that contains [at, at + bytes), or NULL if it is only known to be part of the
 * program's memory; otherwise fails. */
region *memory_find(uint64_t at, uint32_t bytes, const char *what);
/* Each fails if a byte was never written, or if another thread of the launch may access it at the
 * same time. */
void memory_read(region *r, uint64_t at, uint32_t bytes, const moment &m);
void memory_write(region *r, uint64_t at, uint32_t bytes, const moment &m);
void memory_atomic(region *r, uint64_t at, uint32_t bytes, const moment &m);
} // namespace ptx

#endif
