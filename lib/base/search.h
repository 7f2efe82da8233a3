/*
 * search.h - the directories that are searched for plugins, and the plugin files in them.
 */
#ifndef BASE_SEARCH_H
#define BASE_SEARCH_H
#include "base/arena.h"
#include <stdbool.h>

typedef struct {
    const char **folders;
    size_t n;
    const char *absent; /* "a, b": named paths that are not directories; NULL = none */
} search_path;

bool search_is_same_folder(const char *x, const char *y); /* compares device and inode */

/* Appends a directory, unless it does not exist or is already in the list, under whatever path. */
void search_add(search_path *s, arena *a, const char *folder);
void search_add_list(search_path *s, arena *a, const char *list); /* colon-separated */

/* Searches the directories from *folder on for <kind>/<name>.so. Returns the path and sets *folder to the directory's
 * number; NULL = not found, or `name` is not a plain file name. The file may be one that cannot be opened. */
const char *search_file(const search_path *s, arena *a, const char *kind, const char *name, size_t *folder);

/* The names of all <kind>/<name>.so, sorted, each once. */
size_t search_names(const search_path *s, arena *a, const char *kind, const char ***names);

#endif
