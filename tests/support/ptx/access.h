/*
 * access.h - translates an address in some state space to an address in this process, with checks.
 */
#ifndef SUPPORT_PTX_ACCESS_H
#define SUPPORT_PTX_ACCESS_H
#include "memory.h"
#include "warp.h"

namespace ptx
{
enum class access : uint8_t { read, write, atomic, strong_read, strong_write };

moment moment_of(const warp &w, int lane, bool strong = false);

/* The address operand, with in.offset; in.small[6] is the width of its base. */
uint64_t address_of_lane(const warp &w, const instruction &in, int operand, int lane);
/* bytes: size of the whole access, which is the required alignment. Records the access. */
uint8_t *reach(warp &w, space where, uint64_t at, uint32_t bytes, int lane, access how);
void need_alignment(const warp &w, uint64_t at, uint32_t bytes, int lane, const char *what);
} // namespace ptx

#endif
