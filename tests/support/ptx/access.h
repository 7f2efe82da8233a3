/*
 * access.h - from an address in some state space to a place in this process, checked.
 */
#ifndef SUPPORT_PTX_ACCESS_H
#define SUPPORT_PTX_ACCESS_H
#include "memory.h"
#include "warp.h"

namespace ptx
{
enum class access : uint8_t { read, write, atomic, strong_read, strong_write };

moment moment_of(const warp &w, int lane, bool strong = false);

/* The address operand, with in.offset; in.small[6] says how wide its base is. */
uint64_t address_of_lane(const warp &w, const instruction &in, int operand, int lane);
/* bytes: of the whole access, to which the address must be aligned. Records the access. */
uint8_t *reach(warp &w, space where, uint64_t at, uint32_t bytes, int lane, access how);
void need_alignment(const warp &w, uint64_t at, uint32_t bytes, int lane, const char *what);
} // namespace ptx

#endif
