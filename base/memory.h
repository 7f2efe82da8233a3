/*
 * memory.h - how much memory this process could still take, by the kernel's own account: of the machine,
 * and of each control group above the process (containers, Slurm), whichever is less.
 */
#ifndef BASE_MEMORY_H
#define BASE_MEMORY_H
#include <stdint.h>

/* Bytes that can be had without swapping, and without being killed for a group's limit; INT64_MAX where
 * nothing says. `root`: in front of /proc and /sys, "" but in tests. */
int64_t memory_available(const char *root);

/* Bytes of the machine, or what its groups allow this process at most; INT64_MAX where nothing says. */
int64_t memory_total(const char *root);

/* "\nhint: ..." where the process is limited by itself (ulimit -v), "" where not; for errors of memory. */
enum { MEMORY_HINT = 160 };
const char *memory_limit_hint(char text[MEMORY_HINT]);

#endif
