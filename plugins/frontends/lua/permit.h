/*
 * permit.h - plugins that a script opens itself, by the section `plugins` of a config.
 */
#ifndef SCRIPT_PERMIT_H
#define SCRIPT_PERMIT_H
#include "host.h"
#include <nrl/host.h>

/* The section `plugins` of the command line, for what no config names; NULL = none. In the host's memory. */
const nrl_node *script_plugins(script_host *h);
/* The environment of the script's runs, with the directories of `plugins`; in `a`. */
nrl_environment script_places(const script_host *h, const nrl_node *plugins, arena *a);
/* The environment in which this plugin may be opened, in `a`. `section` is the name of its slot in messages.
 * NRL_ERR_CONFIG: plugins.allow refuses it. */
nrl_status script_permit(const script_host *h, const nrl_node *plugins, uint32_t kind, const char *section,
                         const char *name, arena *a, nrl_environment *env);
/* nrl_component_open in that environment. */
nrl_status script_component_open(const script_host *h, const nrl_node *plugins, uint32_t kind, const char *section,
                                 const nrl_node *config, nrl_component **out);

#endif
