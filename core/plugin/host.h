/*
 * host.h - finds, opens and checks plugins; only core/plugin includes dlfcn.h.
 * The name in the config is the name of the file: <directory>/<kind>/<name>.so. Plugins are opened on demand and never
 * unloaded, so pointers to their code and data stay valid. A file that is not one of nrl's own plugins is tried in a
 * child process before it is opened here: one that crashes, hangs or ends the process harms nothing else.
 */
#ifndef PLUGIN_HOST_H
#define PLUGIN_HOST_H
#include "base/hash.h"
#include "config/options.h"
#include "plugin/load.h"

typedef struct plugin_host plugin_host;
struct buffer;

/* Searches directories in this order: `path` (colon-separated, may be NULL), `folders` of the config (must live as long
 * as the host), that of plugin_host_add_user, then the directory of installed plugins next to exe_dir (may be NULL).
 * [main] */
plugin_host *plugin_host_create(const char *path, const char *const *folders, size_t n_folders, const char *exe_dir);
/* Also searches the directory of the user's plugins, if it exists; NULL = none. Its plugins may be chosen by default,
 * as installed ones, but plugins.allow must list them. [main] */
void plugin_host_add_user(plugin_host *h, const char *folder);
void plugin_host_destroy(plugin_host *h); /* frees the copies of tables too */

/* Restricts the plugins that may be opened to installed ones and those whose name (focal), kind and name
 * (algorithms/focal) or hash (sha256:DIGITS) is in `allow`. The texts must live as long as the host. [main] */
void plugin_host_restrict(plugin_host *h, const char *const *allow, size_t n);
/* Sets the number of directories of the config that are not searched, for errors about a missing plugin. */
void plugin_host_skip(plugin_host *h, size_t n_folders);

/* Opens a plugin, which lives as long as the host. NRL_ERR_CONFIG: no plugin has this name (the error lists those
 * available); NRL_ERR_PLUGIN: the plugin cannot be used. [main] */
nrl_status plugin_open(plugin_host *h, uint32_t kind, const char *name, const plugin **out);

/* Opens a plugin that the config does not name, to ask whether it serves. A file that cannot be used is reported by a
 * warning, once, and the next file of that name is opened instead. NRL_ERR_CONFIG: plugins.allow refuses it;
 * NRL_ERR_PLUGIN: no file of that name can be used. [main] */
nrl_status plugin_open_candidate(plugin_host *h, uint32_t kind, const char *name, const plugin **out);

/* Asks an open plugin: nrl's own here, any other in a child process. The error text is the plugin's. A plugin that
 * crashes, hangs or ends the process is reported by a warning, once, is not asked again, and has the answer `refused`.
 * [main] */
int32_t plugin_ask(plugin_host *h, const plugin *p, plugin_question *ask, const void *user, int32_t refused);

/* Whether a backend runs on this machine: asks its probe as above; the status and the error text are the answer. If the
 * config names the backend, one that harms the process is an error of that text and no warning. [main] */
nrl_status plugin_probe(plugin_host *h, const plugin *backend, bool is_named);

/* The plugin of a kind with the highest answer above 0, the first by name if several have it; those after an answer of
 * `enough` are not opened. NULL: there is none. Adds to `asked` the names of the plugins, and why some cannot be used.
 * [main] */
const plugin *plugin_find(plugin_host *h, uint32_t kind, int32_t enough, plugin_question *ask, const void *user,
                          struct buffer *asked);

/* Sets how long opening a file or asking it in a child process may take: a number of seconds as text; NULL or "" = 10.
 * [main] */
void plugin_host_limit(plugin_host *h, const char *seconds);

/* Opens a plugin by its path. Its directory determines its kind; in any other directory every kind is accepted.
 * NRL_ERR_PLUGIN as above. [main] */
nrl_status plugin_open_file(plugin_host *h, const char *path, const plugin **out);

/* Fills the options of an open plugin, and `core` (may be NULL), from the component's map, then calls the plugin's own
 * check. Adds every mistake to `problems`. *options is allocated in `a` and never NULL. Adds the values to the
 * component's resolved map. [main] */
void plugin_options(arena *a, config_problems *problems, const char *section, const config_component *component,
                    const option_part *core, const plugin *p, void **options);

/* The same for a plugin that opens a path. NRL_ERR_CONFIG with all mistakes. [main] */
nrl_status plugin_choice_options(arena *a, const char *section, const config_choice *choice, const plugin *p,
                                 void **options);

/* Adds the error text of a plugin with these options as a mistake. One that begins with the name of an option belongs
 * to the place of that option. */
void plugin_take_error(arena *a, config_problems *problems, nrl_status st, const char *section,
                       const config_component *component, const nrl_plugin *t);

/* plugin_open and plugin_options: opens the component's plugin by name and fills its options. *out is NULL if the name
 * is wrong. [main] */
void plugin_instance(plugin_host *h, arena *a, config_problems *problems, uint32_t kind, const char *section,
                     const config_component *component, const option_part *core, const plugin **out, void **options);

/* The plugins that are open, by kind and name; in `a`. [main] */
size_t plugin_opened(const plugin_host *h, arena *a, const nrl_plugin ***list);

/* The names of all plugins of a kind, sorted, each once; in `a`. Opens no plugin. [main] */
size_t plugin_names(plugin_host *h, arena *a, uint32_t kind, const char ***names);

/* The plugins among which nrl chooses if the config names none of this kind, by descending priority: default plugins
 * (see below) that can be opened and have a priority above 0; in `a`. [main] */
size_t plugin_defaults(plugin_host *h, arena *a, uint32_t kind, const plugin ***list);

/* Whether the plugin of this name is a default plugin, which nrl may choose although the config does not name it: it is
 * installed with the program or by the user, or lies in a directory of the config. Opens no plugin. [main] */
bool plugin_is_default(plugin_host *h, uint32_t kind, const char *name);

typedef struct {
    const plugin_kind *kind;
    const char *name, *path;
    const char *description; /* what load_describe returned; NULL = nothing, or a problem */
    const char *problem;     /* the reason why the plugin cannot be used; NULL = none */
    const char *hidden_by;   /* path of the plugin of this name that is used instead; NULL = this plugin is used */
} plugin_entry;

/* Opens all plugins, those that are not nrl's own in a child process, and lists them by kind and name, in `a`.
 * `describe` is called where a plugin is opened; NULL = no descriptions. [main] */
size_t plugin_list(plugin_host *h, arena *a, load_describe *describe, plugin_entry **entries);

/* The version of an open plugin and the hash of its file, "0.1.0, 1f3a...", in `a`. NRL_ERR_IO. [main] */
nrl_status plugin_identity(plugin_host *h, uint32_t kind, const char *name, arena *a, const char **text);
/* Whether an open plugin is one of those that are built with nrl. [main] */
bool plugin_is_own(plugin_host *h, uint32_t kind, const char *name);
/* The hash of the file that the core was loaded from. NRL_ERR_IO. */
nrl_status plugin_core_identity(char out[HASH_TEXT]);

/* The directory of programs installed with this library, for exe_dir; NULL = unknown. [main] */
const char *plugin_own_exe_dir(arena *a);

/* The directories that are searched, in order; borrowed. */
const char *const *plugin_folders(const plugin_host *h, size_t *n);

#endif
