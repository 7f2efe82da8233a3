/*
 * memory.h - what happens when memory runs out: an operation is tried while the n-th allocation of large memory fails,
 * for n = 0, 1, 2, ..., until it succeeds. Each failure must be NRL_ERR_MEMORY.
 */
#ifndef SUPPORT_MEMORY_H
#define SUPPORT_MEMORY_H
#include "base/arena.h"
#include <nrl/status.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { TEST_MOST_ALLOCATIONS = 1 << 20 };

/* `attempt` calls mem_try_fail_after(n) after its preparations, and frees what it has made, whether it succeeds or not.
 * Beyond the first `all` allocations only some of them fail. Returns the number of allocations that must succeed,
 * rounded up. */
static inline int64_t test_out_of_memory(nrl_status (*attempt)(void *user, int64_t n), void *user, int64_t all)
{
    for (int64_t n = 0; n < TEST_MOST_ALLOCATIONS; n += n < all ? 1 : n / 4 + 1) {
        nrl_status st = attempt(user, n);
        mem_try_fail_after(-1);
        if (st == NRL_OK) return n;
        if (st != NRL_ERR_MEMORY || !strstr(nrl_error_text(), "out of memory: cannot allocate "))
            fail_msg("allocation %d: status %d, '%s'", (int)n, (int)st, nrl_error_text());
    }
    fail_msg("it never succeeds");
    return -1;
}

#endif
