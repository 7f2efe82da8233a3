/*
 * host.h - finds, opens and checks plugins; the one home of dlfcn.h.
 * The word in the config is the name of the file: <folder>/<kind>/<name>.so. Only what is asked for
 * is opened, and nothing is ever unloaded: code that returned a pointer stays.
 */
#ifndef PLUGIN_HOST_H
#define PLUGIN_HOST_H
#include "base/hash.h"
#include "config/options.h"
#include "plugin/kinds.h"

typedef struct plugin_host plugin_host;

typedef struct {
    const nrl_plugin *table; /* a copy of the kind's table, zero beyond what the plugin knows */
    const char *name, *path;
} plugin;

/* Folders are searched in this order: `path` (colon-separated, may be NULL), `folders` of the
 * config (which live as long as the host), then the installed one beside exe_dir (may be NULL). [main] */
plugin_host *plugin_host_create(const char *path, const char *const *folders, size_t n_folders, const char *exe_dir);
void plugin_host_destroy(plugin_host *h); /* also the plugins' copies */

/* From now on a file that does not lie in the installed folder is opened only where `allow` has its name (focal),
 * kind and name (algorithms/focal) or hash (sha256:DIGITS). The texts live as long as the host. [main] */
void plugin_host_restrict(plugin_host *h, const char *const *allow, size_t n);
/* Messages about a plugin that is not found tell of so many folders of the config that are not searched. */
void plugin_host_skip(plugin_host *h, size_t n_folders);

/* The plugin lives as long as the host. NRL_ERR_CONFIG: there is none of that name (the text says
 * which there are); NRL_ERR_PLUGIN: it cannot be used. [main] */
nrl_status plugin_open(plugin_host *h, uint32_t kind, const char *name, const plugin **out);

/* Opens this very file, whatever its kind and wherever it lies. NRL_ERR_PLUGIN as above. [main] */
nrl_status plugin_open_file(plugin_host *h, const char *path, const plugin **out);

/* Fills an opened plugin's options, and `core` (may be NULL), from the component's map; then the
 * plugin's own check. Every mistake goes to `problems`. *options belongs to `a` and is never NULL;
 * the component's resolved map gains the values. [main] */
void plugin_options(arena *a, config_problems *problems, const char *section, const config_component *component,
                    const option_part *core, const plugin *p, void **options);

/* Both: opens the component's plugin by its name and fills its options. *out is NULL after a
 * mistake in the name. [main] */
void plugin_instance(plugin_host *h, arena *a, config_problems *problems, uint32_t kind, const char *section,
                     const config_component *component, const option_part *core, const plugin **out, void **options);

/* Names there are of a kind, sorted, each once; in `a`. Opens nothing. [main] */
size_t plugin_names(plugin_host *h, arena *a, uint32_t kind, const char ***names);

/* Plugins that may be chosen where the config names none of the kind, that of the highest priority first: those by
 * default (see below) with a priority above 0 that can be opened; in `a`. [main] */
size_t plugin_defaults(plugin_host *h, arena *a, uint32_t kind, const plugin ***list);

/* Whether the plugin of this name may be chosen where the config does not name it: one of this name came with the
 * program, or lies in a folder of the config. Opens nothing. [main] */
bool plugin_is_default(plugin_host *h, uint32_t kind, const char *name);

typedef struct {
    const plugin_kind *kind;
    const char *name, *path;
    const nrl_plugin *table; /* NULL = broken */
    const char *problem;     /* why */
    const char *hidden_by;   /* path of the one of this name that is used; NULL = this one */
} plugin_entry;

/* Opens every plugin there is, by kind and name; in `a`. [main] */
size_t plugin_list(plugin_host *h, arena *a, plugin_entry **entries);

/* Writes whose code this is, "optimizer 'NAME'"; false where it is no plugin's. [any, signal handlers too] */
bool plugin_locate(const void *address, char *text, size_t room);

/* What this plugin's code is, "0.1.0, 1f3a..." : its version and the hash of its file; in `a`. The plugin
 * was opened before. NRL_ERR_IO. [main] */
nrl_status plugin_identity(plugin_host *h, uint32_t kind, const char *name, arena *a, const char **text);
/* The same of the core: the hash of the file that it was loaded from. */
nrl_status plugin_core_identity(char out[HASH_TEXT]);

/* The folder that a program installed with this library has, for exe_dir; NULL = unknown. [main] */
const char *plugin_own_exe_dir(arena *a);

/* Folders searched, in order; borrowed. */
const char *const *plugin_folders(const plugin_host *h, size_t *n);

#endif
