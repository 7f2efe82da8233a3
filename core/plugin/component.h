/*
 * component.h - the struct nrl_component of nrl/host.h.
 */
#ifndef PLUGIN_COMPONENT_H
#define PLUGIN_COMPONENT_H
#include "plugin/host.h"
#include <nrl/run.h>

typedef struct nrl_component {
    arena memory;
    plugin_host *host;
    const plugin *plugin;
    void *options;
    const char *identity; /* computed on first use; NULL before */
    arena *own;           /* the arena of the config, if the component owns it; else NULL */
} nrl_component;

/* The section `plugins` of a config. */
typedef struct {
    const char *const *folders; /* [n_folders] */
    size_t n_folders;
    const char *const *allow; /* [n_allow] names; NULL: all are allowed */
    size_t n_allow;
} plugin_places;

/* Creates a host that searches the directories of an environment and, unless that forbids it (no_config_plugins), those
 * of a config; NULL = none. */
plugin_host *component_host(const nrl_environment *env, const plugin_places *config);

#endif
