/*
 * child.h - runs a program to its end and takes what it prints.
 */
#ifndef CLI_COMMON_CHILD_H
#define CLI_COMMON_CHILD_H
#include "base/arena.h"
#include <nrl/status.h>

typedef struct {
    int code;              /* its exit code, or 128 + the signal that ended it */
    const char *out, *err; /* what it printed, at most CHILD_OUTPUT bytes each */
} child_end;

enum { CHILD_OUTPUT = 16 << 20 };

/* Without a standard input; argv ends with NULL, and argv[0] without a slash is searched in PATH. `prepare`, which may
 * be NULL, is called in the child. NRL_ERR_IO: it could not be started. */
nrl_status child_run(arena *a, const char *const *argv, void (*prepare)(void), child_end *end);

#endif
