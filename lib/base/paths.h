/*
 * paths.h - the files that a path of a config stands for.
 */
#ifndef BASE_PATHS_H
#define BASE_PATHS_H
#include "base/arena.h"
#include <stdbool.h>

/* The path from the root, in `a`; symbolic links are not resolved. */
const char *paths_absolute(arena *a, const char *path);

typedef struct {
    char **items;
    size_t n;
} paths;

/* Whether a path is a pattern: no file has this name, and it contains *, ? or [. */
bool paths_is_pattern(const char *path);

/* A directory stands for the files in and below it, without those whose names begin with a dot or an underscore, and
 * without README and LICENSE files; a pattern (*, ?, [a-z]; ** is not special) for what it matches; any other path
 * for itself, whether it exists or not. In the order of the bytes of the paths, so it is the same on every machine.
 * NRL_ERR_CONFIG if there is no file; NRL_ERR_IO, NRL_ERR_MEMORY. Free with paths_free, after an error, too. [any] */
nrl_status paths_expand(const char *path, paths *out);
void paths_free(paths *p);

#endif
