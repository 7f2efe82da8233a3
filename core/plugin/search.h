/*
 * search.h - the folders that hold plugins, and what lies in them. Private to core/plugin.
 */
#ifndef PLUGIN_SEARCH_H
#define PLUGIN_SEARCH_H
#include "base/arena.h"
#include <stdbool.h>

typedef struct {
    const char **folders;
    size_t n;
    const char *absent; /* "a, b": what was named and is no folder; NULL = nothing */
} search_path;

bool search_is_same_folder(const char *x, const char *y); /* under whatever names */

/* Appends a folder, unless it is there already under this or another spelling, or does not exist.
 */
void search_add(search_path *s, arena *a, const char *folder);
void search_add_list(search_path *s, arena *a, const char *list); /* colon-separated */

/* Path of <folder>/<kind>/<name>.so in the first folder from *folder on that has it, which is then
 * *folder; NULL = none, or `name` is not a plain name. */
const char *search_file(const search_path *s, arena *a, const char *kind, const char *name, size_t *folder);

/* Names of all <kind>/<name>.so, sorted, each once. */
size_t search_names(const search_path *s, arena *a, const char *kind, const char ***names);

#endif
