/*
 * load.h - one plugin file: opening it in this process, and trying it in a child process first. Private to core/plugin.
 */
#ifndef PLUGIN_LOAD_H
#define PLUGIN_LOAD_H
#include "base/arena.h"
#include "plugin/kinds.h"
#include <stdbool.h>

/* Opens the file and checks its table. `kind` NULL: any kind. `name` is the file's name without .so. NRL_ERR_PLUGIN.
 * [main] */
nrl_status load_table(const char *path, const plugin_kind *kind, const char *name, const nrl_plugin **table);

/* What a listing shows of a plugin. Texts live in the arena that it was made in, or in the plugin. */
typedef struct {
    const char *version, *summary;
    const nrl_option *options; /* [n_options] */
    size_t n_options;
    const char *const *model_types; /* of a model: NULL-terminated; else NULL */
    const char *relaxed;            /* of a backend: what train.deterministic: false changes; NULL = nothing */
    const char *axis;               /* of a strategy: the axis that it serves; NULL = none */
    uint32_t axis_divides;          /* nrl_divides */
    bool axis_takes_rest;
    const char *page; /* of a frontend: what a script can call; NULL = none */
} plugin_about;

void about_fill(arena *a, const nrl_plugin *table, plugin_about *out);

/* One file to try. */
typedef struct {
    const char *path, *name;
    const plugin_kind *kind; /* NULL: any */
    nrl_status status;       /* result */
    const char *problem;     /* the reason, unless status is NRL_OK */
    plugin_about about;      /* filled if status is NRL_OK */
} load_trial;

/* Opens each file in a child process, which is ended where a file does not return within `seconds`. Files that crash,
 * hang or end the process harm only the child; a new child continues behind such a file. Texts are allocated in `a`.
 * [main] */
void load_try(arena *a, load_trial *list, size_t n, double seconds);

#endif
