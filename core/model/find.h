/*
 * find.h - which model plugin serves a config.json.
 */
#ifndef MODEL_FIND_H
#define MODEL_FIND_H
#include "plugin/host.h"
#include <nrl/model.h>

/* Finds the plugin whose model_types contain the config's model_type. A plugin named like the model_type is tried
 * first, then all others in order of their names. NRL_ERR_DATA lists the types that are served. The table lives as long
 * as the host. [main] */
nrl_status model_find(plugin_host *host, const nrl_node *config, const nrl_model **out);

#endif
