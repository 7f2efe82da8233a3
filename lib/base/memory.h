/*
 * memory.h - how much memory this process can use, according to the kernel: the smallest of the numbers of the machine
 * and of each control group of the process (containers, Slurm).
 */
#ifndef BASE_MEMORY_H
#define BASE_MEMORY_H
#include <stdint.h>

/* Bytes that this process can allocate without swapping and without exceeding a group's limit; INT64_MAX if unknown.
 * `root` is a prefix for /proc and /sys: "" except in tests. */
int64_t memory_available(const char *root);

/* Bytes of memory of the machine, or the limit of a group if that is smaller; INT64_MAX if unknown. */
int64_t memory_total(const char *root);

/* "\nhint: ..." if the process has a limit of its own (ulimit -v), else ""; for out-of-memory errors. */
enum { MEMORY_HINT = 160 };
const char *memory_limit_hint(char text[MEMORY_HINT]);

#endif
