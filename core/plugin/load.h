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

typedef struct {
    const nrl_plugin *table; /* a copy of the kind's table; members that the plugin does not have are zero */
    const char *name, *path;
} plugin;

/* Calls a member of an open plugin that only answers, such as its probe. */
typedef int32_t plugin_question(const plugin *p, const void *user);

/* One file to try, or one open plugin to ask. */
typedef struct {
    const char *path, *name;
    const plugin_kind *kind; /* NULL: any */
    plugin_question *ask;    /* of the open plugin `asked`; NULL: the file is opened */
    const plugin *asked;
    const void *user;
    int32_t answer;    /* result of ask */
    nrl_status status; /* NRL_OK: it returned; else why not */
    const char *text;  /* what load_describe returned, "" without it; after an ask the error that the plugin left; the
                          reason if status is not NRL_OK */
} load_trial;

/* Opens each file, or asks, in a child process, which is ended if a call does not return within `seconds`. A plugin
 * that crashes, hangs or ends the process harms only the child; a new child continues with the next one. Texts are
 * allocated in `a`. `describe` may be NULL. [main] */
void load_try(arena *a, load_trial *list, size_t n, load_describe *describe, double seconds);

#endif
