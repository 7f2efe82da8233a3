/*
 * load.h - one plugin file: opening it in this process, and trying it in a child process first. Private to core/plugin.
 */
#ifndef PLUGIN_LOAD_H
#define PLUGIN_LOAD_H
#include "base/arena.h"
#include "plugin/kinds.h"
#include <stdbool.h>

/* Opens the file and checks its table. `kind` NULL: any kind. `name` is the file's name without .so. *table is a copy
 * in `a`, in the size that this core knows; members that the plugin does not have are NULL. NRL_ERR_PLUGIN. [main] */
nrl_status load_table(arena *a, const char *path, const plugin_kind *kind, const char *name, const nrl_plugin **table);

/* What a listing shows of a plugin, as text, malloc'd. The text reaches this process if the table is in a child. */
typedef char *load_describe(const nrl_plugin *table);

/* One file to try. */
typedef struct {
    const char *path, *name;
    const plugin_kind *kind; /* NULL: any */
    nrl_status status;       /* result */
    const char *text;        /* what load_describe returned, "" without it; the reason if status is not NRL_OK */
} load_trial;

/* Opens each file in a child process, which is ended where a file does not return within `seconds`. Files that crash,
 * hang or end the process harm only the child; a new child continues behind such a file. Texts are allocated in `a`.
 * `describe` may be NULL. [main] */
void load_try(arena *a, load_trial *list, size_t n, load_describe *describe, double seconds);

#endif
