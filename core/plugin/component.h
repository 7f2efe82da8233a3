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

/* Creates a host that searches the directories of an environment. */
plugin_host *component_host(const nrl_environment *env);

#endif
