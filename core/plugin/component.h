/*
 * component.h - what is behind nrl_component.
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
    const char *identity; /* NULL until it was asked for */
    arena *own;           /* that the config lives in; NULL: the caller's */
} nrl_component;

/* A host that searches what an environment names. */
plugin_host *component_host(const nrl_environment *env);

#endif
