/*
 * host.h - for frontends and programs that open plugins themselves, such as the base of a loss.
 * [main] unless stated otherwise.
 */
#ifndef NRL_HOST_H
#define NRL_HOST_H
#include <nrl/frontend.h>
#ifdef __cplusplus
extern "C" {
#endif

/* ---- a plugin with its options ---- */

typedef struct nrl_component nrl_component;

/* Opens the plugin of this kind that `config` names (a word, or a map with `name` and options) and fills its options.
 * `section` is the name of the slot in messages. Searches env->plugin_path and the installed plugins. NRL_ERR_CONFIG
 * with all mistakes, NRL_ERR_PLUGIN. `config` must outlive the component. */
NRL_API nrl_status nrl_component_open(const nrl_environment *env, uint32_t kind, const char *section,
                                      const nrl_node *config, nrl_component **out);
NRL_API void nrl_component_close(nrl_component *c); /* destroy the plugin's instances first; c may be NULL */
/* The plugin's table, the first member of the table of its kind; members that the plugin does not know are zero. Lives
 * as long as the component. */
NRL_API const nrl_plugin *nrl_component_table(const nrl_component *c);
NRL_API void *nrl_component_options(const nrl_component *c); /* never NULL */
/* "0.1.0, 1f3a...": version and hash of the file. Lives as long as the component; NULL after NRL_ERR_IO. */
NRL_API const char *nrl_component_identity(nrl_component *c);

/* The names of all plugins of a kind, NULL-terminated, sorted, in `memory`. Opens no plugin, so some may turn out to be
 * unusable. */
NRL_API const char *const *nrl_plugin_names(const nrl_environment *env, uint32_t kind, nrl_arena *memory);

/* Writes the plugin to which an address of code belongs, "optimizer 'NAME'", into text[room]; false if it belongs to
 * none. Allocates nothing: for crash handlers. [any] */
NRL_API bool nrl_plugin_locate(const void *address, char *text, size_t room);

#ifdef __cplusplus
}
#endif
#endif
