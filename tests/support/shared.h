/*
 * shared.h - files outside of this checkout: golden runs, real tokenizers, models and data. They
 * are searched in NRL_TEST_SHARED; a test that needs a missing file prints a message and is
 * skipped.
 */
#ifndef SUPPORT_SHARED_H
#define SUPPORT_SHARED_H
#include "base/arena.h"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* NRL_TEST_SHARED/name, or NULL after printing the reason; freed by the caller. */
static inline char *shared_path(const char *name)
{
    const char *root = getenv("NRL_TEST_SHARED");
    char *path = root ? mem_printf("%s/%s", root, name) : NULL;
    if (path && access(path, R_OK) == 0) return path;
    printf("skipped: NRL_TEST_SHARED has no %s\n", name);
    free(path);
    return NULL;
}

/* The same, in an arena. */
static inline const char *shared_path_in(arena *a, const char *name)
{
    char *path = shared_path(name);
    const char *kept = path ? arena_strdup(a, path) : NULL;
    free(path);
    return kept;
}

#endif
